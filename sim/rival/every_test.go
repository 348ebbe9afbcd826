package rival

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

func TestEveryAlgorithmAdmitsTheBurstAtOnceAndNoMore(t *testing.T) {
	for _, name := range Names() {
		for _, limit := range []lease.Limit{tenPerSecond, lease.Every(time.Second), lease.PerHour(7), {Tokens: 1_000_003, Per: 3 * time.Second, Burst: 90}} {
			// Given one process, whose clock is right
			a := start(t, name, fleetOf(1, limit))
			// When a thousand requests come at one moment
			if got := burst(a, 77*second, 0); got != limit.Capacity() {
				t.Errorf("%s, %v: %d were admitted at once", name, limit, got)
			}
			// Then, whatever is asked for, nothing is left,
			if a.Decide(77*second, 0, 0, 1) {
				t.Errorf("%s, %v: one more was admitted", name, limit)
			}
			// and after a long rest it is the same again.
			if got := burst(a, 90_000*second, 0); got != limit.Capacity() {
				t.Errorf("%s, %v: after a rest %d were admitted at once", name, limit, got)
			}
		}
	}
}

func TestEveryAlgorithmKeepsTheRateInTheLongRun(t *testing.T) {
	for _, name := range Names() {
		part := 1.0
		switch {
		case name == "settle_afterwards":
			name += ":10ms" // what flows in in a period must fit in the burst
		case strings.Contains(name, "cells"):
			part = 10.0 / 11 // an admission may count for a cell longer than the window
		}
		for _, limit := range []lease.Limit{tenPerSecond, {Tokens: 1000, Per: 7 * time.Second, Burst: 3}, lease.PerSecond(333)} {
			a := start(t, name, fleetOf(1, limit))
			// When a process asks for ten times the rate during a hundred seconds
			var admitted int64
			between := int64(float64(second) / limit.Rate() / 10)
			for now := int64(0); now < 100*second; now += between {
				if a.Decide(now, 0, 0, 1) {
					admitted++
				}
			}
			// Then it gets the rate, but for what a burst may add and a window may withhold.
			earned := limit.Rate() * 100
			if burst, got := float64(limit.Capacity()), float64(admitted); got > earned+burst || got < earned*part*0.998-burst {
				t.Errorf("%s, %v: %d were admitted in 100 s, the rate is worth %.1f", name, limit, admitted, earned)
			}
		}
	}
}

func TestNoAlgorithmAdmitsMoreThanABurstInOneRequest(t *testing.T) {
	for _, name := range Names() {
		a := start(t, name, fleetOf(1, lease.PerSecond(100).WithBurst(50), tenPerSecond))
		for now := int64(0); now < 20*second; now += second {
			for _, n := range []int64{6, 50, 1 << 40, math.MaxInt64} {
				if a.Decide(now, 0, 0, n) {
					t.Fatalf("%s: %d tokens were admitted by a burst of 5", name, n)
				}
			}
		}
		if !a.Decide(20*second, 0, 0, 5) {
			t.Errorf("%s: the burst itself was refused", name)
		}
	}
}

func TestRequestsForNothingCostNothing(t *testing.T) {
	for _, name := range Names() {
		a := start(t, name, fleetOf(1, tenPerSecond))
		if !a.Decide(0, 0, 0, 0) || a.Decide(0, 0, 0, -1) || a.Decide(0, 0, 0, math.MinInt64) {
			t.Errorf("%s: 0 tokens must be admitted and a negative number must not", name)
		}
		if a.RoundTrips() != 0 || burst(a, 0, 0) != 5 {
			t.Errorf("%s: a request for nothing took something, or %d round trips", name, a.RoundTrips())
		}
	}
}

func TestNothingIsTakenUnlessEveryLimitHasRoom(t *testing.T) {
	tight := lease.Limit{Tokens: 3, Per: time.Hour}
	for _, name := range Names() {
		for _, limits := range [][]lease.Limit{{tenPerSecond, tight}, {tight, tenPerSecond}} {
			a := start(t, name, fleetOf(1, limits...))
			// Given that one limit has room for 3 tokens, and the other for 5
			if !a.Decide(0, 0, 0, 2) {
				t.Fatalf("%s: the first 2 were refused", name)
			}
			// When 2 are refused again and again for the one that has 1 left
			for range 9 {
				if a.Decide(0, 0, 0, 2) {
					t.Fatalf("%s: 4 of 3 tokens were admitted", name)
				}
			}
			// Then the 1 is still there, and the other limit has not paid for what the first refused.
			if !a.Decide(0, 0, 0, 1) || a.Decide(0, 0, 0, 1) {
				t.Errorf("%s, %v: the last token was taken by a refused request, or there was one more", name, limits)
			}
		}
	}
}

func TestAnyOneOfFourLimitsRefuses(t *testing.T) {
	wide := lease.PerSecond(1000)
	for _, name := range Names() {
		for i := range maxLimits {
			limits := slices.Repeat([]lease.Limit{wide}, maxLimits)
			limits[i] = tenPerSecond
			if got := burst(start(t, name, fleetOf(1, limits...)), 0, 0); got != 5 {
				t.Errorf("%s: with limit %d the tightest, %d were admitted at once, want its 5", name, i, got)
			}
		}
	}
}

