package scenario

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Settles is how long a fleet takes to build its stock, at most the whole run, where s has its
// defaults: a bucket's burst is spent, and leases are taken, given back and expire until they hold
// as much as the load needs.
func (s Scenario) Settles() time.Duration { return min(s.settling(), s.Duration) }

// Stockable is how many tokens the buckets and leases of s can hold, or have on their way, in all: what a
// fleet may reject once, while it starts, and again when it grows.
func (s Scenario) Stockable() int64 {
	config, least := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout), math.Inf(1)
	for _, l := range s.Limits {
		coming := float64(l.Rate() * s.ttlInForce(&config).Seconds())
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

// ttlInForce is T, where the leases of a large fleet are longer than configured.
func (s Scenario) ttlInForce(c *lease.Config) time.Duration {
	if s.Policy.TTL > 0 {
		return c.TTL
	}
	return max(c.TTL, 4*protocol.TargetInForce(c, s.holders()))
}

// Disturbance makes a fleet build its stock once more: a fault, from which it recovers when that is
// over, or growth.
type Disturbance struct {
	From, Until time.Duration
	Fault       bool
}

// Disturbances are those of s, the first one first: the faults of Redis and of the network,
// processes that are stopped or killed at a named time, and processes that are added. A flash is
// none: how often it comes belongs to the load, and what it costs to the ratio.
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

// Enough is how long a run must last, in whole seconds, for half of what counts after the last
// disturbance to be settled: 0 where half of what counts before the first, between two or after the
// last one is, and where the load changes at times of its own.
func (s Scenario) Enough() time.Duration {
	if !s.steady() {
		return 0
	}
	settling := s.settling()
	end, needed := time.Duration(0), time.Duration(0)
	for _, d := range append(s.Disturbances(), Disturbance{From: s.Duration}) {
		counted := max(end, s.Warmup)
		needed = max(2*(end+settling)-counted, counted+time.Second)
		if needed <= min(d.From, s.Duration) {
			return 0
		}
		end = max(end, d.Until)
	}
	return (needed + time.Second - 1).Truncate(time.Second)
}

// Stationary reports whether a shorter run of s shows the same as a longer one: nothing happens at
// a time of its own.
func (s Scenario) Stationary() bool {
	for _, g := range s.Groups {
		if len(g.Scale) > 0 {
			return false
		}
	}
	return s.steady() && len(s.Network.Partitions) == 0 && len(s.Redis.Faults) == 0
}

// steady reports whether the load of no group changes at a time of its own.
func (s Scenario) steady() bool {
	all := []Workload{s.Workload}
	for _, g := range s.Groups {
		if g.Workload != nil {
			all = append(all, *g.Workload)
		}
	}
	return !slices.ContainsFunc(all, func(w Workload) bool {
		return w.Kind == Diurnal || w.Kind == Flash || w.Kind == Replay
	})
}

func (s Scenario) settling() time.Duration {
	const lives = 12
	config := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout)
	fills, ttl := 0.0, s.ttlInForce(&config).Seconds()
	for _, l := range s.Limits {
		fills = max(fills, float64(l.Capacity())/l.Rate())
	}
	return time.Duration(min(fills+float64(lives*ttl), DurationMax.Seconds()) * 1e9)
}
