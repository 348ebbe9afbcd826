package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Every process of a fleet makes one Limiter over the same store; a fleet has redisbucket.Store, one process can
// do with a MemoryStore.
func ExampleNew() {
	l, err := hybrid.New(lease.NewMemoryStore(nil), hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerSecond(100), hybrid.PerHour(5000)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	fmt.Println(l.Allow("user 17"))

	_, err = hybrid.New(lease.NewMemoryStore(nil), hybrid.Config{KeysMax: -1})
	fmt.Println(errors.Is(err, hybrid.ErrInvalidConfig))
	// Output:
	// true
	// true
}

func ExampleLimiter_Allow() {
	l, err := hybrid.New(lease.NewMemoryStore(nil), hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerHour(10).WithBurst(3)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	for range 4 {
		fmt.Println(l.Allow("user 17"))
	}
	// Output:
	// true
	// true
	// true
	// false
}

func ExampleLimiter_Take() {
	l, err := hybrid.New(lease.NewMemoryStore(nil), hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerHour(60).WithBurst(5)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	ctx := context.Background()

	r, err := l.Take(ctx, "user 17", 3)
	fmt.Println(r.OK, r.Remaining, err)

	r, err = l.Take(ctx, "user 17", 3)
	fmt.Println(r.OK, "retry within a minute or so:", r.RetryAfter > 0, err)

	_, err = l.Take(ctx, "user 17", 6)
	fmt.Println(errors.Is(err, hybrid.ErrExceedsBurst))
	// Output:
	// true 2 <nil>
	// false retry within a minute or so: true <nil>
	// true
}

// A Key saves the look-up by name where the same key is used again and again.
func ExampleLimiter_Key() {
	l, err := hybrid.New(lease.NewMemoryStore(nil), hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerHour(10).WithBurst(2)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	uploads := l.Key("uploads")
	fmt.Println(uploads.Name(), uploads.Allow(), uploads.AllowN(1), uploads.TryAllow())
	// Output: uploads true true false
}
