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

// Stockable is how many tokens the buckets and leases of s can hold, or have on their way, in all, and for
// how many requests wait in line before a central bucket: what a fleet may reject once, while it starts, and
// again when it grows.
func (s Scenario) Stockable() int64 {
	config, least, line := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout), math.Inf(1), time.Duration(0)
	for _, w := range s.workloads() {
		if w.Verb == VerbWait {
			line = max(line, w.Deadline)
		}
	}
	for _, l := range s.Limits {
		coming := float64(l.Rate() * (s.ttlInForce(&config) + line).Seconds())
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

// Window is the longest sliding window or calendar period of the limits; 0 where there is none.
func (s Scenario) Window() (longest time.Duration) {
	for _, l := range s.Limits {
		if l.Windowed() {
			longest = max(longest, l.Per)
		}
	}
	return longest
}

// WindowsEnough is how many sliding windows must count. In each one a fleet whose leases report late begins a
// little later than one central bucket does, which shows only when that has added up to more than the pause
// in a window. A calendar's boundaries are everybody's.
const WindowsEnough = 20

// Enough is how long a run must last, in whole seconds, for half of what counts after the last disturbance to
// be settled, and enough windows of it: 0 where that holds for what counts before the first, between two or
// after the last one, and where the load changes at times of its own.
func (s Scenario) Enough() time.Duration {
	if !s.steady() {
		return 0
	}
	settling := s.settling()
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
	return !slices.ContainsFunc(s.workloads(), func(w *Workload) bool {
		return w.Kind == Diurnal || w.Kind == Flash || w.Kind == Replay
	})
}

// workloads are those of all groups.
func (s *Scenario) workloads() []*Workload {
	all := []*Workload{&s.Workload}
	for _, g := range s.Groups {
		if g.Workload != nil {
			all = append(all, g.Workload)
		}
	}
	return all
}

func (s Scenario) settling() time.Duration {
	const lives = 12
	config := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout)
	fills, ttl := 0.0, s.ttlInForce(&config).Seconds()
	for _, l := range s.Limits {
		fills = max(fills, float64(l.Capacity())/l.Rate())
	}
	fills += s.lineFills()
	return time.Duration(min(fills+float64(lives*ttl), DurationMax.Seconds()) * 1e9)
}

// lineFills is how many seconds the line before a central bucket takes to be as long as requests wait, where
// they wait and ask for more than the limits give.
func (s Scenario) lineFills() (longest float64) {
	least := math.Inf(1)
	for _, l := range s.Limits {
		least = min(least, l.Rate()*float64(max(1, s.Keys.Count)))
	}
	if len(s.Limits) == 0 {
		return 0
	}
	for _, w := range s.workloads() {
		if excess := s.RateOf(w)*w.Cost.Mean()/least - 1; w.Verb == VerbWait && excess > 0 {
			longest = max(longest, w.Deadline.Seconds()/excess)
		}
	}
	return longest
}
