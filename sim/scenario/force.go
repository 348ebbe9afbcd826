package scenario

import (
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// TargetInForce returns the intended length of a key's leases. The limits may shorten policy.target
// (Policy.TargetFor). A large fleet has longer leases, up to half of an explicit TTL; with many keys,
// TargetInForce ignores the fleet's size, as the number of processes per key is unknown. s must have its
// defaults.
func (s Scenario) TargetInForce() time.Duration {
	config := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout)
	if s.Keys.Count > 1 {
		return config.Target
	}
	longer := protocol.TargetInForce(&config, s.holders())
	if s.Policy.TTL > 0 {
		longer = min(longer, s.Policy.TTL/2)
	}
	return max(config.Target, longer)
}

// TTLInForce returns the TTL of a lease. Unless policy.ttl is set, the TTL is longer in a large fleet than in
// a small fleet. s must have its defaults.
func (s Scenario) TTLInForce() time.Duration {
	ttl := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout).TTL
	if s.Policy.TTL > 0 {
		return ttl
	}
	return max(ttl, 4*s.TargetInForce())
}

// FleetTarget returns the target that the budget of calls imposes on a large fleet, even if the scenario
// configures a shorter target. FleetTarget returns 0 for a small fleet.
func (s Scenario) FleetTarget() time.Duration {
	config := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout)
	// An explicit budget excludes the longer leases that save calls by default.
	config.CallsPerSecond = config.CallBudget()
	if inForce := protocol.TargetInForce(&config, s.holders()); inForce > config.Target {
		return inForce
	}
	return 0
}

// holders returns the number of processes that use one bucket.
func (s Scenario) holders() float64 {
	n := 0
	for _, g := range s.Groups {
		n += g.Count
	}
	return float64(n)
}