// request is one that a random test draws.
type request struct {
	now    int64
	p, key int
	n      int64
}

// draw makes a load of about the limit's rate, in bursts and pauses, of processes and keys at random.
func draw(rng *rand.Rand, f Fleet, count int, most int64) []request {
	between := float64(f.Limits[0].Per) / 1000 / float64(f.Limits[0].Tokens) * float64(1+most) / 2 / float64(f.Keys)
	all := make([]request, count)
	var now float64
	for i := range all {
		if rng.IntN(3) > 0 {
			now += rng.ExpFloat64() * between * []float64{0.1, 1, 1, 10}[rng.IntN(4)]
		}
		all[i] = request{int64(now), rng.IntN(f.Processes), rng.IntN(f.Keys), 1 + rng.Int64N(most)}
	}
	return all
}

func decide(a Algorithm, all []request) (ok []bool) {
	for _, r := range all {
		ok = append(ok, a.Decide(r.now, r.p, r.key, r.n))
	}
	return ok
}

// difference says where two sequences of decisions part.
func difference(all []request, a, b []bool) string {
	for i := range all {
		if a[i] != b[i] {
			return fmt.Sprintf("request %d %+v: %v and %v", i, all[i], a[i], b[i])
		}
	}
	return ""
}

var someLimits = [][]lease.Limit{
	{tenPerSecond},
	{{Tokens: 1_000_003, Per: 7 * time.Second, Burst: 20}},
	{{Tokens: 7, Per: time.Second, Burst: 11}, {Tokens: 400, Per: time.Minute, Burst: 13}},
}

func TestARefusedRequestTakesNothing(t *testing.T) {
	rng := seeded(t)
	for _, name := range append(Names(), "settle_afterwards:50us") {
		for _, limits := range someLimits {
			f := fleetOf(3, limits...)
			f.Keys = 2
			all := draw(rng, f, 2000, 3)
			ok := decide(start(t, name, f), all)
			// When the refused ones are left out
			var admitted []request
			for i, r := range all {
				if ok[i] {
					admitted = append(admitted, r)
				}
			}
			if (len(admitted) == 0 || len(admitted) == len(all)) && name != "settle_afterwards" {
				t.Fatalf("%s: %d of %d admitted: this load shows nothing", name, len(admitted), len(all))
			}
			// Then the others are admitted as before.
			again := decide(start(t, name, f), admitted)
			if i := slices.Index(again, false); i >= 0 {
				t.Errorf("%s: %+v is refused where no request was refused before it", name, admitted[i])
			}
		}
	}
}

func TestTheSameRequestsGetTheSameAnswersAndKeysAreApart(t *testing.T) {
	rng := seeded(t)
	for _, name := range Names() {
		for _, limits := range someLimits {
			f := fleetOf(4, limits...)
			f.Keys = 3
			f.Local = func(p int, now int64) int64 { return now + int64(p)*370*ms - 500*ms }
			all := draw(rng, f, 2000, 3)
			a, b := start(t, name, f), start(t, name, f)
			ok := decide(a, all)
			if text := difference(all, ok, decide(b, all)); text != "" {
				t.Errorf("%s: the second run differs: %s", name, text)
			}
			if a.RoundTrips() != b.RoundTrips() {
				t.Errorf("%s: %d round trips, then %d", name, a.RoundTrips(), b.RoundTrips())
			}
			// When only one key is asked for, then its requests are decided as among those of the others.
			var one []request
			var want []bool
			for i, r := range all {
				if r.key == 1 {
					one, want = append(one, r), append(want, ok[i])
				}
			}
			if text := difference(one, want, decide(start(t, name, f), one)); text != "" {
				t.Errorf("%s: among other keys, and alone: %s", name, text)
			}
		}
	}
}

func TestWithRightClocksTheCallersTimeIsAsGoodAsTheStores(t *testing.T) {
	rng := seeded(t)
	for _, name := range Names() {
		if !strings.HasSuffix(name, "_client") {
			continue
		}
		for _, limits := range someLimits {
			server, client := fleetOf(3, limits...), fleetOf(3, limits...)
			server.Local = func(int, int64) int64 { panic("the store has its own time") }
			client.Local = func(_ int, now int64) int64 { return now }
			all := draw(rng, server, 3000, 3)
			want := decide(start(t, strings.TrimSuffix(name, "_client"), server), all)
			if text := difference(all, want, decide(start(t, name, client), all)); text != "" {
				t.Errorf("%s: by the store's time and by right clocks: %s", name, text)
			}
			if text := difference(all, want, decide(start(t, name, fleetOf(3, limits...)), all)); text != "" {
				t.Errorf("%s: by the store's time and without clocks: %s", name, text)
			}
		}
	}
}

// TestAnyValidLimitWorksOrIsRefusedWithAReason looks for overflow at the edges of what lease accepts.
func TestAnyValidLimitWorksOrIsRefusedWithAReason(t *testing.T) {
	rng := seeded(t)
	refused := map[string]int{}
	rounds := 400
	for range rounds {
		limit := anyLimit(rng)
		for _, name := range Names() {
			f := fleetOf(1+rng.IntN(1000), limit)
			f.Local = func(p int, now int64) int64 { return now + int64(p%7-3)*3600*second }
			a, err := New(name, f)
			if err != nil {
				if !errors.Is(err, ErrFleet) {
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
