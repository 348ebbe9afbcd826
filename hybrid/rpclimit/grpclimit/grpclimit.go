// Package grpclimit limits the calls of gRPC servers and clients by the Limiters of package rpclimit.
// grpclimit is a module of its own, so other packages do not need gRPC:
//
//	go get github.com/yuzhi-go/yuzhi/hybrid/rpclimit/grpclimit
//
// A server uses UnaryServerInterceptor and StreamServerInterceptor, and a client UnaryClientInterceptor and
// StreamClientInterceptor. Metadata, Method and Peer return keys.
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

// Metadata returns a KeyFunc for the value of a field in a call's metadata. A client can write any value, so
// use Metadata only for fields that an interceptor or a proxy has checked. A missing field is an error that
// wraps rpclimit.ErrNoKey. Several values are an error that does not wrap rpclimit.ErrNoKey, so
// rpclimit.FirstOf tries no other KeyFunc. An IP address as value has the key of rpclimit.AddressKey.
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

// Method returns the full name of the call's method, such as "/package.Service/Method".
func Method(ctx context.Context) (string, error) {
	if name, ok := grpc.Method(ctx); ok {
		return name, nil
	}
	return "", fmt.Errorf("%w: the context does not belong to a server call", rpclimit.ErrNoKey)
}

// Peer returns the address, without its port, of the client or proxy that has opened the connection. An IPv6
// /64 counts as one address; see rpclimit.AddressKey.
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

// Status converts err, an error of a Limiter, to an error with a gRPC status; nil stays nil. A denial by a
// limit becomes ResourceExhausted with a RetryInfo, or without one for hybrid.Blocked. The error of a call
// without a key, above the burst or with a negative cost becomes InvalidArgument. The error of an ended
// context becomes Canceled or DeadlineExceeded. Any other error becomes Unavailable. If err has or wraps a
// status, for example from a KeyFunc, Status returns that status.
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
			if with, failed := s.WithDetails(info); failed == nil { // only the code OK fails
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

// limit returns the Status of l's error. A nil l admits all calls.
func limit(ctx context.Context, l *rpclimit.Limiter) error {
	if l == nil {
		return nil
	}
	return Status(l.Limit(ctx))
}

// UnaryServerInterceptor limits the calls that a server gets. A nil Limiter means no limit. Goroutines may
// share all interceptors of this package.
func UnaryServerInterceptor(calls *rpclimit.Limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if err := limit(ctx, calls); err != nil {
			return nil, err
		}
		return handle(ctx, r)
	}
}

// StreamServerInterceptor limits the streams that clients open, and the messages of each stream. A nil
// Limiter means no limit. A denied message ends its stream. With the option rpclimit.Wait, a message waits
// for its tokens, and HTTP/2 slows the client down meanwhile.
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

// UnaryClientInterceptor limits the calls that a client makes. A nil Limiter means no limit. If the server
// answers a call with a RetryInfo, the call is repeated after the time in the RetryInfo, until the server
// admits the call. If the call's deadline comes earlier, the caller gets the server's error at once.
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

// StreamClientInterceptor limits the streams that a client opens, and the messages that the client sends. A
// nil Limiter means no limit. A stream that the server has denied is not repeated.
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

// RetryAfter returns the time in the RetryInfo of a server's error. ok is false if there is no time above 0.
func RetryAfter(err error) (after time.Duration, ok bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.RetryInfo); is {
			after = max(info.GetRetryDelay().AsDuration(), 0)
			return after, after > 0
		}
	}
	return 0, false
}
