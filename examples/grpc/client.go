package main

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// comeBack retries a call at the time in the server's RetryInfo, at most times times. A call whose
// deadline comes before that fails at once.
func comeBack(times int) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		for again := 0; ; again++ {
			err := invoke(ctx, method, request, reply, conn, options...)
			after, ok := retryAfter(err)
			deadline, hurried := ctx.Deadline()
			if !ok || again == times || hurried && time.Until(deadline) < after {
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

// retryAfter returns the delay that the server asks for in a denial. ok is false if it names none.
func retryAfter(err error) (after time.Duration, ok bool) {
	s := status.Convert(err)
	if s.Code() != codes.ResourceExhausted {
		return 0, false
	}
	for _, detail := range s.Details() {
		if info, is := detail.(*errdetails.RetryInfo); is {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}
