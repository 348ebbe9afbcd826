package search

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

const (
	targetLow  = 5 * time.Millisecond // shorter leases serve only a few requests each
	targetMin  = time.Millisecond     // the shortest target that lease.Policy allows
	targetHigh = 2 * time.Second      // longer leases strand tokens for longer than users wait
	targetMost = 30 * time.Minute     // the longest target that lease.Policy allows
	targetStep = 1.25                 // factor between two targets of the grid
	fleetStep  = 4                    // factor between two targets far below the target in force
	targetFine = 1.04                 // factor between two targets near the best target of the grid
	// Under a slow limit, the longest targets last for tokensHigh tokens of each process, and the shortest
	// targets for tokensLow tokens.
	tokensHigh, tokensLow = 100, 0.01
)

// ttlLong is the shortest explicit TTL to try, in targets. Leases with this TTL outlive 7 missed renewals
// instead of 3. Longer TTLs are ttlLong times a power of two. An explicit TTL also limits the leases of a
// large fleet to half of the TTL.
const ttlLong = 8

// ownPolicy returns the policy of s with an explicit target reduced to the target that the limits allow.
func ownPolicy(s sim.Scenario) lease.Policy {
	p := s.Policy
	if p.Target > 0 {
		p.Target = p.TargetFor(s.Limits)
	}
	return p
}

// options collects policies that are valid for s, each once.
type options struct {
	s   sim.Scenario
	all []lease.Policy
}

func (o *options) add(p lease.Policy) {
	if o.s.Policy = p; o.s.Validate() == nil && !slices.Contains(o.all, p) {
		o.all = append(o.all, p)
	}
}

// gridOf returns the policies that a plan tries first: the scenario's own policy, targets for each
// overcommit, and call budgets for a large fleet or for a target on calls.
func gridOf(q Question) []lease.Policy {
	s := q.Scenario
	grid := options{s: s}
	grid.add(s.Policy)
	for _, overcommit := range overcommits(q) {
		p := s.Policy
		p.Overcommit = overcommit
		for _, t := range targetsFor(s, p) {
			grid.add(withLengths(s, p, t, 0))
		}
		// With the shortest target, only the call budget and the delays after short grants limit the calls.
		grid.add(withLengths(s, p, targetMin, 0))
		grid.add(withLengths(s, p, targetMin, ttlLong))
		for _, part := range []float64{0.5, 0.7, 1} { // leases become as long as the target on calls demands
			if p.CallsPerSecond = twoDigits(int64(part * callsMost(q.Targets))); p.CallsPerSecond > 0 {
				grid.add(p)
			}
		}
	}
	if s.FleetTarget() > 0 {
		own := s.Policy
		own.TTL = 0
		for _, times := range []float64{0.25, 0.32, 0.4, 0.5, 0.63, 0.8, 1.25, 1.6, 2} {
			grid.add(withBudget(s, own, times))
		}
	}
	return grid.all
}

func callsMost(targets []Threshold) float64 {
	for _, t := range targets {
		if t.Figure == "calls_per_s" && (t.Op == "<=" || t.Op == "<") {
			return min(t.Bound, math.MaxInt32)
		}
	}
	return 0
}

// overcommits returns the scenario's own overcommit, the powers of two above it that are at least an eighth
// of the burst, and the largest allowed overcommit. A larger OvercommitMax removes only the last value.
func overcommits(q Question) []int64 {
	most, burst, own := overcommitMost(q), int64(math.MaxInt64), q.Scenario.Policy.Overcommit
	for _, l := range q.Scenario.Limits {
		burst = min(burst, l.Capacity())
	}
	all := []int64{own}
	for o := int64(1); o < most; o *= 2 {
		if o > own && o >= burst/8 {
			all = append(all, o)
		}
	}
	if most > own {
		all = append(all, most)
	}
	return all
}

// overcommitMost returns the largest overcommit to try. A lease takes at most a quarter of burst and
// overcommit at the full rate (Policy.TargetFor), so more than four times the tokens of the longest lease
// lengthen no lease.
func overcommitMost(q Question) int64 {
	rate := 0.0
	for _, l := range q.Scenario.Limits {
		rate = max(rate, l.Rate())
	}
	useful := int64(min(4*longest(q.Scenario).Seconds()*rate, float64(q.OvercommitMax)))
	return max(useful, q.Scenario.Policy.Overcommit)
}

// targetsFor returns the targets to try with p, longest first.
func targetsFor(s sim.Scenario, p lease.Policy) (all []time.Duration) {
	p.Target = longest(s)
	low := min(max(targetLow, tokensLast(s, tokensLow)), p.TargetFor(s.Limits)/4)
	for t := p.Target; t >= low; {
		all = append(all, t)
		factor := targetStep
		if t < s.FleetTarget()/2 { // the call budget makes leases longer than this target
			factor = fleetStep
		}
		t = time.Duration(float64(t) / factor)
	}
	return all
}

// shorter returns policies with shorter leases than the grid's, down to the shortest target. Where the call
// budget would lengthen the leases of a policy, shorter adds a policy with a larger budget.
func shorter(q Question) []lease.Policy {
	s := q.Scenario
	below := options{s: s}
	for _, overcommit := range []int64{s.Policy.Overcommit, overcommitMost(q)} {
		p := s.Policy
		p.Overcommit = overcommit
		all := targetsFor(s, p)
		for t := all[len(all)-1]; t > targetMin; {
			t = time.Duration(float64(t) / targetStep)
			short := withLengths(s, p, t, 0)
			below.add(short)
			s.Policy = short
			if s.FleetTarget() > short.Target {
				below.add(withBudget(s, short, float64(s.FleetTarget())/float64(short.Target)))
			}
		}
	}
	return below.all
}

