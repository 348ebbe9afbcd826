package search

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

const (
	targetLow  = 5 * time.Millisecond // shorter leases are calls for every few requests
	targetHigh = 2 * time.Second      // longer ones strand tokens for longer than people wait
	targetStep = 1.15                 // the factor between two targets
)

// ttls are the TTLs to choose from, in targets: a lease outlives 3 or 15 missed renewals.
var ttls = []time.Duration{4, 16}

// ownPolicy is that of s, with the lengths that are in force.
func ownPolicy(s sim.Scenario) lease.Policy {
	p := s.Policy
	c := p.ConfigFor(s.Limits, 0, s.CallTimeout)
	p.Target, p.TTL = c.Target, c.TTL
	return p
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
		p.Overcommit, p.Target = overcommit, targetHigh
		low := min(targetLow, p.TargetFor(s.Limits)/4)
		for _, ttl := range ttls {
			for t := targetHigh; t >= low; t = time.Duration(float64(t) / targetStep) {
				p.Target = max(twoDigits(t), time.Millisecond)
				p.Target = p.TargetFor(s.Limits)
				p.TTL = max(ttl*p.Target, 2*s.CallTimeout).Truncate(time.Microsecond)
				if s.Policy = p; s.Validate() == nil && !slices.Contains(all, p) {
					all = append(all, p)
				}
			}
		}
	}
	return append(all, shardedPolicies(q)...)
}

// shardedPolicies are the scenario's own policy with shards, in numbers that double up to that of
// the cluster. They cost what they divide a burst into, so there are some only where one bucket may
// be too busy for its node: where the part of a core that is busy is a target.
func shardedPolicies(q Question) (all []lease.Policy) {
	s := q.Scenario
	if !slices.ContainsFunc(q.Targets, func(t Threshold) bool { return t.Figure == "redis_cpu" }) {
		return nil
	}
	for k := 2; k <= min(s.Redis.Shards, lease.ShardsMax); k *= 2 {
		p := q.Scenario.Policy
		if p.Shards = k; k <= q.Scenario.Policy.Shards {
			continue
		}
		if s.Policy = p; s.Validate() == nil {
			all = append(all, p)
		}
	}
	return all
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

// twoDigits rounds to two significant digits: nobody configures 37.4 ms.
func twoDigits(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 100 {
		unit *= 10
	}
	return d.Round(unit)
}

// stationary reports whether a shorter run of s shows the same as a longer one: nothing happens at
// a time of its own.
func stationary(s sim.Scenario) bool {
	steady := func(w sim.Workload) bool {
		return w.Kind != sim.Diurnal && w.Kind != sim.Flash && w.Kind != sim.Replay
	}
	for _, g := range s.Groups {
		if len(g.Scale) > 0 || g.Workload != nil && !steady(*g.Workload) {
			return false
		}
	}
	return steady(s.Workload) && len(s.Network.Partitions) == 0 && len(s.Redis.Faults) == 0
}
