package search

import (
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/random"
)

// choice is a policy, by what a plan may choose. Its lengths are those in force: nothing in it
// means a default.
type choice struct {
	target, ttl time.Duration
	overcommit  int64
}

const (
	targetLow  = 5 * time.Millisecond // shorter leases are calls for every few requests
	targetHigh = 2 * time.Second      // longer ones strand tokens for longer than people wait
	// targetsMax targets are a factor of 1.7 apart where the burst allows all; refining halves that
	// twice.
	targetsMax   = 12
	targetFactor = 1.25 // no closer in the screening
	screenMax    = 60   // bounds the screening; larger grids are thinned evenly
	ttlMost      = 32   // times the target
)

// multiples are the TTLs that are screened, in targets: a lease outlives 3, 7 or 15 missed
// renewals.
var multiples = []int{4, 8, 16}

// space is what a plan may choose from.
type space struct {
	s             sim.Scenario // with its defaults
	overcommits   []int64      // from none to the most that is allowed
	overcommitMax int64
}

func newSpace(s sim.Scenario, overcommitMax int64) space {
	x := space{s: s, overcommitMax: max(overcommitMax, s.Policy.Overcommit)}
	for _, part := range []int64{0, 1, 2, 4} {
		x.overcommits = append(x.overcommits, x.overcommitMax/4*part+x.overcommitMax%4*part/4)
	}
	x.overcommits = slices.Compact(x.overcommits)
	return x
}

// given is the scenario's own policy.
func (x space) given() choice {
	c := x.s.Policy.ConfigFor(x.s.Limits, 0, x.s.CallTimeout)
	return choice{target: c.Target, ttl: c.TTL, overcommit: c.Overcommit}
}

// scenario is the question with c's policy. The rivals stay out: they would cost more than the
// leases.
func (x space) scenario(c choice) sim.Scenario {
	s := x.s
	s.Rivals = nil
	s.Policy.Target, s.Policy.TTL, s.Policy.Overcommit = c.target, c.ttl, c.overcommit
	return s
}

// fit is c with lengths that the protocol takes as they are; false if there are none.
func (x space) fit(c choice, multiple int) (choice, bool) {
	c.target = lease.Policy{Target: max(c.target, time.Millisecond), Overcommit: c.overcommit}.TargetFor(x.s.Limits)
	c.ttl = max(time.Duration(multiple)*c.target, 2*x.s.CallTimeout).Truncate(time.Microsecond)
	return c, x.scenario(c).Validate() == nil
}

// targets are the lengths to screen with an overcommit: log-spaced up to what the burst allows.
func (x space) targets(overcommit int64) (all []time.Duration) {
	top := lease.Policy{Target: targetHigh, Overcommit: overcommit}.TargetFor(x.s.Limits)
	low := targetLow
	if top < 2*low {
		low = time.Millisecond
	}
	ratio := float64(top) / float64(low)
	n := 1
	for r := 1.0; r < ratio && n < targetsMax; r *= targetFactor {
		n++
	}
	for i := range n - 1 {
		t := time.Duration(twoDigits(float64(low) * random.Pow(ratio, float64(i)/float64(n-1))))
		if t < top {
			all = append(all, t)
		}
	}
	return slices.Compact(append(all, top))
}

// screen is the given policy and a grid that fills the space. The simplest choice comes first, so
// that it wins ties: no overcommit, the shortest TTL. There are about most, or fewer.
func (x space) screen(most int) []choice {
	all := []choice{x.given()}
	whole := 0
	for _, e := range x.overcommits {
		whole += len(x.targets(e)) * len(multiples)
	}
	// Keeping the points whose index sum is a multiple of every leaves a lattice: each overcommit and
	// TTL keeps its part of the targets, and different ones keep different targets.
	every := (whole + most - 1) / most
	for i, e := range x.overcommits {
		for k, m := range multiples {
			for l, t := range x.targets(e) {
				if (l+2*k+3*i)%every != 0 {
					continue
				}
				if c, ok := x.fit(choice{target: t, overcommit: e}, m); ok && !slices.Contains(all, c) {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// around are c's neighbours: one step in each direction of everything that may be chosen. The steps
// of round 0 are half of the screening's, and each round halves them.
func (x space) around(c choice, round int) (all []choice) {
	factor := 1.7
	for range round + 1 {
		factor = math.Sqrt(factor)
	}
	multiple := multiples[0]
	if c.ttl > 2*x.s.CallTimeout { // a shorter one is that for the call timeout's sake alone
		multiple = max(int(c.ttl/c.target), multiple)
	}
	try := func(n choice, multiple int) {
		if n.overcommit < 0 || n.overcommit > x.overcommitMax {
			return
		}
		if n, ok := x.fit(n, multiple); ok && n != c {
			all = append(all, n)
		}
	}
	for _, target := range []float64{float64(c.target) * factor, float64(c.target) / factor} {
		n := c
		n.target = time.Duration(twoDigits(target))
		try(n, multiple)
	}
	for _, m := range []int{multiple * 2, multiple / 2} {
		if m >= multiples[0] && m <= ttlMost {
			try(c, m)
		}
	}
	if step := x.overcommitMax >> (3 + round); step > 0 {
		for _, overcommit := range []int64{c.overcommit - step, c.overcommit + step} {
			n := c
			n.overcommit = overcommit
			try(n, multiple)
		}
	}
	return all
}

// twoDigits rounds to two significant digits: nobody configures 37.4 ms.
func twoDigits(x float64) float64 {
	unit := 1.0
	for x/unit >= 100 {
		unit *= 10
	}
	return float64(math.Round(x/unit) * unit)
}
