package planner

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/render"
)

// View is a plan with what a reader needs beside it.
type View struct {
	Plan    Plan
	Text    string // of the scenario's file
	Command string // the command line that repeats it
}

// Write writes the plan in one of render.Formats. JSON is the plan itself; CSV has a line per policy.
func (v View) Write(w io.Writer, format string) error {
	switch format {
	case render.FormatTable:
		return v.table(w)
	case render.FormatJSON:
		return render.WriteJSON(w, &v.Plan)
	case render.FormatCSV:
		return v.csv(w)
	case render.FormatHTML:
		return v.page().Write(w)
	}
	return fmt.Errorf("planner: there is no format %q", format)
}

// table writes the same sections as the page, as text.
func (v View) table(w io.Writer) error {
	p := &v.Plan
	var b strings.Builder
	fmt.Fprintf(&b, "%s  (hash %s, seed %d)\n%s\n", render.Heading(p.Scenario), p.ScenarioHash, p.Seed, render.Wrap(p.subtitle()))
	for _, verdict := range p.verdicts() {
		fmt.Fprintf(&b, "\n%s\n", render.Wrap(verdict.Text))
	}
	for _, s := range p.sections() {
		fmt.Fprintf(&b, "\n%s\n", strings.ToUpper(s.Title))
		for _, text := range s.Text {
			fmt.Fprintln(&b, render.Wrap(text))
		}
		if s.Table != nil {
			b.WriteByte('\n')
			if err := s.Table.Write(&b); err != nil {
				return err
			}
		}
		for i, note := range s.Facts {
			if i == 0 {
				b.WriteString("\nThe closed forms:\n")
			}
			fmt.Fprintln(&b, render.Wrap("  "+note.Name+": "+note.Value))
		}
		if s.Code != "" {
			fmt.Fprintf(&b, "\n%s", s.Code)
		}
	}
	m := render.Machine(p.Machine)
	fmt.Fprintf(&b, "\nThis machine simulated %s requests in %s, %s per second.\n", m[1].Value, m[0].Value, m[2].Value)
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *Plan) subtitle() string {
	goals := make([]string, len(p.Targets))
	for i, t := range p.Targets {
		goals[i] = t.String()
	}
	return fmt.Sprintf("Fewest lease calls with %s, each at the pessimistic end of its %s interval.", strings.Join(goals, ", "), render.Percent(p.Confidence))
}

// String is the target in words: "false_reject_ratio at most 0.5 %".
func (t Target) String() string {
	word := "at most"
	if t.Floor {
		word = "at least"
	}
	return fmt.Sprintf("%s %s %s", t.Figure, word, render.Value(t.Figure, t.Bound))
}

// String is the policy in a line, without what most do without.
func (p Policy) String() string {
	s := fmt.Sprintf("target %s, ttl %s, burst %s", p.Target, p.TTL, render.Number(float64(p.Burst)))
	if p.Overcommit > 0 {
		s += ", overcommit " + render.Number(float64(p.Overcommit))
	}
	return s
}

// verdicts are the answer in plain words.
func (p *Plan) verdicts() (all []render.Verdict) {
	say := func(mood render.Mood, format string, args ...any) {
		all = append(all, render.Verdict{Mood: mood, Text: fmt.Sprintf(format, args...)})
	}
	switch p.Verdict {
	case Found:
		say(render.Good, "Take %s: %s lease calls per second, %s of a core.", p.Chosen.Policy,
			render.Interval(p.Chosen.Figures.CallsPerS), render.Percent(p.Chosen.Figures.RedisCPU.Mean))
		p.compareGiven(say)
		for _, s := range p.Stress {
			note := ""
			if s.Forgiven > 0 {
				note = fmt.Sprintf(" Under deny about that much is rejected whatever the policy: false_reject_ratio and admitted_vs_central have %s more room here.",
					render.Percent(s.Forgiven))
			}
			if s.Meets {
				say(render.Good, "Under stress (%s) the targets hold.%s", s.Description, note)
			} else {
				say(render.Neutral, "Under stress (%s) they do not: %s.%s", s.Description, missed(s.Margins), note)
			}
		}
		if b := p.Binding; b != nil {
			say(render.Neutral, "%s", b.sentence(p.Chosen))
		}
		if p.TargetCap != "" {
			say(render.Neutral, "The burst caps leases at %s, in which the full rate uses a quarter of it: --burst-max lets the search try longer ones.", p.TargetCap)
		}
	case Infeasible:
		say(render.Bad, "No policy that was tried meets the targets.")
		p.Miss.say(say)
	case Interrupted:
		say(render.Neutral, "Interrupted: nothing is confirmed. The trade-offs are what the search had seen.")
	}
	return all
}

