package scenario

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Settles is how long a fleet takes to build its stock, at most the whole run, where s has its
// defaults: a bucket's burst is spent, and leases are taken, given back and expire until they hold
// as much as the load needs.
func (s Scenario) Settles() time.Duration { return min(s.Settling(), s.Duration) }

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
		coming := float64(l.Rate() * (s.TTLInForce() + line).Seconds())
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

// Settling is how long a fleet takes to settle, however long the run is. A bucket fills, or its burst and the
// line of those that wait are spent, which takes burst/(load - 1) above the limit; then leases live some
// times.
func (s Scenario) Settling() time.Duration {
	const lives = 12
	line, fills := time.Duration(0), 0.0
	for _, w := range s.workloads() {
		if w.Verb == VerbWait {
			line = max(line, w.Deadline)
		}
	}
	tokens := s.hottest()
	for _, l := range s.Limits {
		stock := float64(l.Rate() * line.Seconds())
		if !l.Windowed() {
			stock += float64(l.Capacity())
		}
		fills = max(fills, float64(l.Capacity())/l.Rate(), spends(stock, l.Rate(), tokens, s.Workload.Cost.Mean()))
	}
	fills += float64(lives * s.TTLInForce().Seconds())
	return time.Duration(min(fills, DurationMax.Seconds()) * 1e9)
}

// spends is how many seconds a stock of tokens takes to be spent, or to show that it is not, by requests for
// that many tokens a second. Near the rate chance decides: a sum of costs strays like a random walk.
func spends(stock, rate, tokens, cost float64) float64 {
	away, walk := tokens-rate, stock*stock/(rate*cost)
	if away > 0 {
		late := 1 + float64(2*math.Sqrt(rate*cost/max(stock*away, 1e-9))) // two standard deviations
		return min(late*stock/away, walk)
	}
	return min(walk, rate*cost/(away*away))
}

// Load is how many times its limit the most popular key is asked for; +Inf where an adversary asks, and 0
// where a trace does.
func (s Scenario) Load() float64 {
	least := math.Inf(1)
	for _, l := range s.Limits {
		least = min(least, l.Rate())
	}
	return s.hottest() / least
}

// TopShare is the most popular key's part of the load.
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

// hottest is how many tokens of the most popular key are asked for each second.
func (s Scenario) hottest() float64 {
	if len(s.Limits) == 0 {
		return 0
	}
	_, tokens := s.asked()
	return tokens * s.TopShare()
}

// RequestsPerS is how many requests there are each second. Those of an adversary are as many as the limits
// allow.
func (s Scenario) RequestsPerS() float64 {
	requests, _ := s.asked()
	return requests
}

// asked is how many requests there are each second, and for how many tokens.
func (s Scenario) asked() (requests, tokens float64) {
	shared, processes := false, 0
	add := func(w *Workload, processes int) {
		cost, perS := w.Cost.Mean(), 0.0
		if !w.Actual.IsZero() {
			cost = w.Actual.Mean()
		}
		switch w.Kind {
		case Adversary:
			limited := Workload{Load: 1, Cost: w.Cost}
			perS, cost = s.RateOf(&limited), math.Inf(1)
		case Replay:
		case Closed:
			perS = float64(processes*w.Clients) / max(w.Think.Mean()/1e9, 1e-3)
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
			add(g.Workload, g.Count)
		} else {
			shared, processes = true, processes+g.Count
		}
	}
	if shared || len(s.Groups) == 0 {
		add(&s.Workload, processes)
	}
	return requests, tokens
}
