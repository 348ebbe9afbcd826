package rival

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// TestAnyValidLimitWorksOrIsRefusedWithAReason looks for overflow at the edges of what lease
// accepts.
func TestAnyValidLimitWorksOrIsRefusedWithAReason(t *testing.T) {
	rng := testkit.Rand(t)
	refused := map[string]int{}
	rounds := 400
	for range rounds {
		limit := anyLimit(rng)
		for _, name := range Names() {
			f := fleetOf(1+rng.IntN(1000), limit)
			f.Local = func(p int, now int64) int64 { return now + int64(p%7-3)*3600*second }
			a, err := New(name, f)
			if err != nil {
				if !errors.Is(err, ErrLimit) {
					t.Fatalf("%s, %v: %v", name, limit, err)
				}
				refused[name]++
				continue
			}
			var now int64
			for range 30 {
				now += anyGap(rng)
				n := 1 + rng.Int64N(1+min(2*limit.Capacity(), math.MaxInt64-2))
				if a.Decide(now, rng.IntN(f.Processes), 0, n) && n > limit.Capacity() {
					t.Fatalf("%s, %v: %d tokens were admitted", name, limit, n)
				}
			}
		}
	}
	for _, name := range Names() {
		if cells := strings.Contains(name, "cells") || strings.Contains(name, "fixed"); !cells && refused[name] > 0 || refused[name] > rounds*2/3 {
			t.Errorf("%s refused %d of %d valid limits", name, refused[name], rounds)
		}
	}
}

// anyLimit draws a limit that lease accepts, from all orders of magnitude.
func anyLimit(rng *rand.Rand) lease.Limit {
	for {
		l := lease.Limit{
			Tokens: 1 + rng.Int64N(1<<rng.IntN(61)),
			Per:    time.Microsecond + time.Duration(rng.Int64N(1<<rng.IntN(63))),
			Burst:  rng.Int64N(1 << rng.IntN(53)),
		}
		if rng.IntN(2) == 0 {
			l.Per = []time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}[rng.IntN(5)]
		}
		if l.Validate() == nil {
			return l
		}
	}
}

// anyGap draws a time between requests, from none to 36 years.
func anyGap(rng *rand.Rand) int64 { return rng.Int64N(1 << rng.IntN(51)) }