// compareGiven says how the scenario's own policy does.
func (p *Plan) compareGiven(say func(render.Mood, string, ...any)) {
	given := p.Given
	switch {
	case given.Policy == p.Chosen.Policy:
		say(render.Neutral, "That is the scenario's own policy.")
	case !given.Meets:
		say(render.Neutral, "The scenario's own policy (%s) does not meet the targets: %s.", given.Policy, missed(given.Margins))
	default:
		d := given.Differences["calls_per_s"]
		more, f := "more", sim.Figure{Mean: d.Mean, Low: d.Low, High: d.High}
		if d.Mean < 0 {
			more, f = "fewer", sim.Figure{Mean: -d.Mean, Low: -d.High, High: -d.Low}
		}
		say(render.Neutral, "The scenario's own policy (%s) meets the targets too, with %s calls per second %s.",
			given.Policy, render.Interval(f), more)
	}
}

// missed lists the targets that are not met.
func missed(margins []Margin) string {
	var parts []string
	for _, m := range margins {
		if !m.Meets {
			parts = append(parts, m.sentence())
		}
	}
	return strings.Join(parts, ", ")
}

func (m Margin) sentence() string {
	word := "at most"
	if m.Floor {
		word = "at least"
	}
	text := fmt.Sprintf("%s is %s, must be %s %s", m.Figure, render.Value(m.Figure, m.Value), word, render.Value(m.Figure, m.Bound))
	if m.Clamped {
		text += " (too few replications to say more)"
	}
	return text
}

func (b *Binding) sentence(chosen *Candidate) string {
	left := wholePercent(b.Margin.Margin)
	r := b.Relaxed
	if r == nil {
		return fmt.Sprintf("The nearest target is %s, with %s of what it tolerates left. Nothing that was tried gains by moving it.", b.Figure, left)
	}
	text := fmt.Sprintf("The target that binds is %s, with %s of what it tolerates left.", b.Figure, left)
	return fmt.Sprintf("%s With %s, %s would do: %s calls per second instead of %s, and %s wrongly rejected.", text, r.Target, r.Policy,
		render.Number(r.CallsPerS.Mean), render.Number(chosen.Figures.CallsPerS.Mean), render.Percent(r.FalseRejectRatio.Mean))
}

// wholePercent is for margins, of which nobody wants decimals.
func wholePercent(x float64) string { return render.Percent(math.Round(x*100) / 100) }

// say tells how near it was, and what would help.
func (m *Miss) say(say func(render.Mood, string, ...any)) {
	say(render.Neutral, "The closest is %s.", m.Closest.Policy)
	for _, x := range m.Missed {
		say(render.Bad, "There %s.", x.sentence())
	}
	if m.Stress != "" && len(m.Missed) == 0 {
		say(render.Bad, "It meets them, but not under stress (%s).", m.Stress)
	}
	if m.RepsNeeded > 0 {
		say(render.Neutral, "Its means meet the targets: the intervals are too wide. About --reps %d would narrow them enough.", m.RepsNeeded)
	}
	for _, r := range m.Relaxed {
		say(render.Neutral, "With %s it would be feasible: %s, %s calls per second.", r.Target, r.Policy, render.Number(r.CallsPerS.Mean))
	}
	for _, l := range m.Levers {
		say(render.Neutral, "With --%s-max %d it would be feasible: %s, %s calls per second.", l.Name, l.Value, l.Candidate.Policy, render.Number(l.Candidate.Figures.CallsPerS.Mean))
	}
	if m.RepsNeeded == 0 && len(m.Relaxed)+len(m.Levers) == 0 {
		say(render.Neutral, "No single target, and neither overcommit nor burst within what was tried, makes it feasible.")
	}
}

// csv writes one line per policy.
func (v View) csv(w io.Writer) error {
	p := &v.Plan
	head := []string{"what", "target", "ttl", "overcommit", "burst", "seed", "reps", "duration_s", "meets"}
	var empty sim.Figures
	for _, f := range empty.All() {
		head = append(head, f.Name+".mean", f.Name+".low", f.Name+".high", f.Name+".worst")
	}
	var rows [][]string
	add := func(what string, c *Candidate) {
		if c == nil {
			return
		}
		row := []string{what, c.Policy.Target, c.Policy.TTL, fmt.Sprint(c.Policy.Overcommit), fmt.Sprint(c.Policy.Burst),
			fmt.Sprint(c.Seed), fmt.Sprint(c.Reps), render.Raw(c.DurationS), fmt.Sprint(c.Meets)}
		for _, f := range c.Figures.All() {
			row = append(row, render.Raw(f.Mean), render.Raw(f.Low), render.Raw(f.High), render.Raw(f.Worst))
		}
		rows = append(rows, row)
	}
	add("chosen", p.Chosen)
	add("given", p.Given)
	if p.Miss != nil {
		add("closest", &p.Miss.Closest)
		for i := range p.Miss.Levers {
			add(p.Miss.Levers[i].Name, &p.Miss.Levers[i].Candidate)
		}
	}
	for i := range p.TradeOffs {
		add("trade_off", &p.TradeOffs[i])
	}
	return render.WriteCSV(w, head, rows)
}

// figuresShown are those in tables of policies: calls, what the targets are about, and what everybody asks.
func (p *Plan) figuresShown() []string {
	names := []string{"calls_per_s"}
	for _, t := range p.Targets {
		if t.Figure != boundFigure && !slices.Contains(names, t.Figure) {
			names = append(names, t.Figure)
		}
	}
	for _, name := range []string{"false_reject_ratio", "admitted_vs_central"} {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
