package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

func (v planView) judge(d *Document) {
	switch v.Verdict {
	case search.Found:
		d.say(Good, "Take %s: %s per second.", policyText(v.Chosen.Policy),
			things(Figure("calls_per_s", v.Chosen.Figures.CallsPerS), "lease call"))
		v.savings(d)
		if v.Load > 0 && (v.Load < loadLow || v.Load > loadHigh) {
			d.say(Bad, "The most popular key is asked for %.3g times its limit: is that the load to plan for?", v.Load)
		}
		if f := &v.Chosen.Figures; f.Offered.Mean > 0 && !limits(f) {
			d.say(Neutral, "One central bucket denies nothing at this load, so these rejects say nothing about a "+
				"higher one: see the figures over load.")
		}
		saturation(d, &v.Chosen.Figures)
		v.needs(d)
		if v.Given.Policy == v.Chosen.Policy {
			d.say(Neutral, "That is the scenario's own policy.")
		} else {
			d.say(Neutral, "The scenario's own policy (%s) %s.", policyText(v.Given.Policy),
				either(v.Given.Undecided, "is undecided", either(v.Given.Meets, "meets the targets too",
					"does not meet the targets")))
		}
		for _, s := range v.Stress {
			if s.Undecided {
				d.say(Neutral, "Under stress (%s) it is undecided whether the targets hold.", s.Description)
			} else if !s.Meets {
				d.say(Neutral, "Under stress (%s) the targets do not hold.", s.Description)
			}
		}
		v.excess(d)
	case search.Undecided:
		c := &v.Miss.Closest
		if v.SettlesS > 0 {
			d.say(Bad, "Undecided: at this load the fleet takes %v to settle, longer than plan simulates.",
				inSeconds(math.Round(v.SettlesS)))
		} else {
			d.say(Bad, "Undecided: runs of %v leave open whether the targets hold%s. More --reps narrow the intervals.",
				inSeconds(c.DurationS), either(v.Miss.Stress != "", " under stress ("+v.Miss.Stress+")", ""))
		}
		d.say(Neutral, "The best so far is %s.", policyText(c.Policy))
	case search.Infeasible:
		d.say(Bad, "No tried policy meets the targets.")
		closest := policyText(v.Miss.Closest.Policy)
		if v.Miss.Stress != "" {
			d.say(Bad, "The closest is %s, which fails under stress (%s).", closest, v.Miss.Stress)
		} else {
			d.say(Neutral, "The closest is %s.", closest)
		}
		if v.Miss.Stress == "" && v.meansMeet(&v.Miss.Closest) {
			d.say(Neutral, "Its means meet the targets; the pessimistic ends over its %s do not.%s",
				Count(v.Miss.Closest.Reps, "replication"), either(v.Miss.Closest.Reps < 10,
					" Intervals need --reps 10.", " More --reps narrow intervals, not ranges."))
		} else {
			d.say(Neutral, "The trade-offs show what other targets can be met. A larger burst allows longer "+
				"leases; so do --overcommit-max and, for a large fleet, a lower policy.calls_per_second.")
		}
	case search.Interrupted:
		d.say(Neutral, "Interrupted: nothing is confirmed. The trade-offs come from the search.")
	}
}

// savings advises the user to choose another algorithm if leases save few calls.
func (v planView) savings(d *Document) {
	r, calls := v.RequestsPerS, v.Chosen.Figures.CallsPerS.Mean
	each := things(Number(r), "call") + " per second"
	const instead = "A larger burst, or --overcommit-max, allows longer leases."
	switch {
	case r <= 0:
	case calls > r:
		d.say(Bad, "Leases cost %s more calls than they save: a limiter with a call per request (leasesim compare "+
			"shows central) makes %s and rejects nothing wrongly. %s", Percent(math.Round(100*(calls/r-1))/100), each,
			instead)
	case calls > r/2:
		d.say(Bad, "Leases save little here: a limiter with a call per request makes %s. %s", each, instead)
	}
}

// A load below loadLow never reaches a limit, and a load above loadHigh is an attack or a mistake.
const loadLow, loadHigh = 0.05, 20

// absolute reports whether the target tolerates nothing, so that a margin is no fraction of the tolerance.
func absolute(m search.Margin) bool { return m.Bound == 0 || m.Op == ">=" && m.Bound == 1 }

// excess adds the excess above the bound, of the scenario and of the worst stress, if the bound is no target.
func (v planView) excess(d *Document) {
	over := func(f *sim.Figures) float64 { return f.BoundExceededBy.Worst }
	var by []string
	if x := over(&v.Chosen.Figures); x > 0 {
		by = append(by, Number(x))
	}
	var worst search.Stress
	for _, s := range v.Stress {
		if over(&s.Figures) > over(&worst.Figures) {
			worst = s
		}
	}
	if x := over(&worst.Figures); x > 0 {
		by = append(by, fmt.Sprintf("%s under stress (%s)", Number(x), worst.Description))
	}
	target := slices.ContainsFunc(v.Targets, func(t search.Threshold) bool { return t.Figure == search.BoundFigure })
	if len(by) > 0 && !target {
		d.say(Bad, "It may exceed the bound, which is not a target here because policy.fallback is not "+
			"deny: in the worst window by %s.", strings.Join(by, ", and by "))
	}
}

// meansMeet reports whether the mean figures of a candidate meet all targets.
func (v planView) meansMeet(c *search.Candidate) bool {
	return !slices.ContainsFunc(v.Targets, func(t search.Threshold) bool {
		t.Part = cmp.Or(t.Part, "mean")
		return t.Failure(&sim.Report{Figures: c.Figures}) != ""
	})
}

func inSeconds(x float64) time.Duration { return time.Duration(x * 1e9) }

// needs warns if lease calls keep a shard of Redis too busy.
func (v planView) needs(d *Document) {
	if cpu, most := v.Chosen.Figures.RedisCPU.High, Percent(search.BusyMost); cpu > search.BusyMost {
		d.say(Bad, "The busiest shard of Redis spends up to %.2g cores on them. That is too much (above %s): try more "+
			"shards (leasesim sweep --vary redis.shards=1,2,4,8), or plan with --redis-cpu %s.", cpu, most,
			strings.ReplaceAll(most, " ", ""))
	}
}
