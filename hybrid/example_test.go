package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// limiter and limiterOn are the set-up of the examples below: ExampleNew shows it in full.
func limiter(limits ...hybrid.Limit) *hybrid.Limiter {
	return limiterOn(memory.New(nil), hybrid.Config{Limits: limits})
}

func limiterOn(store lease.Store, cfg hybrid.Config) *hybrid.Limiter {
	cfg.CallTimeout = time.Minute // a machine that stalls is no outage
	l, err := hybrid.New(store, cfg)
	if err != nil {
		log.Fatal(err)
	}
	return l
}

// Three lines for the common case: every process of a fleet does this.
func ExampleRedis() {
	server, err := miniredis.Run() // yours is a real one
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), DialTimeout: 500 * time.Millisecond, ReadTimeout: 500 * time.Millisecond,
	})
	defer client.Close()

	limiter, err := hybrid.Redis(client, "api", hybrid.PerSecond(100))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	for !limiter.Allow("user 17") { // "429 Too Many Requests"
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("admitted")
	// Output: admitted
}

// The same without Redis, for a test.
func ExampleMemory() {
	limiter, err := hybrid.Memory("api", hybrid.PerHour(1))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	fmt.Println(limiter.Allow("user 17"), limiter.Allow("user 17"))
	// Output: true false
}

