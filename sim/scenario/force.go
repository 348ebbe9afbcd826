package scenario

import (
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// TargetInForce is how long the leases of a key are meant to last, where s has its defaults: what
// the limits leave of the target (Policy.TargetFor), or what a fleet as large as this has in its
// place, up to half of a TTL that is set. Where there are many keys, and it is not known how many
// processes use each, the latter is left out.
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

// TTLInForce returns the TTL of a lease. Unless policy.ttl is set, it is longer in a large fleet than in a small one.
// s must have its defaults.
func (s Scenario) TTLInForce() time.Duration {
	ttl := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout).TTL
	if s.Policy.TTL > 0 {
		return ttl
	}
	return max(ttl, 4*s.TargetInForce())
}

// FleetTarget is the target that leases of a large fleet have for the sake of its budget of calls,
// whatever shorter one is configured; 0 where the fleet is small.
func (s Scenario) FleetTarget() time.Duration {
	config := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout)
	// With a budget that is set, the longer leases that save calls by default are left out.
	config.CallsPerSecond = config.CallBudget()
	if inForce := protocol.TargetInForce(&config, s.holders()); inForce > config.Target {
		return inForce
	}
	return 0
}

// holders is how many processes ask for tokens of one bucket.
func (s Scenario) holders() float64 {
	n := 0
	for _, g := range s.Groups {
		n += g.Count
	}
	return float64(n)
}
