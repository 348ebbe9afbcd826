package view

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// Plan shows a plan for a scenario, whose file's text and whose command line stand at the end. JSON
// is the plan itself; CSV has a line per figure of each policy.
func Plan(p search.Plan, text, command string) Document {
	v := planView{&p}
	goals := make([]string, len(p.Targets))
	for i, t := range p.Targets {
		goals[i] = targetText(t)
	}
	return Document{
		Title: nameOf(p.Scenario) + ": a plan",
		Subtitle: fmt.Sprintf("Fewest lease calls with %s, each at the pessimistic end of its %s interval.",
			strings.Join(goals, ", "), Percent(p.Confidence)),
		Facts: []Fact{
			{"hash", p.ScenarioHash},
			{"seed", fmt.Sprint(p.Seed)},
			{"confirmed on seed", fmt.Sprint(p.ConfirmSeed)},
			{"replications", fmt.Sprint(p.Reps)},
			{"confidence", Percent(p.Confidence)},
		},
		Verdicts: v.verdicts(),
		Sections: append(v.sections(), Closing(text, command)...),
		Machine:  p.Machine,
		Data:     &p,
		Rows:     v.rows(),
	}
}

type planView struct{ *search.Plan }

// targetText is a target in words: "false_reject_ratio at most 0.5 %".
func targetText(t search.Target) string {
	word := "at most"
	if t.Floor {
		word = "at least"
	}
	return fmt.Sprintf("%s %s %s", t.Figure, word, Value(t.Figure, t.Bound))
}

// policyText is a policy in a line; an overcommit is named where there is some.
func policyText(p search.Policy) string {
	s := fmt.Sprintf("target %s, ttl %s", p.Target, p.TTL)
	if p.Overcommit > 0 {
		s += ", overcommit " + Number(float64(p.Overcommit))
	}
	return s
}

// verdicts are the answer in plain words.
func (v planView) verdicts() (all []Verdict) {
	say := func(mood Mood, format string, args ...any) {
		all = append(all, Verdict{mood, fmt.Sprintf(format, args...)})
	}
	switch v.Verdict {
	case search.Found:
		say(Good, "Take %s: %s lease calls per second, %s of a core.", policyText(v.Chosen.Policy),
			Interval(v.Chosen.Figures.CallsPerS), Percent(v.Chosen.Figures.RedisCPU.Mean))
		switch {
		case v.Given.Policy == v.Chosen.Policy:
			say(Neutral, "That is the scenario's own policy.")
		case v.Given.Meets:
			say(Neutral, "The scenario's own policy (%s) meets the targets too.", policyText(v.Given.Policy))
		default:
			say(Neutral, "The scenario's own policy (%s) does not meet the targets.", policyText(v.Given.Policy))
		}
		for _, s := range v.Stress {
			if !s.Meets {
				say(Neutral, "Under stress (%s) the targets do not hold.", s.Description)
			}
		}
	case search.Infeasible:
		say(Bad, "No policy that was tried meets the targets.")
		if v.Miss.Stress != "" {
			say(Bad, "The closest is %s, which fails under stress (%s).", policyText(v.Miss.Closest.Policy), v.Miss.Stress)
		} else {
			say(Neutral, "The closest is %s.", policyText(v.Miss.Closest.Policy))
		}
		if v.Miss.RepsNeeded > 0 {
			say(Neutral, "Its means meet the targets: the intervals are too wide. About --reps %d would narrow them enough.", v.Miss.RepsNeeded)
		} else {
			say(Neutral, "The trade-offs show what other targets can be met; --overcommit-max allows more policies.")
		}
	case search.Interrupted:
		say(Neutral, "Interrupted: nothing is confirmed. The trade-offs are what the search had seen.")
	}
	return all
}

