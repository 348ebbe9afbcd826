package main

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// comeBack makes a call again when the server's RetryInfo says, so many times at most. A call whose
// deadline comes before that ends at once.
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

// retryAfter is when the server that denied a call wants to see it again, if it says so.
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
