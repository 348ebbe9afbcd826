package search

import (
	"cmp"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

const (
	targetLow  = 5 * time.Millisecond // shorter leases are calls for every few requests
	targetHigh = 2 * time.Second      // longer ones strand tokens for longer than people wait
	targetMost = 30 * time.Minute     // the longest that lease.Policy takes
	targetStep = 1.25                 // the factor between two targets of the grid
	fleetStep  = 4                    // and between two that are far below the one in force
	targetFine = 1.04                 // and between two of those around the best of them
	// A lease that is to hold so many tokens of a slow limit lasts longer than targetHigh, and one
	// that is to hold so small a part of one is a call for each request.
	tokensHigh, tokensLow = 100, 0.01
)

// ttlLong is the least of the TTLs to choose beside the policy's default, in targets: a lease
// outlives 7 missed renewals instead of 3. Each of the others is twice as long as the one before.
// They are explicit, so leases of a large fleet are no longer.
const ttlLong = 8

// ownPolicy is that of s, with a target that is set reduced to what the limits allow. One that is not
// set stays so, as does a TTL: leases of a large fleet are longer then.
func ownPolicy(s sim.Scenario) lease.Policy {
	p := s.Policy
	if p.Target > 0 {
		p.Target = p.TargetFor(s.Limits)
	}
	return p
}

// ttlOf is the TTL in force.
func ttlOf(s sim.Scenario) time.Duration {
	if s.Policy.TTL > 0 {
		return s.Policy.TTL
	}
	return s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout).TTL
}

// policiesFor is what there is to choose from: the scenario's own policy and a grid, the simplest
// ones first. Lengths are those that the protocol takes as they are: a target within what the burst
// allows, so that a small burst leaves few of them, and a TTL with time for a call and its retry.
func policiesFor(q Question) []lease.Policy {
	s := q.Scenario
	all := []lease.Policy{s.Policy}
	most := max(q.OvercommitMax, s.Policy.Overcommit)
	for _, overcommit := range []int64{0, most / 2, most} {
		p := q.Scenario.Policy
		p.Overcommit, p.Target, p.TTL = overcommit, longest(s), 0
		low := min(max(targetLow, tokensLast(s, tokensLow)), p.TargetFor(s.Limits)/4)
		for t := p.Target; t >= low; {
			if p, ok := policyWith(q.Scenario, p, t, 0); ok && !slices.Contains(all, p) {
				all = append(all, p)
			}
			step := targetStep
			if t < q.Scenario.FleetTarget()/2 { // the budget of calls makes the leases longer
				step = fleetStep
			}
			t = time.Duration(float64(t) / step)
		}
	}
	return append(all, budgets(q)...)
}

// tokensLast is how long n tokens of the tightest limit are for one of the processes of s, at most
// targetMost.
func tokensLast(s sim.Scenario, n float64) time.Duration {
	processes, seconds := 0, 0.0
	for _, g := range s.Groups {
		processes += g.Count
	}
	for _, l := range s.Limits {
		seconds = max(seconds, n*float64(processes)/l.Rate())
	}
	return time.Duration(min(seconds, targetMost.Seconds()) * float64(time.Second))
}

// longest is the longest target to choose for s, of which the burst may allow less.
func longest(s sim.Scenario) time.Duration { return max(targetHigh, tokensLast(s, tokensHigh)) }

// policyWith is p with a target, as far as the burst allows, and a TTL in targets, 0 for the
// default; ok says that s can have it.
func policyWith(s sim.Scenario, p lease.Policy, target, ttl time.Duration) (with lease.Policy, ok bool) {
	p.Target = max(twoDigits(target), time.Millisecond)
	p.Target = p.TargetFor(s.Limits)
	p.TTL = 0
	if ttl > 0 {
		p.TTL = max(ttl*p.Target, 2*s.CallTimeout).Truncate(time.Microsecond)
	}
	s.Policy = p
	return p, s.Validate() == nil
}

// around is the policies near those of trials, the best first: the same with targets between their
// neighbours in the grid, and with longer TTLs, up to that of the longest target; and the first,
// where its leases go by a budget of calls, with budgets between its neighbours and a long TTL,
// with which such a fleet makes fewer calls.
func around(trials []*trial) (all []lease.Policy) {
	add := func(t *trial, target, ttl time.Duration) {
		if p, ok := policyWith(t.scenario, t.scenario.Policy, target, ttl); ok && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	for i, t := range trials {
		own := cmp.Or(t.scenario.Policy.Target, t.scenario.TargetInForce())
		for f := 1 / targetStep; f < targetStep; f *= targetFine {
			add(t, time.Duration(float64(own)*f), 0)
			if i > 0 || t.scenario.FleetTarget() == 0 {
				continue
			}
			long, _ := policyWith(t.scenario, t.scenario.Policy, own, ttlLong)
			long.TTL = max(long.TTL, t.scenario.Policy.TTL)
			if p, ok := withBudget(t.scenario, long, f); ok && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
		most := t.scenario.Policy
		most.Target = longest(t.scenario)
		for n := time.Duration(ttlLong); n*own <= max(ttlLong*own, 4*most.TargetFor(t.scenario.Limits)); n *= 2 {
			add(t, own, n)
		}
	}
	return all
}

// budgets are the scenario's own policy with other budgets of calls, where the fleet is so large
// that leases go by that.
func budgets(q Question) (all []lease.Policy) {
	s := q.Scenario
	if s.FleetTarget() == 0 {
		return nil
	}
	for _, percent := range []float64{25, 32, 40, 50, 63, 80, 125, 160, 200} {
		p := s.Policy
		p.TTL = 0
		if p, ok := withBudget(s, p, percent/100); ok {
			all = append(all, p)
		}
	}
	return all
}

// withBudget is p with so many times its budget of calls; ok says that s can have it, and that the
// budget is another one.
func withBudget(s sim.Scenario, p lease.Policy, times float64) (with lease.Policy, ok bool) {
	config := p.ConfigFor(s.Limits, 0, s.CallTimeout)
	own := config.CallBudget()
	p.CallsPerSecond = twoDigits(int64(float64(own) * times))
	s.Policy = p
	return p, p.CallsPerSecond > 0 && p.CallsPerSecond != own && s.Validate() == nil
}

// policiesOf are the policies of lists of trials, each once.
func policiesOf(lists ...[]*trial) (all []lease.Policy) {
	for _, t := range slices.Concat(lists...) {
		if !slices.Contains(all, t.scenario.Policy) {
			all = append(all, t.scenario.Policy)
		}
	}
	return all
}

// twoDigits rounds to two significant digits: nobody configures 37.4 ms, or 3,741 calls.
func twoDigits[N ~int64](n N) N {
	unit := N(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}

// lasting is s, which is stationary, for another time. What defaults depend on that is none that
// its workloads read.
func lasting(s sim.Scenario, d time.Duration) sim.Scenario {
	timeless := func(w *sim.Workload) { w.Period, w.At, w.For = 0, 0, 0 }
	s.Duration = d
	timeless(&s.Workload)
	s.Groups = slices.Clone(s.Groups)
	for i := range s.Groups {
		if w := s.Groups[i].Workload; w != nil {
			own := *w
			timeless(&own)
			s.Groups[i].Workload = &own
		}
	}
	return s.Defaults()
}
