package rival

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Rules for every algorithm.

// someLimits are those of the random tests.
var someLimits = [][]lease.Limit{
	{tenPerSecond},
	{{Tokens: 1_000_003, Per: 7 * time.Second, Burst: 20}},
	{{Tokens: 7, Per: time.Second, Burst: 11}, {Tokens: 400, Per: time.Minute, Burst: 13}},
}

func TestEveryAlgorithmAdmitsTheBurstAtOnceAndNoMore(t *testing.T) {
	for _, name := range Names() {
		for _, limit := range []lease.Limit{tenPerSecond, lease.Every(time.Second), lease.PerHour(7),
			{Tokens: 1_000_003, Per: 3 * time.Second, Burst: 90}} {
			t.Run(name+" "+limit.String(), func(t *testing.T) {
				// Given one process, whose clock is right, when a thousand requests come at one moment,
				a := start(t, name, fleetOf(1, limit))
				admits(t, a, 77*second, 0, limit.Capacity())
				// then nothing is left, and after a long rest it is the same again.
				admits(t, a, 77*second, 0, 0)
				admits(t, a, 90_000*second, 0, limit.Capacity())
			})
		}
	}
}

func TestEveryAlgorithmKeepsTheRateInTheLongRun(t *testing.T) {
	for _, name := range Names() {
		part := 1.0
		if strings.Contains(name, "cells") {
			part = 10.0 / 11 // an admission may count for a cell longer than the window
		}
		for _, limit := range []lease.Limit{tenPerSecond, {Tokens: 1000, Per: 7 * time.Second, Burst: 3},
			lease.PerSecond(333)} {
			// When a process asks for ten times the rate during a hundred seconds
			gap := int64(float64(second) / limit.Rate() / 10)
			a := start(t, name, fleetOf(1, limit))
			if name == "settle_afterwards" {
				a = settling(t, 10*ms, fleetOf(1, limit)) // the refill of a period must fit in the burst
			}
			got := float64(steadily(a, gap, 100*second))
			// Then it gets the rate, but for what a burst may add and a window may withhold.
			earned, burst := limit.Rate()*100, float64(limit.Capacity())
			testkit.Check(t, got <= earned+burst && got >= earned*part*0.998-burst,
				"%s, %v: %v were admitted in 100 s, the rate is worth %.1f", name, limit, got, earned)
		}
	}
}

func TestNoAlgorithmAdmitsMoreThanABurstInOneRequest(t *testing.T) {
	for _, name := range Names() {
		a := start(t, name, fleetOf(1, lease.PerSecond(100).WithBurst(50), tenPerSecond))
		for now := int64(0); now < 20*second; now += second {
			for _, n := range []int64{6, 50, 1 << 40, math.MaxInt64} {
				testkit.Must(t, !a.Decide(now, 0, 0, n),
					"%s: %d tokens were admitted by a burst of 5", name, n)
			}
		}
		testkit.Check(t, a.Decide(20*second, 0, 0, 5), "%s: the burst itself was refused", name)
	}
}

func TestARefusedRequestTakesNothing(t *testing.T) {
	rng := testkit.Rand(t)
	for _, name := range append(Names(), settlesOften) {
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
			testkit.Must(t, len(admitted) != 0 && len(admitted) != len(all) || name == "settle_afterwards",
				"%s: %d of %d admitted: this load shows nothing", name, len(admitted), len(all))
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
			alike(t, name+" in a second run", all, ok, decide(b, all))
			testkit.Check(t, a.RoundTrips() == b.RoundTrips(),
				"%s: %d round trips, then %d", name, a.RoundTrips(), b.RoundTrips())
			// When only one key is asked for, then its requests are decided as among those of the others.
			var one []request
			var want []bool
			for i, r := range all {
				if r.key == 1 {
					one, want = append(one, r), append(want, ok[i])
				}
			}
			alike(t, name+" among other keys, and alone", one, want, decide(start(t, name, f), one))
		}
	}
}

func TestACentralAlgorithmMakesOneRoundTripPerRequest(t *testing.T) {
	for _, name := range Names()[:8] {
		a := start(t, name, fleetOf(1, tenPerSecond))
		burst(a, 0, 0)
		testkit.Check(t, a.RoundTrips() == 1000,
			"%s: 1000 requests made %d round trips", name, a.RoundTrips())
	}
}

// TestAnyValidLimitWorksOrIsRefusedWithAReason looks for overflow at the edges of what lease accepts.
func TestAnyValidLimitWorksOrIsRefusedWithAReason(t *testing.T) {
	rng := testkit.Rand(t)
	const rounds = 400
	for _, name := range Names() {
		refused := 0
		for range rounds {
			limit := anyLimit(rng)
			f := fleetOf(1+rng.IntN(1000), limit)
			f.Local = func(p int, now int64) int64 { return now + int64(p%7-3)*3600*second }
			a, err := New(name, f)
			if err != nil {
				testkit.Must(t, errors.Is(err, ErrLimit), "%s, %v: %v", name, limit, err)
				refused++
				continue
			}
			var now int64
			for range 30 {
				now += anyGap(rng)
				n := 1 + rng.Int64N(1+min(2*limit.Capacity(), math.MaxInt64-2))
				testkit.Must(t, !a.Decide(now, rng.IntN(f.Processes), 0, n) || n <= limit.Capacity(),
					"%s, %v: %d tokens were admitted", name, limit, n)
			}
		}
		most := 0
		if strings.Contains(name, "cells") || strings.Contains(name, "fixed") {
			most = rounds * 2 / 3
		}
		testkit.Check(t, refused <= most, "%s refused %d of %d valid limits", name, refused, rounds)
	}
}

func TestACentralAlgorithmKeepsItsStateInTheStoreAlone(t *testing.T) {
	rng := testkit.Rand(t)
	for _, name := range Names() {
		_, remote := start(t, name, fleetOf(1, tenPerSecond)).(Remote)
		testkit.Check(t, remote == IsRemote(name), "%s: a Remote? %v, and IsRemote says %v", name, remote,
			IsRemote(name))
		if !remote {
			continue
		}
		for _, limits := range append(someLimits, []lease.Limit{lease.Sliding(20, 3*time.Second), tenPerSecond}) {
			// Given an algorithm and a clone of it in the middle of a load,
			f := fleetOf(3, limits...)
			f.Keys = 2
			all := draw(rng, f, 2000, 3)
			a := start(t, name, f)
			decide(a, all[:1000])
			clone := a.(Remote).Clone()
			// when both go on, one after the other, then they decide alike.
			alike(t, name+" and its clone", all[1000:], decide(a, all[1000:]), decide(clone, all[1000:]))
		}
	}
}

func TestTheStoresTimeIsItsOwn(t *testing.T) {
	for _, name := range Names() {
		if !IsRemote(name) {
			continue
		}
		// Given a limiter that has nothing left, when the clock of the caller is set an hour ahead,
		f, ahead := fleetOf(1, tenPerSecond), int64(0)
		f.Local = func(_ int, now int64) int64 { return now + ahead }
		a := start(t, name, f)
		admits(t, a, second, 0, 5)
		ahead = 3600 * second
		// then it has its burst again, if it goes by that clock.
		want := int64(0)
		if strings.HasSuffix(name, "_client") {
			want = 5
		}
		admits(t, a, second, 0, want)
	}
}