// New takes all settings in a Config, and a Store: redisbucket.New returns one in Redis.
func ExampleNew() {
	server, err := miniredis.Run() // yours is a real one
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	store, err := redisbucket.New(client, redisbucket.Config{})
	if err != nil {
		log.Fatal(err)
	}
	l, err := hybrid.New(store, hybrid.Config{
		Name:   "api",
		Limits: []hybrid.Limit{hybrid.PerSecond(100), hybrid.PerHour(5000)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	for !l.Allow("user 17") { // "429 Too Many Requests"
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("admitted")
	// Output: admitted
}

func ExampleLimiter_Allow() {
	l := limiter(hybrid.PerHour(10).WithBurst(3))
	defer l.Close()
	fmt.Println(l.Allow("user 17"), l.Allow("user 17"), l.Allow("user 17"), l.Allow("user 17"))
	// Output: true true true false
}

func ExampleLimiter_Take() {
	l := limiter(hybrid.PerHour(60).WithBurst(5))
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

// TryAllow never waits: the first time it finds nothing leased and starts a lease call, a little
// later there is.
func ExampleKey_TryAllow() {
	l := limiter(hybrid.PerSecond(1000))
	defer l.Close()
	fmt.Println(l.Key("search").TryAllow())
	for !l.Key("search").TryAllow() {
	}
	// Output: false
}

// AllowN takes n tokens or none: a large request that is denied costs the small ones nothing.
func ExampleLimiter_AllowN() {
	l := limiter(hybrid.PerHour(10))
	defer l.Close()
	fmt.Println(l.AllowN("bytes", 8), l.AllowN("bytes", 3), l.AllowN("bytes", 2), l.AllowN("bytes", 0))
	// Output: true false true true
}

// Wait is for work that should be done later rather than not at all.
func ExampleLimiter_Wait() {
	l := limiter(hybrid.PerSecond(50).WithBurst(1))
	defer l.Close()
	start := time.Now()
	for range 4 {
		if err := l.Wait(context.Background(), "mail"); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("three of four waited 20 ms each:", time.Since(start) >= 60*time.Millisecond)
	// Output: three of four waited 20 ms each: true
}

// A wait that cannot end before its context's deadline fails at once and takes nothing.
func ExampleKey_WaitN() {
	l := limiter(hybrid.PerMinute(60))
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(l.Key("rows").WaitN(ctx, 60))
	err := l.Key("rows").WaitN(ctx, 30) // half a minute away
	fmt.Println(errors.Is(err, hybrid.ErrWouldExceedDeadline))
	// Output:
	// <nil>
	// true
}

// A service warms its connections before it takes traffic; over Redis that saves its first requests
// several round trips.
func ExampleLimiter_Ping() {
	l := limiter(hybrid.PerHour(100))
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := l.Ping(ctx); errors.Is(err, lease.ErrPermanent) {
		log.Fatal(err) // a wrong password, certificate or permission
	} else if err != nil {
		log.Print(err) // the limiter works all the same, by Policy.Fallback until the store is there
	}
	fmt.Println(l.Allow("user 17"))
	// Output: true
}

// Peek reports without taking anything.
func ExampleLimiter_Peek() {
	l := limiter(hybrid.PerHour(100))
	defer l.Close()
	l.AllowN("user 17", 30)
	r, err := l.Peek(context.Background(), "user 17")
	fmt.Println(r.OK, r.Limit, r.Remaining, err)
	// Output: true 100/h 70 <nil>
}

// Refund gives back an admitted token that was not used, with the next report.
func ExampleKey_Refund() {
	l := limiter(hybrid.PerHour(10))
	defer l.Close()
	l.AllowN("exports", 10)
	l.Key("exports").Refund(4)
	for !l.AllowN("exports", 4) {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println(l.Stats().Refunded)
	// Output: 4
}

// Reset gives a user the whole burst again.
func ExampleLimiter_Reset() {
	l := limiter(hybrid.PerHour(2))
	defer l.Close()
	fmt.Println(l.AllowN("user 17", 2), l.Allow("user 17"))
	fmt.Println(l.Reset(context.Background(), "user 17"), l.Allow("user 17"))
	// Output:
	// true false
	// <nil> true
}

// Limits set by one process are followed by every other within a TTL, and what was used stays used.
func ExampleLimiter_SetLimits() {
	store := memory.New(nil) // of a fleet: redisbucket.New
	cfg := hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(10)}}
	l, other := limiterOn(store, cfg), limiterOn(store, cfg)
	defer l.Close()
	defer other.Close()
	ctx := context.Background()
	other.AllowN("tenant", 6)
	if err := l.SetLimits(ctx, "tenant", hybrid.PerHour(100).WithBurst(20)); err != nil {
		log.Fatal(err)
	}
	levels, err := other.Levels(ctx, "tenant")
	fmt.Println(levels[0].Limit, err)
	// Output: 100/h burst 20 <nil>
}

// Levels returns the limits in force, from any source, and what is left of each.
func ExampleLimiter_Levels() {
	l := limiterOn(memory.New(nil), hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerSecond(10)},
		LimitsFor: func(_ context.Context, key string) ([]hybrid.Limit, error) {
			if key == "internal" {
				return []hybrid.Limit{hybrid.PerSecond(1000), hybrid.PerHour(100000)}, nil
			}
			return nil, nil // those of Limits
		},
	})
	defer l.Close()
	ctx := context.Background()
	l.AllowN("internal", 30)
	levels, err := l.Levels(ctx, "internal")
	if err != nil {
		log.Fatal(err)
	}
	for _, level := range levels {
		fmt.Println(level.Limit, level.Limit.Capacity()-level.Remaining, "used")
	}
	// Output:
	// 1000/s 30 used
	// 100000/h 30 used
}

// Every token that was ever leased is somewhere.
func ExampleLimiter_Stats() {
	l := limiter(hybrid.PerHour(100))
	defer l.Close()
	for range 101 {
		l.Allow("k")
	}
	s := l.Stats()
	fmt.Println(s.Admitted, s.Denied, s.Conserved())
	// Output: 100 1 true
}

// Shutdown gives back what this process holds; Close leaves it to expire.
func ExampleLimiter_Shutdown() {
	store := memory.New(nil)
	l := limiterOn(store, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(100)}})
	l.Allow("k")
	ctx := context.Background()
	fmt.Println(l.Shutdown(ctx), l.Stats().Held)
	st, err := store.Configure(ctx, "k", lease.OpInspect, lease.Config{})
	fmt.Println(st.Levels[0], st.Ledger, err)
	fmt.Println(l.Wait(ctx, "k"))
	// Output:
	// <nil> 0
	// 99 0 <nil>
	// hybrid: limiter closed
}

// After Close every request is denied, and waiting ones fail with ErrClosed.
func ExampleLimiter_Close() {
	l := limiter(hybrid.PerHour(1))
	l.Allow("k")
	waiting := make(chan error)
	go func() { waiting <- l.Wait(context.Background(), "k") }()
	l.Close()
	fmt.Println(errors.Is(<-waiting, hybrid.ErrClosed), l.Allow("k"))
	// Output: true false
}

// A Key has the same verbs.
func ExampleKey() {
	l := limiter(hybrid.PerHour(10))
	defer l.Close()
	ctx := context.Background()
	k := l.Key("uploads")
	fmt.Println(k.Name(), k.Allow(), k.AllowN(2), k.Wait(ctx), k.WaitN(ctx, 2))
	r, err := k.Take(ctx, 4)
	fmt.Println(r.OK, r.Remaining, err)
	// Output:
	// uploads true true <nil> <nil>
	// true 0 <nil>
}

// allower has the method of a limiter that the code below calls.
type allower interface{ Allow() bool }

type denies struct{}

func (denies) Allow() bool { return false }

// Code that declares what it needs of its limiter can be tested without one.
func ExampleKey_Allow_substitute() {
	upload := func(limit allower) string {
		if !limit.Allow() {
			return "429 Too Many Requests"
		}
		return "201 Created"
	}
	l := limiter(hybrid.PerHour(10))
	defer l.Close()
	fmt.Println(upload(l.Key("user 17")))
	fmt.Println(upload(denies{}))
	// Output:
	// 201 Created
	// 429 Too Many Requests
}

// TakeUpTo is for work in batches: it takes what there is.
func ExampleKey_TakeUpTo() {
	l := limiter(hybrid.PerHour(100))
	defer l.Close()
	ctx := context.Background()
	for range 3 {
		r, err := l.Key("rows").TakeUpTo(ctx, 60)
		fmt.Println(r.OK, r.Taken, err)
	}
	// Output:
	// true 60 <nil>
	// true 40 <nil>
	// false 0 <nil>
}

// Limits are read from configuration files as text.
func ExampleParseLimit() {
	for _, text := range []string{"100/s", "5000/m burst 200", "1/250ms"} {
		fmt.Println(hybrid.ParseLimit(text))
	}
	// Output:
	// 100/s <nil>
	// 5000/m burst 200 <nil>
	// 1/250ms <nil>
}

// At most 3 in any minute, wherever that minute begins: after a burst of 3 nothing comes until the
// first of them is a minute old, and at most a second more.
func ExampleSliding() {
	l := limiter(hybrid.Sliding(3, time.Minute))
	defer l.Close()
	fmt.Println(l.Allow("user 17"), l.Allow("user 17"), l.Allow("user 17"))
	r, err := l.Take(context.Background(), "user 17", 1)
	fmt.Println(r.OK, r.Limit, r.RetryAfter.Round(10*time.Second), err)
	// Output:
	// true true true
	// false 3 in 1m 1m0s <nil>
}

// 1,000 a day, and the day begins at midnight in Beijing. A denial says how long it is until then.
func ExampleCalendar() {
	midnight := 16 * time.Hour // in UTC
	l := limiter(hybrid.Calendar(1000, 24*time.Hour, midnight))
	defer l.Close()
	r, err := l.Take(context.Background(), "user 17", 1000)
	fmt.Println(r.OK, r.Remaining, r.Limit, err)
	now := time.Now().UTC()
	ends := now.Add(r.ResetAfter).Round(time.Minute)
	fmt.Println(ends.Format("15:04"), "UTC, within a day:", ends.Sub(now) <= 24*time.Hour+time.Minute)
	// Output:
	// true 0 1000 each 24h from 16h <nil>
	// 16:00 UTC, within a day: true
}

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

// One call of a language model is a request and some thousand tokens, and each has a limit a minute.
func ExampleJoined_ReserveEach() {
	requests := limiter(hybrid.PerHour(10))
	defer requests.Close()
	tokens := limiter(hybrid.PerHour(1000))
	defer tokens.Close()
	ctx := context.Background()
	both := requests.Join(requests.Key("acme"), tokens.Key("acme"))
	r, err := both.ReserveEach(ctx, 1, 400)
	fmt.Println(r.OK(), err)
	fmt.Println(r.SettleEach(1, 700)) // the model says how many they were
	result, err := both.TakeEach(ctx, 1, 400)
	fmt.Println(result.OK, result.Key, result.Limit, result.Remaining, err)
	// Output:
	// true <nil>
	// <nil>
	// false acme 1000/h 300 <nil>
}

// Reserve is for a cost that is known afterwards: take an estimate, then say what it was.
func ExampleKey_Reserve() {
	l := limiter(hybrid.PerHour(1000))
	defer l.Close()
	ctx := context.Background()
	ask := func(estimate, used int64) {
		r, err := l.Key("tokens of ann").Reserve(ctx, estimate)
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

// KeyWithLimits is for limits that come with the request, such as those of a customer's plan.
func ExampleLimiter_KeyWithLimits() {
	l := limiter(hybrid.PerHour(10))
	defer l.Close()
	fmt.Println(l.KeyWithLimits("ann", hybrid.PerHour(3)).AllowN(4), l.Key("bob").AllowN(4))
	fmt.Println(l.KeyWithLimits("root", hybrid.Unlimited).AllowN(1e6), l.KeyWithLimits("eve", hybrid.Blocked).Allow())
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

// ReplaceLimits gives other limits and forgets what was used: another plan, from now on.
func ExampleLimiter_ReplaceLimits() {
	l := limiter(hybrid.PerHour(2))
	defer l.Close()
	fmt.Println(l.AllowN("user 17", 2), l.Allow("user 17"))
	fmt.Println(l.ReplaceLimits(context.Background(), "user 17", hybrid.PerHour(5)), l.AllowN("user 17", 5))
	// Output:
	// true false
	// <nil> true
}

// When the plan of a customer changes, store the new plan, drop it from any cache in LimitsFor, and call
// Refresh with the key in every process.
func ExampleLimiter_Refresh() {
	plan := map[string][]hybrid.Limit{"ann": {hybrid.PerHour(10)}}
	l := limiterOn(memory.New(nil), hybrid.Config{
		LimitsFor: func(_ context.Context, key string) ([]hybrid.Limit, error) { return plan[key], nil },
	})
	defer l.Close()
	l.Allow("ann")
	plan["ann"] = []hybrid.Limit{hybrid.PerHour(1000)}
	fmt.Println(l.Refresh(context.Background(), "ann")) // in force two TTLs after the last Refresh of the fleet
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
