package rpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/rpclimit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// A server's interceptor calls Limit before its handler. The client gets the result of Status: with gRPC,
// a status with the code in the comments.
func ExampleNew() {
	limiter, err := hybrid.New(memory.New(nil), hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerHour(2)}, CallTimeout: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	type userKey struct{}
	user := func(ctx context.Context) (string, error) {
		name, ok := ctx.Value(userKey{}).(string)
		if !ok {
			return "", errors.New("the call has no user")
		}
		return name, nil
	}
	status := func(err error) error {
		var denial rpclimit.Denial
		switch {
		case errors.Is(err, rpclimit.ErrDenied) && errors.As(err, &denial): // ResourceExhausted, RetryInfo
			return fmt.Errorf("too many calls: come back in %v", denial.Result.RetryAfter.Round(time.Minute))
		case errors.Is(err, rpclimit.ErrNoKey): // InvalidArgument
			return err
		default: // Unavailable, or the status of the context's error
			return fmt.Errorf("not now: %w", err)
		}
	}
	limit := rpclimit.New(limiter, user, rpclimit.Status(status))

	ctx := context.WithValue(context.Background(), userKey{}, "ann")
	for range 3 {
		fmt.Println(limit.Limit(ctx))
	}
	fmt.Println(limit.Limit(context.Background()))
	// Output:
	// <nil>
	// <nil>
	// too many calls: come back in 30m0s
	// rpclimit: no key: the call has no user
}
