// Package grpclimit limits the calls of a gRPC server, and those that a client makes, by the Limiters of
// package rpclimit. It is a module of its own, so that the others do not need gRPC.
//
// A server takes UnaryServerInterceptor and StreamServerInterceptor. A call that a limit denies is answered
// with ResourceExhausted and a RetryInfo. A client takes UnaryClientInterceptor, which comes back when the
// server said, and StreamClientInterceptor. Metadata, Method and Peer are keys; Status is what each error of
// a Limiter becomes.
package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/rpclimit"
)

// Metadata returns the value of a field of the call's metadata. Use it for fields that an interceptor or a
// proxy before this server has checked, as a client can write any value. No value is an error that wraps
// rpclimit.ErrNoKey. Several values are an error that does not, so rpclimit.FirstOf does not go on: their
// origin is unknown. A value that is an IP address has the key of rpclimit.AddressKey.
func Metadata(name string) rpclimit.KeyFunc {
	return func(ctx context.Context) (string, error) {
		values := metadata.ValueFromIncomingContext(ctx, name)
		switch len(values) {
		case 0:
			return "", fmt.Errorf("%w: the metadata has no %s", rpclimit.ErrNoKey, name)
		case 1:
			return rpclimit.AddressKey(values[0]), nil
		}
		return "", fmt.Errorf("grpclimit: the metadata has %d values of %s, must be 1", len(values), name)
	}
}

// Method returns the full name of the method, such as "/package.Service/Method".
func Method(ctx context.Context) (string, error) {
	if name, ok := grpc.Method(ctx); ok {
		return name, nil
	}
	return "", fmt.Errorf("%w: the context is not that of a server call", rpclimit.ErrNoKey)
}

// Peer returns the address of the client, without its port: that of the proxy, if there is one. An IPv6 /64
// counts as one address; see rpclimit.AddressKey.
func Peer(ctx context.Context) (string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "", fmt.Errorf("%w: the peer has no address", rpclimit.ErrNoKey)
	}
	address := p.Addr.String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	return rpclimit.AddressKey(address), nil
}

// Status returns the status of a call that is not admitted. Only a limit returns ResourceExhausted, with the
// time of the retry as a RetryInfo, unless the limit is hybrid.Blocked. InvalidArgument is for a call that is
// never admitted, whatever the state of the server: without a key, for more than the burst, or with a
// negative cost. A call that ended first has its context's status, and any other is Unavailable. A status
// that err is or wraps, of a KeyFunc or of rpclimit.Status, stays as it is.
func Status(err error) error {
	var own interface{ GRPCStatus() *status.Status }
	var denial rpclimit.Denial
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own) && own.GRPCStatus().Code() != codes.OK:
		return own.GRPCStatus().Err()
	case errors.Is(err, rpclimit.ErrDenied) && errors.As(err, &denial):
		s := status.New(codes.ResourceExhausted, err.Error())
		if after := denial.RetryAfter(); after > 0 {
			info := &errdetails.RetryInfo{RetryDelay: durationpb.New(after)}
			if with, failed := s.WithDetails(info); failed == nil { // always, as the code is not OK
				s = with
			}
		}
		return s.Err()
	case errors.Is(err, rpclimit.ErrNoKey), errors.Is(err, hybrid.ErrExceedsBurst),
		errors.Is(err, hybrid.ErrInvalidN), errors.Is(err, hybrid.ErrInvalidKey):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}

// limit is Status of l's error; nil admits, as does a nil Limiter.
func limit(ctx context.Context, l *rpclimit.Limiter) error {
	if l == nil {
		return nil
	}
	return Status(l.Limit(ctx))
}

// UnaryServerInterceptor limits the calls that a server gets. Goroutines may share it.
func UnaryServerInterceptor(calls *rpclimit.Limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if err := limit(ctx, calls); err != nil {
			return nil, err
		}
		return handle(ctx, r)
	}
}

// StreamServerInterceptor limits the streams that clients open, and the messages that each of them sends.
// Either may be nil, for no limit. With the option rpclimit.Wait of messages a stream is not read while its
// message waits, so HTTP/2 slows its client down to the limit; without it the stream ends with the denial.
func StreamServerInterceptor(streams, messages *rpclimit.Limiter) grpc.StreamServerInterceptor {
	return func(server any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if err := limit(s.Context(), streams); err != nil {
			return err
		}
		return handle(server, serverStream{s, messages})
	}
}

type serverStream struct {
	grpc.ServerStream
	messages *rpclimit.Limiter
}

func (s serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return limit(s.Context(), s.messages)
}

// UnaryClientInterceptor limits the calls that a client makes: with the option rpclimit.Wait they wait until
// they may be sent. calls may be nil, for no limit of the client's own. A call that the server denies with a
// RetryInfo is made again after that time, until it is admitted, or fails at once if its deadline comes
// before.
func UnaryClientInterceptor(calls *rpclimit.Limiter) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		for {
			if err := limit(ctx, calls); err != nil {
				return err
			}
			err := invoke(ctx, method, request, reply, conn, options...)
			after, ok := RetryAfter(err)
			if deadline, ends := ctx.Deadline(); !ok || ends && time.Until(deadline) < after {
				return err
			}
			select {
			case <-time.After(after):
			case <-ctx.Done():
				return status.FromContextError(ctx.Err()).Err()
			}
		}
	}
}

// StreamClientInterceptor limits the streams that a client opens, and the messages that it sends in each.
// Either may be nil, for no limit. A stream that the server ends is not opened again.
func StreamClientInterceptor(streams, messages *rpclimit.Limiter) grpc.StreamClientInterceptor {
	return func(ctx context.Context, about *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		if err := limit(ctx, streams); err != nil {
			return nil, err
		}
		s, err := open(ctx, about, conn, method, options...)
		if err != nil {
			return nil, err
		}
		return clientStream{s, messages}, nil
	}
}

type clientStream struct {
	grpc.ClientStream
	messages *rpclimit.Limiter
}

func (s clientStream) SendMsg(m any) error {
	if err := limit(s.Context(), s.messages); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
}

// RetryAfter returns the time after which the server asks for a retry of a call that it has denied; ok is
// false if err names none, or none above 0.
func RetryAfter(err error) (after time.Duration, ok bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.RetryInfo); is {
			after = max(info.GetRetryDelay().AsDuration(), 0)
			return after, after > 0
		}
	}
	return 0, false
}
