package scenario

import "time"

// Settles is how long a fleet takes to build its stock, at most the whole run, where s has its
// defaults: a bucket's burst is spent, and leases are taken,
// given back and expire until what they hold is what the load needs.
func (s Scenario) Settles() time.Duration { return min(s.settling(), s.Duration) }

// Enough is how long a run must last, in whole seconds, for half of what counts to be settled: 0
// where it is that long, and where things happen at times of their own, so that a longer run would
// show something else.
func (s Scenario) Enough() time.Duration {
	enough := max(2*s.settling()-s.Warmup, s.Warmup+time.Second)
	enough = (enough + time.Second - 1).Truncate(time.Second)
	if enough <= s.Duration || !s.Stationary() {
		return 0
	}
	return enough
}

// Stationary reports whether a shorter run of s shows the same as a longer one: nothing happens at
// a time of its own.
func (s Scenario) Stationary() bool {
	steady := func(w Workload) bool { return w.Kind != Diurnal && w.Kind != Flash && w.Kind != Replay }
	for _, g := range s.Groups {
		if len(g.Scale) > 0 || g.Workload != nil && !steady(*g.Workload) {
			return false
		}
	}
	return steady(s.Workload) && len(s.Network.Partitions) == 0 && len(s.Redis.Faults) == 0
}

func (s Scenario) settling() time.Duration {
	const lives = 12
	config := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout)
	fills, ttl, processes := 0.0, config.TTL.Seconds(), 0
	for _, l := range s.Limits {
		fills = max(fills, float64(l.Capacity())/l.Rate())
	}
	for _, g := range s.Groups {
		processes += g.Count
	}
	if s.Policy.TTL == 0 { // the leases of a large fleet are longer
		spacing := float64(processes) / float64(config.CallsPerSecond)
		ttl = max(ttl, min(float64(4*spacing), float64(2*fills)))
	}
	return time.Duration(min(fills+float64(lives*ttl), DurationMax.Seconds()) * 1e9)
}
