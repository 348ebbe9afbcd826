package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/search"
)

// Plan shows a plan for a scenario. The scenario's text and the command line stand at the end. The document's
// JSON is the plan.
func Plan(p search.Plan, text, command string) Document {
	goals := make([]string, len(p.Targets))
	for i, t := range p.Targets {
		goals[i] = goalText(t)
	}
	d := answer(p.Asked, p.Machine, &p, text, command)
	d.Title += ": a plan"
	by := either(p.Reps < 2, "in one replication, which has no interval (see --reps)",
		fmt.Sprintf("each at the pessimistic end of its %s interval", Percent(p.Confidence)))
	d.Subtitle = fmt.Sprintf("Fewest lease calls with %s, %s.", strings.Join(goals, ", "), by)
	v := planView{&p}
	v.judge(&d)
	if p.Chosen != nil {
		d.Headline = headline(p.RequestsPerS, &p.Chosen.Figures)
		v.chosen(&d)
	}
	if p.Miss != nil {
		d.Headline = headline(0, &p.Miss.Closest.Figures)
		d.tabulate(either(p.Verdict == search.Undecided, "So far", "Closest miss"),
			targetTable(p.Miss.Closest.Margins), glossary(v.named()...))
	}
	if len(p.TradeOffs) > 1 || p.Chosen == nil && len(p.TradeOffs) > 0 {
		d.tabulate("Trade-offs", v.tradeOffs(), "Policies that no other one beats in calls and in the targets' "+
			"figures, at least a tenth apart. Each ran on the fresh seeds.")
	}
	if p.Code != "" {
		d.Sections = append(d.Sections, Section{Title: "Go", Code: p.Code})
	}
	return d
}

type planView struct{ *search.Plan }

func goalText(t search.Threshold) string {
	at := either(t.Op == ">=", "at least", "at most")
	return fmt.Sprintf("%s %s %s", t.Figure, at, Value(t.Figure, t.Bound))
}

// policyText describes a policy in one line. With default lengths, leases of a large fleet are longer.
func policyText(p search.Policy) string {
	of := func(isDefault bool) string { return either(isDefault, " (default)", "") }
	text := "target " + p.Target + of(p.DefaultTarget)
	if p.TargetInForce != "" {
		text += " (in force " + p.TargetInForce + ")"
	}
	text += ", ttl " + p.TTL + of(p.DefaultTTL)
	if p.Overcommit > 0 {
		text += ", overcommit " + Number(p.Overcommit)
	}
	if p.CallsPerSecond > 0 {
		text += ", calls_per_second " + Number(p.CallsPerSecond)
	}
	return text
}

func (v planView) chosen(d *Document) {
	confirmed := fmt.Sprintf("Confirmed on %s of %s s, of which the last %s s count, with seed %d, which the "+
		"search did not use.", Count(v.Chosen.Reps, "replication"), Number(v.Chosen.DurationS),
		Number(v.Chosen.DurationS-v.Chosen.WarmupS), v.ConfirmSeed)
	d.tabulate("Targets", targetTable(v.Chosen.Margins), confirmed, glossary(v.named()...))
	if s := v.overLoad(); len(s.Table.Rows) > 1 {
		d.Sections = append(d.Sections, s)
	}
	stress := Table{Columns: []string{"stress"}}
	for _, x := range v.Targets {
		stress.head(column(x.Figure))
	}
	stress.head(column("calls_per_s"))
	stress.Columns = append(stress.Columns, "")
	for _, s := range v.Stress {
		if s.Load > 0 {
			continue
		}
		row := []string{s.Description}
		for _, m := range s.Margins {
			row = append(row, Value(m.Figure, m.Value)+either(m.Meets, "", " !"))
		}
		stress.Add(append(row, Mean("calls_per_s", s.Figures.CallsPerS), judged(s))...)
	}
	if len(stress.Rows) > 0 {
		d.tabulate("Under stress", stress, "The chosen policy on the same seeds, under stress. Rejects by a recurring "+
			"fault are spread over the time between two faults.")
	}
}

func (v planView) overLoad() Section {
	rows := []search.Stress{{Load: v.Load, Grade: v.Chosen.Grade, Description: "the scenario's"}}
	for _, s := range v.Stress {
		if s.Load > 0 {
			rows = append(rows, s)
		}
	}
	slices.SortStableFunc(rows, func(a, b search.Stress) int { return cmp.Compare(a.Load, b.Load) })
	t := Table{Columns: []string{"times the limit"}}
	t.head(column("calls_per_s"), "denied", column("false_reject_ratio"))
	t.Columns = append(t.Columns, "")
	calls := Line{Name: "lease calls", Mark: Dotted}
	denied, wrongly := Line{Name: "denied", Series: Grey, Mark: Dotted}, Line{Name: "denied wrongly", Mark: Dotted}
	for _, s := range rows {
		f := &s.Figures
		part := 1 - f.Admitted.Mean/max(f.Offered.Mean, 1)
		calls.add(s.Load, f.CallsPerS.Mean)
		denied.add(s.Load, 100*part)
		wrongly.add(s.Load, 100*f.FalseRejectRatio.Mean)
		own := s.Description == "the scenario's"
		t.Add(Number(math.Round(s.Load*1000)/1000)+either(own, " ("+s.Description+")", ""),
			Mean("calls_per_s", f.CallsPerS), Percent(math.Round(part*1000)/1000),
			Mean("false_reject_ratio", f.FalseRejectRatio),
			judged(s)+either(limits(f), "", "; nothing has to be denied"))
	}
	x := Axis{Label: "times the limit"}
	return Section{Title: "Over load", Table: &t, Text: []string{"The chosen policy with more and with less load. " +
		"Times the limit: demand for the most popular key outside of a flash crowd, as a multiple of its limit. " +
		"Denied: tokens denied, rightly or not, as a share of the demand."}, Charts: []Chart{
		{Title: "How many lease calls does the fleet make each second?", X: x, Y: Axis{Unit: "calls/s"},
			Lines: []Line{calls}},
		{Title: "How much is denied, and how much of it wrongly?", X: x, Y: Axis{Unit: "%"},
			Lines: []Line{denied, wrongly}},
	}}
}

