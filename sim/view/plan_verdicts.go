package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// judge says the answer in plain words.
func (v planView) judge(d *Document) {
	if v.CutShort != "" && v.Verdict != search.Interrupted {
		defer d.say(Bad, "The time limit ended the plan in phase %q. A better policy may "+
			"exist%s.", v.CutShort,
			either(v.Chosen != nil && len(v.Stress) == 0, ", and this one has not been tried under "+
				"stress", ""))
	}
	if v.EnoughS > 0 {
		defer d.say(Bad, "%v is too short for this fleet to settle, so one-time rejects, as at the "+
			"start, count "+
			"as permanent. Plan again with --duration %v.", inSeconds(v.DurationS), inSeconds(v.EnoughS))
	}
	switch v.Verdict {
	case search.Found:
		d.say(Good, "Take %s: %s per second.", policyText(v.Chosen.Policy),
			things(Figure("calls_per_s", v.Chosen.Figures.CallsPerS), "lease call"))
		if r, calls := v.RequestsPerS, v.Chosen.Figures.CallsPerS.Mean; r > 0 && calls > r/2 {
			d.say(Bad, "Leases save little here: a limiter with a call per request makes %s per second.",
				things(Number(r), "call"))
		} else if r > 0 {
			d.say(Neutral, "One lease call serves %.3g requests: a limiter with a call per request makes "+
				"%s per second.",
				r/max(calls, r/1e9), things(Number(r), "call"))
		}
		if v.Load > 0 && (v.Load < loadLow || v.Load > loadHigh) {
			d.say(Bad, "The load is %.3g times the limit: is that the load to plan for?", v.Load)
		}
		saturation(d, &v.Chosen.Figures)
		if v.Needs == nil {
			d.say(Bad, "Redis: no time was left to find the number of shards.")
		} else {
			d.say(Neutral, "%s", v.needs())
		}
		if g := v.Grow; g != nil {
			d.say(Neutral, "Under the same load it meets the targets with up to %s%s.", Count(g.Holds,
				"process"),
				v.missed())
		}
		if v.Given.Policy == v.Chosen.Policy {
			d.say(Neutral, "That is the scenario's own policy.")
		} else {
			meets := either(v.Given.Meets, "meets the targets too", "does not meet the targets")
			d.say(Neutral, "The scenario's own policy (%s) %s.", policyText(v.Given.Policy), meets)
		}
		for _, s := range v.Stress {
			if !s.Meets {
				d.say(Neutral, "Under stress (%s) the targets do not hold.", s.Description)
			}
		}
		v.excess(d)
	case search.Infeasible:
		d.say(Bad, "No tried policy meets the targets.")
		closest := policyText(v.Miss.Closest.Policy)
		if v.Miss.Stress != "" {
			d.say(Bad, "The closest is %s, which fails under stress (%s).", closest, v.Miss.Stress)
		} else {
			d.say(Neutral, "The closest is %s.", closest)
		}
		switch {
		case v.Miss.Stress == "" && v.meansMeet(&v.Miss.Closest):
			d.say(Neutral, "Its means meet the targets; the pessimistic ends over its %s do not.%s",
				Count(v.Miss.Closest.Reps, "replication"), either(v.Miss.Closest.Reps < 10,
					" Intervals need --reps 10.", " More --reps narrow intervals, not ranges."))
		default:
			d.say(Neutral, "The trade-offs show what other targets can be met; --overcommit-max allows more policies.")
		}
	case search.Interrupted:
		d.say(Neutral, "Interrupted: nothing is confirmed. The trade-offs come from the search.")
	}
}

// missed says what more processes than the chosen policy holds for miss.
func (v planView) missed() string {
	if v.Grow.Fails == 0 {
		return "; more were not tried"
	}
	m := v.Grow.Miss
	return fmt.Sprintf("; with %s, %s is %s", Number(float64(v.Grow.Fails)), m.Figure, seen(*m))
}

// A load below loadLow never meets a limit, and one above loadHigh is an attack or a mistake.
const loadLow, loadHigh = 0.05, 20

// absolute reports whether the target tolerates nothing, so that nothing is a part of it.
func absolute(m search.Margin) bool { return m.Bound == 0 || m.Op == ">=" && m.Bound == 1 }

// excess says by how much more than the bound is admitted where that is no target: in the scenario,
// and under the stress under which it is most.
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
	target := slices.ContainsFunc(v.Targets,
		func(t search.Threshold) bool { return t.Figure == search.BoundFigure })
	if len(by) > 0 && !target {
		d.say(Bad, "It may exceed the bound, which is not a target here because policy.fallback is not "+
			"deny: in the worst window by %s.", strings.Join(by, ", and by "))
	}
}

// meansMeet reports whether the means of a candidate meet all targets.
func (v planView) meansMeet(c *search.Candidate) bool {
	return !slices.ContainsFunc(v.Targets, func(t search.Threshold) bool {
		t.Part = cmp.Or(t.Part, "mean")
		return t.Failure(&sim.Report{Figures: c.Figures}) != ""
	})
}

func inSeconds(x float64) time.Duration { return time.Duration(x * 1e9) }

// needs says what Redis the answer takes.
func (v planView) needs() string {
	n := v.Needs
	text := fmt.Sprintf("%s spends up to %.2g cores on them. ",
		either(n.Nodes > 1, fmt.Sprintf("The busiest of %d shards of Redis", n.Nodes), "Redis"), n.CPU)
	most := Percent(search.BusyMost)
	switch {
	case n.Least == 0:
		return text + fmt.Sprintf("That is too much (above %s), and more shards would not help. Plan with "+
			"--redis-cpu %s.", most, strings.ReplaceAll(most, " ", ""))
	case n.CPU > search.BusyMost:
		return text + fmt.Sprintf("That is too much (above %s): it takes %s, with %s per second instead "+
			"of %s.",
			most, Count(n.Least, "shard"), things(rough("calls_per_s", n.CallsPerS), "lease call"),
			rough("calls_per_s", v.Chosen.Figures.CallsPerS.Mean))
	case n.Nodes > 1:
		return text + fmt.Sprintf("%s would do, each at most %s busy.", Count(n.Least, "shard"), most)
	}
	return text + "One shard is enough."
}
