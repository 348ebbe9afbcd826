package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

var counter atomic.Int64

//go:noinline
func addOne() bool { return counter.Add(1) != 0 }

// hotPath measures decisions of one goroutine. yuzhi and the local limiters decide without a call to Redis.
func hotPath(e *evaluation) {
	fmt.Printf("## The hot path\n\nNanoseconds per decision of one goroutine, medians of the rounds.\n\n")
	s := e.site()
	defer s.close()
	plenty := limit{1 << 40, 1 << 40, time.Second}
	admitting := s.yuzhi(plenty, hybrid.Policy{}, redis.Options{})
	key := admitting.Key("k")
	empty := s.yuzhi(limit{1, 1, time.Hour}, hybrid.Policy{}, redis.Options{}).Key("empty")
	for empty.Allow() {
	}
	reference := rate.NewLimiter(1<<40, 1<<30)
	store, err := memorystore.New(&memorystore.Config{Tokens: 1 << 40})
	testkit.NoErr(e, err)
	defer store.Close(context.Background())

	type contender struct {
		name string
		loop func(n int)
	}
	contenders := []contender{
		{"an atomic add behind a call", func(n int) {
			for range n {
				addOne()
			}
		}},
		{"yuzhi, Key.Allow, admitted", func(n int) {
			for range n {
				key.Allow()
			}
		}},
		{"yuzhi, Key.Allow, denied", func(n int) {
			for range n {
				empty.Allow()
			}
		}},
		{"yuzhi, Limiter.Allow, admitted", func(n int) {
			for range n {
				admitting.Allow("k")
			}
		}},
		{"x/time/rate, Limiter.Allow, one process", func(n int) {
			for range n {
				reference.Allow()
			}
		}},
		{"sethvargo/go-limiter in memory, Take, one process", func(n int) {
			for range n {
				_, _, _, _, _ = store.Take(context.Background(), "k")
			}
		}},
	}
	for _, p := range fleetwide[1:] {
		ask := p.open(s, perSecond(1_000_000, 1_000_000), redis.Options{})
		contenders = append(contenders, contender{p.name, func(n int) {
			for range n {
				_, err := ask("k")
				testkit.NoErr(e, err)
			}
		}})
	}

	took := make([][]float64, len(contenders))
	for range 2 * e.rounds {
		for i, c := range contenders {
			spend(c.loop, e.span/20) // renews a lease that has expired since the last round
			took[i] = append(took[i], spend(c.loop, e.span/20))
		}
	}
	var rows [][]string
	base := median(took[0])
	for i, c := range contenders {
		ns := median(took[i])
		least, most := slices.Min(took[i]), slices.Max(took[i])
		rows = append(rows, []string{c.name, number(ns), number(least) + " to " + number(most),
			number(ns / base)})
	}
	e.table([]string{"decision", "ns", "least to most", "ratio to the add"}, rows)
}

// spend runs a loop for d, and returns the nanoseconds per iteration.
func spend(loop func(n int), d time.Duration) float64 {
	n, from := 0, time.Now()
	for step := 1; time.Since(from) < d; step = min(2*step, 1<<16) {
		loop(step)
		n += step
	}
	return float64(time.Since(from)) / float64(n)
}
