package hybrid_test

import (
	"context"
	"fmt"
	"log"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// Joined keys decide together: what one of them denies takes nothing from the others.
func ExampleLimiter_Join() {
	store := memory.New(nil)
	tenants := limiterOn(store, hybrid.Config{Name: "tenants", Limits: []hybrid.Limit{hybrid.PerHour(100)}})
	users := limiterOn(store, hybrid.Config{Name: "users", Limits: []hybrid.Limit{hybrid.PerHour(10)}})
	defer tenants.Close()
	defer users.Close()
	both := tenants.Join(tenants.Key("acme"), users.Key("acme/ann"))
	fmt.Println(both.AllowN(8), both.AllowN(8))
	ctx := context.Background()
	r, err := both.Take(ctx, 8)
	fmt.Println(r.OK, r.Key, r.Limit, err)
	fmt.Println(tenants.Stats().Admitted, users.Stats().Admitted)
	// Output:
	// true false
	// false acme/ann 10/h <nil>
	// 8 8
}

// Reserve is for a cost that is known afterwards: take an estimate, then say what it was.
func ExampleLimiter_Reserve() {
	l := limiter(hybrid.PerHour(1000))
	defer l.Close()
	ctx := context.Background()
	ask := func(estimate, used int64) {
		r, err := l.Reserve(ctx, "tokens of ann", estimate)
		if err != nil || !r.OK() {
			fmt.Println("denied:", r.Result().Remaining, "are left,", err)
			return
		}
		// ... the model answers ...
		fmt.Println("settled:", r.Settle(used))
	}
	ask(600, 1100) // 100 more than there were
	fmt.Println("charged:", l.Stats().Charged)
	ask(600, 50)
	// Output:
	// settled: <nil>
	// charged: 500
	// denied: 0 are left, <nil>
}

// KeyWith is for limits that come with the request, such as those of a customer's plan.
func ExampleLimiter_KeyWith() {
	l := limiter(hybrid.PerHour(10))
	defer l.Close()
	fmt.Println(l.KeyWith("ann", hybrid.PerHour(3)).AllowN(4), l.Key("bob").AllowN(4))
	fmt.Println(l.KeyWith("root", hybrid.Unlimited).AllowN(1e6), l.KeyWith("eve", hybrid.Blocked).Allow())
	// Output:
	// false true
	// true false
}

// A key in a class leaves a part of the burst to the classes before it.
func ExampleKey_Class() {
	l := limiterOn(memory.New(nil), hybrid.Config{
		Limits:     []hybrid.Limit{hybrid.PerHour(100)},
		Priorities: []float64{0.2, 0.5},
	})
	defer l.Close()
	ctx := context.Background()
	search := l.Key("search")
	crawlers, err := search.Class(2).TakeUpTo(ctx, 100)
	if err != nil {
		log.Fatal(err)
	}
	guests, err := search.Class(1).TakeUpTo(ctx, 100)
	if err != nil {
		log.Fatal(err)
	}
	customers, err := search.TakeUpTo(ctx, 100)
	fmt.Println(crawlers.Taken, guests.Taken, customers.Taken, err)
	// Output: 50 30 20 <nil>
}

// ResetTo gives other limits and forgets what was used: another plan, from now on.
func ExampleLimiter_ResetTo() {
	l := limiter(hybrid.PerHour(2))
	defer l.Close()
	fmt.Println(l.AllowN("user 17", 2), l.Allow("user 17"))
	fmt.Println(l.ResetTo(context.Background(), "user 17", hybrid.PerHour(5)), l.AllowN("user 17", 5))
	// Output:
	// true false
	// <nil> true
}

// LimitsFor is asked when a key comes into use, and again on Refresh.
func ExampleLimiter_Refresh() {
	plan := map[string][]hybrid.Limit{"ann": {hybrid.PerHour(10)}}
	l := limiterOn(memory.New(nil), hybrid.Config{
		LimitsFor: func(key string) []hybrid.Limit { return plan[key] },
	})
	defer l.Close()
	l.Allow("ann")
	plan["ann"] = []hybrid.Limit{hybrid.PerHour(1000)} // in force two TTLs after the last Refresh of the fleet
	fmt.Println(l.Refresh("ann"))
	// Output: <nil>
}

// With Policy.Shadow everything is admitted, and what the limits would have denied is counted: to
// try limits before they limit.
func ExampleConfig_shadow() {
	l := limiterOn(memory.New(nil), hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerHour(3)},
		Policy: hybrid.Policy{Shadow: true},
	})
	defer l.Close()
	for range 5 {
		l.Allow("user 17")
	}
	s := l.Stats()
	fmt.Println(s.Admitted, s.Shadowed, s.Denied)
	// Output: 3 2 0
}