func judged(s search.Stress) string {
	return either(s.Undecided, "undecided", holds(s.Meets)) + either(s.Must, " (must)", "")
}

func targetTable(margins []search.Margin) Table {
	t := Table{Columns: []string{"target", ">pessimistic", ">margin", ""}}
	for _, m := range margins {
		exact := m.Bound == 0 || m.Op == ">=" && m.Bound == 1 // the margin is no fraction of a tolerance
		margin := either(exact, "", Percent(math.Round(m.Margin*100)/100))
		t.Add(goalText(m.Threshold), Value(m.Figure, m.Value), margin, holds(m.Meets))
	}
	return t
}

func holds(meets bool) string { return either(meets, "holds", "missed") }

func (v planView) named() []string {
	names := []string{"calls_per_s", "false_reject_ratio", "admitted_vs_central"}
	for _, t := range v.Targets {
		if !slices.Contains(names, t.Figure) {
			names = append(names, t.Figure)
		}
	}
	return names
}

// tradeOffs returns a table of the named figures. The table has no column for the bound: either all policies
// keep the bound, or the bound is no target.
func (v planView) tradeOffs() Table {
	names := slices.DeleteFunc(v.named(), func(name string) bool { return name == search.BoundFigure })
	t := Table{Columns: []string{"policy"}, Brief: true}
	for _, name := range names {
		t.head(column(name))
	}
	t.Columns = append(t.Columns, "")
	for i := range v.TradeOffs {
		c := &v.TradeOffs[i]
		row := []string{policyText(c.Policy)}
		for _, name := range names {
			row = append(row, Figure(name, search.FigureOf(&c.Figures, name)))
		}
		says := either(c.Meets, "meets all", "misses")
		if v.Chosen != nil && c.Policy == v.Chosen.Policy {
			says = "chosen"
		}
		t.Add(append(row, says)...)
	}
	return t
}

func (v planView) judge(d *Document) {
	switch v.Verdict {
	case search.Found:
		d.say(Good, "Take %s: %s per second.", policyText(v.Chosen.Policy),
			things(Figure("calls_per_s", v.Chosen.Figures.CallsPerS), "lease call"))
		v.savings(d)
		if f := &v.Chosen.Figures; f.Offered.Mean > 0 && !limits(f) {
			d.say(Neutral, "One central bucket denies nothing at this load, so these rejects say nothing about a "+
				"higher one: see the figures over load.")
		}
		saturation(d, &v.Chosen.Figures)
		if v.BurstWanted > 0 {
			d.say(Neutral, "The figures hold, but the limiter will log that the burst is too small to keep within "+
				"CallsPerSecond, which takes a burst of %s.", Number(v.BurstWanted))
		}
		if v.Given.Policy == v.Chosen.Policy {
			d.say(Neutral, "That is the scenario's own policy.")
		} else {
			d.say(Neutral, "The scenario's own policy (%s) makes %s per second and %s.", policyText(v.Given.Policy),
				things(Figure("calls_per_s", v.Given.Figures.CallsPerS), "lease call"), either(v.Given.Undecided,
					"is undecided", either(v.Given.Meets, "meets the targets too", "does not meet the targets")))
		}
		for _, s := range v.Stress {
			under := either(s.Load > 0, "With "+s.Description, "Under stress ("+s.Description+")")
			if s.Undecided {
				d.say(Neutral, "%s it is undecided whether the targets hold.", under)
			} else if !s.Meets {
				d.say(Neutral, "%s the targets do not hold.", under)
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
		d.say(Neutral, "The trade-offs show what other targets can be met. A larger burst allows longer leases; so do "+
			"--overcommit-max and, for a large fleet, a lower policy.calls_per_second. Ten --reps or more give "+
			"intervals, which more --reps narrow.")
	}
}

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

// excess adds the worst excess above the bound, with and without stress, if the bound is no target.
func (v planView) excess(d *Document) {
	worst := search.Stress{Description: "none", Grade: v.Chosen.Grade}
	for _, s := range v.Stress {
		if s.Figures.BoundExceededBy.Worst > worst.Figures.BoundExceededBy.Worst {
			worst = s
		}
	}
	target := slices.Contains(v.named(), search.BoundFigure)
	if x := worst.Figures.BoundExceededBy.Worst; x > 0 && !target {
		d.say(Bad, "It may exceed the bound, which is not a target here because policy.fallback is not "+
			"deny: in the worst window by %s (stress: %s).", Number(x), worst.Description)
	}
}

func inSeconds(x float64) time.Duration { return time.Duration(x * 1e9) }