// tokensLast returns the time in which the tightest limit refills n tokens for each process, at most
// targetMost.
func tokensLast(s sim.Scenario, n float64) time.Duration {
	seconds := n * float64(processesOf(s)) / s.LeastRate()
	return time.Duration(min(seconds, targetMost.Seconds()) * float64(time.Second))
}

func processesOf(s sim.Scenario) (all int) {
	for _, g := range s.Groups {
		all += g.Count
	}
	return all
}

func longest(s sim.Scenario) time.Duration { return max(targetHigh, tokensLast(s, tokensHigh)) }

// withLengths returns p with a target that the burst allows, and with a TTL in targets, 0 for the default. An
// explicit TTL leaves time for a call and its retry.
func withLengths(s sim.Scenario, p lease.Policy, target, ttl time.Duration) lease.Policy {
	p.Target = max(twoDigits(target), targetMin)
	p.Target = p.TargetFor(s.Limits)
	p.TTL = 0
	if ttl > 0 {
		p.TTL = max(ttl*p.Target, 2*s.CallTimeout).Truncate(time.Microsecond)
	}
	return p
}

func withBudget(s sim.Scenario, p lease.Policy, times float64) lease.Policy {
	config := p.ConfigFor(s.Limits, 0, s.CallTimeout)
	p.CallsPerSecond = twoDigits(int64(float64(config.CallBudget()) * times))
	return p
}

const centers = 2 // number of best policies around which a plan refines the grid

// around returns policies together with policies near the best trials. trials must be sorted, best first. The
// added policies have targets between two targets of the grid, and longer TTLs. If the fleet is large, some
// have another call budget than the best trial, and a long TTL.
func around(trials []*trial, policies []lease.Policy) []lease.Policy {
	near, n := options{all: policies}, 0
	for i, t := range trials {
		// A trial with as many calls as the trial before is equivalent to it.
		if n == centers || i > 0 && t.calls() == trials[i-1].calls() {
			continue
		}
		s, p := t.scenario, t.scenario.Policy
		near.s = s
		own := targetOf(t)
		for f := 1 / targetStep; f < targetStep; f *= targetFine * targetFine {
			near.add(withLengths(s, p, time.Duration(float64(own)*f), 0))
			if n == 0 && s.FleetTarget() > 0 {
				long := withLengths(s, p, own, ttlLong)
				long.TTL = max(long.TTL, p.TTL)
				near.add(withBudget(s, long, f))
			}
		}
		most := p
		most.Target = longest(s)
		for n := time.Duration(ttlLong); n*own <= max(ttlLong*own, 4*most.TargetFor(s.Limits)); n *= 2 {
			near.add(withLengths(s, p, own, n))
		}
		n++
	}
	return near.all
}

// neighbours returns policies near the policy of t that may make fewer calls or need less overcommit.
func neighbours(q Question, t *trial) []lease.Policy {
	p := t.scenario.Policy
	near := options{s: q.Scenario}
	add := func(overcommit int64, factor float64) {
		x := p
		x.Overcommit = max(overcommit, q.Scenario.Policy.Overcommit)
		target := time.Duration(float64(targetOf(t)) * factor)
		if longer := withLengths(q.Scenario, x, target, 0); target <= longest(q.Scenario) && longer != p {
			longer.TTL = p.TTL
			near.add(longer)
		}
	}
	for f := targetFine; f < targetStep; f *= targetFine {
		add(p.Overcommit, f)
	}
	for _, f := range []float64{0.5, 0.84} {
		add(twoDigits(int64(float64(p.Overcommit)*f)), 1)
	}
	if more := twoDigits(int64(float64(p.Overcommit) * 1.2)); more <= overcommitMost(q) {
		add(more, 1.2)
	}
	return near.all
}

func targetOf(t *trial) time.Duration {
	return cmp.Or(t.scenario.Policy.Target, t.scenario.TargetInForce())
}

func policiesOf(trials []*trial) (all []lease.Policy) {
	for _, t := range trials {
		if !slices.Contains(all, t.scenario.Policy) {
			all = append(all, t.scenario.Policy)
		}
	}
	return all
}

// twoDigits rounds to two significant digits: an operator configures 37 ms, not 37.4 ms.
func twoDigits[N ~int64](n N) N {
	unit := N(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}

// lasting returns s with the duration d, and with the defaults that depend on d. A workload keeps those times
// that its kind uses. s must have its defaults.
func lasting(s sim.Scenario, d time.Duration) sim.Scenario {
	s.Duration = d
	return eachLoad(s, func(w *sim.Workload) {
		if w.Kind != sim.Flash {
			w.At, w.For = 0, 0
		}
	}).Defaults()
}

// eachLoad returns a copy of s with all workloads changed.
func eachLoad(s sim.Scenario, change func(w *sim.Workload)) sim.Scenario {
	change(&s.Workload)
	s.Groups = slices.Clone(s.Groups)
	for i := range s.Groups {
		if w := s.Groups[i].Workload; w != nil {
			own := *w
			change(&own)
			s.Groups[i].Workload = &own
		}
	}
	return s
}
