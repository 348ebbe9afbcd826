package main

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/rpclimit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// limits are those of each user: calls and opened streams, and messages received in streams.
type limits struct{ calls, messages *hybrid.Limiter }

func newLimits(store lease.Store, calls, messages hybrid.Limit) (limits, error) {
	c, err1 := hybrid.New(store, hybrid.Config{Name: "calls", Limits: []hybrid.Limit{calls}})
	m, err2 := hybrid.New(store, hybrid.Config{Name: "messages", Limits: []hybrid.Limit{messages}})
	return limits{c, m}, errors.Join(err1, err2)
}

// server returns a server with interceptors that work like package ratelimit of go-grpc-middleware,
// but return the error of Limit as it is. That package makes a text of it, so RetryInfo is lost and
// every code becomes ResourceExhausted.
func (l limits) server() *grpc.Server {
	calls := rpclimit.New(l.calls, userOf, rpclimit.Status(answerOf))
	// A stream is not read while its message waits, so HTTP/2 slows its client down to the limit.
	messages := rpclimit.New(l.messages, userOf, rpclimit.Status(answerOf), rpclimit.Wait(time.Minute))
	unary := func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if err := calls.Limit(ctx); err != nil {
			return nil, err
		}
		return handle(ctx, r)
	}
	stream := func(server any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if err := calls.Limit(s.Context()); err != nil {
			return err
		}
		return handle(server, limitedStream{s, messages})
	}
	return grpc.NewServer(grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream))
}

type limitedStream struct {
	grpc.ServerStream
	messages *rpclimit.Limiter
}

func (s limitedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.messages.Limit(s.Context())
}

const userField = "x-user"

// userOf returns the user of the call. This service believes its clients. Yours takes the name from
// a certificate or token that an earlier interceptor has checked.
func userOf(ctx context.Context) (string, error) {
	names := metadata.ValueFromIncomingContext(ctx, userField)
	if len(names) != 1 {
		return "", errors.New("the metadata must have one " + userField)
	}
	return names[0], nil
}

// answerOf returns the status of a call that is not admitted. Only a limit returns ResourceExhausted, with
// the time of the retry. A retry does not help a call without a user, or for more than the burst.
func answerOf(err error) error {
	var denial rpclimit.Denial
	switch {
	case errors.Is(err, rpclimit.ErrDenied) && errors.As(err, &denial):
		after := &errdetails.RetryInfo{RetryDelay: durationpb.New(denial.Result.RetryAfter)}
		s, failed := status.New(codes.ResourceExhausted, err.Error()).WithDetails(after)
		return errors.Join(failed, s.Err())
	case errors.Is(err, rpclimit.ErrNoKey), errors.Is(err, hybrid.ErrExceedsBurst):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}
