package scenario

import (
	"math"
	"time"
)

// TargetInForce is how long the leases of a key are meant to last, where s has its defaults: what
// the limits leave of the target (Policy.TargetFor), or the FleetTarget, up to half of a TTL that
// is set. Where there are many keys, of which nobody knows how many processes use each, the latter
// is left out.
func (s Scenario) TargetInForce() time.Duration {
	target := s.Policy.TargetFor(s.Limits)
	if s.Keys.Count > 1 {
		return target
	}
	longer := s.FleetTarget()
	if s.Policy.TTL > 0 {
		longer = min(longer, s.Policy.TTL/2)
	}
	return max(target, longer.Truncate(time.Microsecond))
}

// FleetTarget is the target that leases of a large fleet have for the sake of its budget of calls,
// whatever shorter one is configured; 0 where the fleet is small.
func (s Scenario) FleetTarget() time.Duration {
	processes, fills := 0, time.Duration(math.MaxInt64)
	for _, g := range s.Groups {
		processes += g.Count
	}
	for _, l := range s.Limits {
		fills = min(fills, time.Duration(float64(l.Capacity()+s.Policy.Overcommit)/l.Rate()*float64(time.Second)))
	}
	budget := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout).CallsPerSecond * int64(max(1, s.Policy.Shards))
	spacing := time.Duration(float64(processes) / float64(budget) * float64(time.Second))
	if spacing <= s.Policy.TargetFor(s.Limits) {
		return 0
	}
	return min(spacing, fills/2)
}
