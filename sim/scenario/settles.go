package scenario

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Settles returns the settling time, at most the whole run. s must have its defaults.
func (s Scenario) Settles() time.Duration { return min(s.Settling(), s.Duration) }

// Stockable returns an upper bound of the tokens that a fleet rejects once at its start, and again at each
// growth: tokens in buckets, in leases, on the way, and for requests that wait in line at a central bucket.
func (s Scenario) Stockable() int64 {
	config, least := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout), math.Inf(1)
	for _, l := range s.Limits {
		coming := float64(l.Rate() * (s.ttlMost() + s.line()).Seconds())
		least = min(least, float64(l.Capacity()+config.Overcommit)+coming)
	}
	starts := 1
	for _, d := range s.Disturbances() {
		if !d.Fault {
			starts++
		}
	}
	return int64(min(least*float64(starts)*float64(max(1, s.Keys.Count)), math.MaxInt64/2))
}

// ttlMost returns TTLInForce for a key that all processes use, which may have a longer TTL than other keys.
func (s Scenario) ttlMost() time.Duration {
	s.Keys.Count = 1
	return s.TTLInForce()
}

// Disturbance is a fault, or a growth of the fleet. After a Disturbance the fleet builds its stock again.
type Disturbance struct {
	From, Until time.Duration
	Fault       bool
}

// Disturbances returns the disturbances of s in order of time: faults of Redis and of the network, processes
// paused or killed at a given time, and added processes. A flash is part of the load and no disturbance.
func (s Scenario) Disturbances() (all []Disturbance) {
	fault := func(at, lasts time.Duration) { all = append(all, Disturbance{at, at + lasts, true}) }
	for _, f := range s.Redis.Faults {
		fault(f.At, f.For)
	}
	for _, p := range s.Network.Partitions {
		fault(p.At, p.For)
	}
	for _, g := range s.Groups {
		for _, x := range []Stops{g.Pauses, g.Restarts} {
			if x.At > 0 {
				fault(x.At, time.Duration(x.For.Mean()))
			}
		}
		count := g.Count
		for _, step := range g.Scale {
			if step.Kill {
				fault(step.At, 0)
			} else if step.Count > count {
				all = append(all, Disturbance{step.At, step.At, false})
			}
			count = step.Count
		}
	}
	slices.SortFunc(all, func(a, b Disturbance) int { return cmp.Compare(a.From, b.From) })
	return all
}

// Window returns the longest sliding window or calendar period of the limits, or 0.
func (s Scenario) Window() (longest time.Duration) {
	for _, l := range s.Limits {
		if l.Windowed() {
			longest = max(longest, l.Per)
		}
	}
	return longest
}

// WindowsEnough is the number of sliding windows that a run must count. In each window, a fleet admits a
// little less than a central bucket, because its leases report late. Only many windows show the difference.
const WindowsEnough = 20

// Enough returns how long a run must last, in whole seconds, so that the fleet is settled for half of the
// time after the last disturbance, and for enough windows. Enough returns 0 if the fleet is settled long
// enough before, or if the load changes at given times.
func (s Scenario) Enough() time.Duration {
	if !s.steady() {
		return 0
	}
	settling := s.Settling()
	end, needed := time.Duration(0), time.Duration(0)
	for _, d := range append(s.Disturbances(), Disturbance{From: s.Duration}) {
		counted := max(end, s.Warmup)
		needed = max(2*(end+settling)-counted, counted+time.Second)
		for _, l := range s.Limits {
			if l.Kind == lease.KindSliding {
				needed = max(needed, max(end+settling, counted)+WindowsEnough*l.Per)
			}
		}
		if needed <= min(d.From, s.Duration) {
			return 0
		}
		end = max(end, d.Until)
	}
	return (needed + time.Second - 1).Truncate(time.Second)
}

// Stationary reports whether s has no event at a given time, so that shorter runs give the same figures.
func (s Scenario) Stationary() bool {
	for _, g := range s.Groups {
		if len(g.Scale) > 0 {
			return false
		}
	}
	return s.steady() && len(s.Network.Partitions) == 0 && len(s.Redis.Faults) == 0
}

// steady reports whether the load of s never changes at a given time.
func (s Scenario) steady() bool {
	return !slices.ContainsFunc(s.Workloads(), func(w *Workload) bool {
		return w.Kind == Flash || w.Kind == Replay
	})
}

