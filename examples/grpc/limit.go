package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/hybrid/rpclimit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// settings holds the limits of the service, and how long a message of a stream waits for its turn.
type settings struct {
	user, address, everybody, messages hybrid.Limit
	wait                               time.Duration
}

var defaults = settings{
	user:      hybrid.PerSecond(5),
	address:   hybrid.PerSecond(50),
	everybody: hybrid.PerSecond(1000),
	messages:  hybrid.PerSecond(10),
	wait:      time.Minute,
}

// limits holds the limiters of a server. calls decides about each call and each opened stream,
// messages about each message that a stream receives.
type limits struct {
	calls, messages *rpclimit.Limiter
	limiters        []*hybrid.Limiter
}

func newLimits(store lease.Store, s settings) (*limits, error) {
	l := &limits{}
	var failed error
	limiter := func(name string, limit hybrid.Limit) *hybrid.Limiter {
		made, err := hybrid.New(store, hybrid.Config{Name: name, Limits: []hybrid.Limit{limit}})
		failed = errors.Join(failed, err)
		l.limiters = append(l.limiters, made)
		return made
	}
	users, addresses := limiter("user", s.user), limiter("address", s.address)
	everybody, messages := limiter("everybody", s.everybody), limiter("messages", s.messages)
	if failed != nil {
		return nil, failed
	}
	answer := rpclimit.Status(answerOf)
	l.calls = rpclimit.New(users, userOf, answer, rpclimit.Also(addresses, addressOf),
		rpclimit.Also(everybody, func(context.Context) (string, error) { return "all", nil }),
		rpclimit.Skip(func(ctx context.Context) bool {
			method, _ := grpc.Method(ctx)
			return method == healthpb.Health_Check_FullMethodName
		}))
	// A stream is not read while its message waits, so the flow control of HTTP/2 slows its client
	// down to the limit.
	l.messages = rpclimit.New(messages, userOf, answer, rpclimit.Wait(s.wait))
	return l, nil
}

// shutdown gives back the limiters' tokens.
func (l *limits) shutdown(ctx context.Context) (failed error) {
	for _, limiter := range l.limiters {
		failed = errors.Join(failed, limiter.Shutdown(ctx))
	}
	return failed
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

// addressOf returns the address that the call came from. An IPv6 /64 counts as one address, as one
// customer commonly has it.
func addressOf(ctx context.Context) (string, error) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return "", errors.New("the call has no peer")
	}
	return httplimit.ClientIP()(&http.Request{RemoteAddr: from.Addr.String()})
}

// answerOf returns the status of a call that is not admitted. Only a limit returns
// ResourceExhausted, with the time of the retry. A retry does not help a call without a user, or
// for more than the burst.
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

// limitUnary and limitStream work like package ratelimit of go-grpc-middleware, but return the
// error of Limit as it is. That package makes a text of it, so RetryInfo is lost and every code
// becomes ResourceExhausted.
func limitUnary(limiter *rpclimit.Limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if err := limiter.Limit(ctx); err != nil {
			return nil, err
		}
		return handle(ctx, r)
	}
}

// limitStream asks calls when a stream is opened, and messages for each message that it receives.
func limitStream(calls, messages *rpclimit.Limiter) grpc.StreamServerInterceptor {
	return func(server any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if err := calls.Limit(s.Context()); err != nil {
			return err
		}
		return handle(server, limitedStream{s, messages})
	}
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