// sections are the tables and the code, in the order in which a reader wants them.
func (v planView) sections() (all []Section) {
	if len(v.TradeOffs) > 1 {
		goals := [2]string{"calls_per_s", search.TradedFor(v.Targets)[0].Figure}
		var points, chosen []*sim.Figures
		for i := range v.TradeOffs {
			points = append(points, &v.TradeOffs[i].Figures)
		}
		if v.Chosen != nil {
			chosen = append(chosen, &v.Chosen.Figures)
		}
		all = append(all, tradeOff(goals, "no other policy is better in both", points, "chosen", chosen))
	}
	table := func(title string, t Table, text ...string) {
		all = append(all, Section{Title: title, Table: &t, Text: text})
	}
	if v.Chosen != nil {
		table("Targets", targetTable(v.Chosen.Margins), fmt.Sprintf("Confirmed on %s of %s s with seed %d, which the search has not seen.",
			count(v.Reps, "replication"), Number(v.DurationS), v.ConfirmSeed))
		t := Table{Columns: []string{"figure", ">chosen", ">own policy", "what it is"}}
		given := v.Given.Figures.All()
		for i, f := range v.Chosen.Figures.All() {
			t.Add(f.Name, Figure(f.Name, *f.Figure), Figure(f.Name, *given[i].Figure), About(f.Name))
		}
		table("Figures", t, "On the same seeds as the scenario's own policy.")
		table("Under stress", v.stressTable(), "The chosen policy on the same seeds, in a harder world.")
		for _, s := range v.Stress {
			if s.Forgiven > 0 {
				all[len(all)-1].Text = append(all[len(all)-1].Text, fmt.Sprintf("Without Redis, a fallback of deny rejects about %s of the "+
					"load whatever the policy: false_reject_ratio and admitted_vs_central have that much more room.", Percent(s.Forgiven)))
			}
		}
	}
	if v.Miss != nil {
		table("Closest miss", targetTable(v.Miss.Closest.Margins))
	}
	if len(v.TradeOffs) > 0 {
		table("Trade-offs", v.tradeOffTable(), "Policies that no other one beats in calls and in what the targets ask for, as the search saw them.")
	}
	if v.Code != "" {
		all = append(all, Section{Title: "Go", Code: v.Code})
	}
	return all
}

func targetTable(margins []search.Margin) Table {
	t := Table{Columns: []string{"target", ">pessimistic", ">margin", ""}}
	for _, m := range margins {
		margin := Percent(math.Round(m.Margin*100) / 100) // of which nobody wants decimals
		if m.Figure == search.BoundFigure {
			margin = ""
		}
		t.Add(targetText(m.Target), Value(m.Figure, m.Value), margin, holds(m.Meets))
	}
	return t
}

func holds(meets bool) string {
	if meets {
		return "holds"
	}
	return "missed"
}

func (v planView) stressTable() Table {
	t := Table{Columns: []string{"stress"}}
	for _, x := range v.Targets {
		t.Columns = append(t.Columns, ">"+x.Figure)
	}
	t.Columns = append(t.Columns, ">calls_per_s", "")
	for _, s := range v.Stress {
		row := []string{s.Description}
		for _, m := range s.Margins {
			text := Value(m.Figure, m.Value)
			if !m.Meets {
				text += " !"
			}
			row = append(row, text)
		}
		verdict := holds(s.Meets)
		if s.Must {
			verdict += " (must)"
		}
		t.Add(append(row, Interval(s.Figures.CallsPerS), verdict)...)
	}
	return t
}

// tradeOffTable has calls, what the targets are about, and what everybody asks.
func (v planView) tradeOffTable() Table {
	names := []string{"calls_per_s"}
	add := func(name string) {
		if name != search.BoundFigure && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, t := range v.Targets {
		add(t.Figure)
	}
	add("false_reject_ratio")
	add("admitted_vs_central")
	t := Table{Columns: []string{">target", ">ttl", ">overcommit"}}
	for _, name := range names {
		t.Columns = append(t.Columns, ">"+name)
	}
	t.Columns = append(t.Columns, "")
	for i := range v.TradeOffs {
		c := &v.TradeOffs[i]
		row := []string{c.Policy.Target, c.Policy.TTL, Number(float64(c.Policy.Overcommit))}
		for _, name := range names {
			row = append(row, Figure(name, search.FigureOf(&c.Figures, name)))
		}
		says := "meets all"
		switch {
		case v.Chosen != nil && c.Policy == v.Chosen.Policy:
			says = "chosen"
		case !c.Meets:
			says = "misses"
		}
		t.Add(append(row, says)...)
	}
	return t
}

// rows has a line per figure of each policy.
func (v planView) rows() [][]string {
	rows := [][]string{figureHead}
	add := func(what string, c *search.Candidate) {
		if c != nil {
			rows = append(rows, figureRows(what+": "+policyText(c.Policy), c.Figures.All())...)
		}
	}
	add("chosen", v.Chosen)
	add("given", v.Given)
	if v.Miss != nil {
		add("closest", &v.Miss.Closest)
	}
	for i := range v.TradeOffs {
		add("trade-off", &v.TradeOffs[i])
	}
	return rows
}