// Workloads returns the workloads of s and of its groups.
func (s *Scenario) Workloads() []*Workload {
	all := []*Workload{&s.Workload}
	for _, g := range s.Groups {
		if g.Workload != nil {
			all = append(all, g.Workload)
		}
	}
	return all
}

// line returns the longest time that a request waits in line.
func (s *Scenario) line() (longest time.Duration) {
	for _, w := range s.Workloads() {
		if w.Verb == VerbWait {
			longest = max(longest, w.Deadline)
		}
	}
	return longest
}

// Settling returns how long a fleet takes to settle, whatever the duration of the run. The bucket fills;
// above the limit, requests spend the burst and the tokens of waiting requests, which takes burst/(load - 1).
// Then leases live twelve times: until they hold as many tokens as the load needs.
func (s Scenario) Settling() time.Duration {
	const lives = 12
	fills, tokens := 0.0, s.hottest()
	for _, l := range s.Limits {
		stock := float64(l.Rate() * s.line().Seconds())
		if !l.Windowed() {
			stock += float64(l.Capacity())
		}
		spent := spends(stock, float64(l.Rate()), tokens, s.Workload.Cost.Mean())
		fills = max(fills, float64(l.Capacity())/l.Rate(), spent)
	}
	fills += float64(lives * s.ttlMost().Seconds())
	return time.Duration(min(fills, DurationMax.Seconds()) * 1e9)
}

// spends returns the seconds after which a demand of tokens per second has spent a stock that refills at
// rate, or is unlikely to spend it. Near the rate, chance decides: the sum of the costs is a random walk.
func spends(stock, rate, tokens, cost float64) float64 {
	away, walk := tokens-rate, stock*stock/(rate*cost)
	if away > 0 {
		late := 1 + float64(2*math.Sqrt(rate*cost/max(stock*away, 1e-9))) // two standard deviations
		return min(late*stock/away, walk)
	}
	return min(walk, rate*cost/(away*away))
}

// Load returns the demand for the most popular key, as a multiple of the tightest limit: +Inf for an
// adversary, 0 for a trace.
func (s Scenario) Load() float64 {
	return s.hottest() / s.LeastRate()
}

// LeastRate returns the rate of the limit with the lowest rate, in tokens per second.
func (s *Scenario) LeastRate() float64 {
	least := math.Inf(1)
	for _, l := range s.Limits {
		least = min(least, l.Rate())
	}
	return least
}

// TopShare returns the most popular key's fraction of the load.
func (s Scenario) TopShare() float64 {
	if s.Keys.Zipf == 0 {
		return 1 / float64(max(1, s.Keys.Count))
	}
	all := 0.0
	for k := range s.Keys.Count {
		all += math.Pow(float64(k+1), -s.Keys.Zipf)
	}
	return 1 / all
}

// hottest returns the demand for the most popular key in tokens per second.
func (s Scenario) hottest() float64 {
	if len(s.Limits) == 0 {
		return 0
	}
	_, tokens := s.asked()
	return float64(tokens * s.TopShare())
}

// RequestsPerS returns the requests per second. An adversary makes as many requests as the limits allow.
func (s Scenario) RequestsPerS() float64 {
	requests, _ := s.asked()
	return requests
}

// asked returns the number of requests per second, and the tokens per second that they request.
func (s Scenario) asked() (requests, tokens float64) {
	shared := len(s.Groups) == 0
	add := func(w *Workload) {
		cost, perS := w.tokens(), 0.0
		switch w.Kind {
		case Adversary:
			limited := Workload{Load: 1, Cost: w.Cost}
			perS, cost = s.RateOf(&limited), math.Inf(1)
		case Replay:
		default:
			perS = s.RateOf(w)
		}
		requests += perS
		if perS > 0 {
			tokens += float64(perS * cost)
		}
	}
	for _, g := range s.Groups {
		if g.Workload != nil {
			add(g.Workload)
		} else {
			shared = true
		}
	}
	if shared {
		add(&s.Workload)
	}
	return requests, tokens
}

// TargetInForce returns the intended length of a key's leases. The limits may shorten policy.target
// (Policy.TargetFor), and a large fleet makes leases longer, up to half of an explicit TTL. With many keys,
// TargetInForce ignores the size of the fleet: any number of processes may use a key. s must have its
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

// TTLInForce returns the TTL of a lease, which a large fleet makes longer unless policy.ttl is set. s must
// have its defaults.
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
