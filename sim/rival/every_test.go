package rival

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
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
			// Then the 1 is still there, and the other limit has not paid for what the first
			// refused.
			if !a.Decide(0, 0, 0, 1) || a.Decide(0, 0, 0, 1) {
				t.Errorf("%s, %v: the last token was taken by a refused request, or there was one more", name, limits)
			}
		}
	}
}

func TestAnyOneOfFourLimitsRefuses(t *testing.T) {
	wide := lease.PerSecond(1000)
	for _, name := range Names() {
		for i := range lease.LimitsMax {
			limits := slices.Repeat([]lease.Limit{wide}, lease.LimitsMax)
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

// draw makes a load of about the limit's rate, in bursts and pauses, of processes and keys at
// random.
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
	rng := testkit.Rand(t)
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
	rng := testkit.Rand(t)
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
			// When only one key is asked for, then its requests are decided as among those of the
			// others.
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

func TestWhatAsksTheStoreMakesOneRoundTripPerRequest(t *testing.T) {
	for _, name := range Names()[:8] {
		a := start(t, name, fleetOf(1, tenPerSecond))
		burst(a, 0, 0)
		if a.RoundTrips() != 1000 {
			t.Errorf("%s: 1000 requests made %d round trips", name, a.RoundTrips())
		}
	}
}
