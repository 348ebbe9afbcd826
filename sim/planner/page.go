package planner

import (
	"fmt"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/render"
	"github.com/yuzhi-go/yuzhi/sim/sweep"
)

// page is the plan with a picture of the trade-off.
func (v View) page() render.Page {
	p := &v.Plan
	sections := p.sections()
	if chart, ok := p.tradeOffChart(); ok {
		sections = append([]render.Section{chart}, sections...)
	}
	if v.Text != "" {
		sections = append(sections, render.Section{Title: "Scenario file", Code: v.Text})
	}
	if v.Command != "" {
		sections = append(sections, render.Section{
			Title: "How to repeat it",
			Text:  []string{fmt.Sprintf("The same scenario (hash %s), targets and seed give the same plan on any machine.", p.ScenarioHash)},
			Code:  v.Command,
		})
	}
	return render.Page{
		Title:    render.Heading(p.Scenario) + ": a plan",
		Subtitle: p.subtitle(),
		Verdicts: p.verdicts(),
		Facts: []render.Fact{
			{Name: "scenario", Value: render.Heading(p.Scenario)},
			{Name: "hash", Value: p.ScenarioHash},
			{Name: "seed", Value: fmt.Sprint(p.Seed)},
			{Name: "confirmed on seed", Value: fmt.Sprint(p.ConfirmSeed)},
			{Name: "replications", Value: fmt.Sprint(p.Reps)},
			{Name: "confidence", Value: render.Percent(p.Confidence)},
			{Name: "schema", Value: fmt.Sprint(p.SchemaVersion)},
		},
		Sections: sections,
		Machine:  render.Machine(p.Machine),
	}
}

// sections are the tables and the code, in the order in which a reader wants them.
func (p *Plan) sections() (all []render.Section) {
	add := func(title, text string, t *render.Table, code string) {
		s := render.Section{Title: title, Table: t, Code: code}
		if text != "" {
			s.Text = []string{text}
		}
		all = append(all, s)
	}
	if p.Chosen != nil {
		add("Targets", fmt.Sprintf("Confirmed on %s of %s s with seed %d, which the search has not seen.", render.Count(p.Reps, "replication"), render.Number(p.DurationS), p.ConfirmSeed),
			p.targetTable(p.Chosen.Margins), "")
		add("Figures", "The simulation beside a closed form, where there is one, and beside the scenario's own policy on the same seeds.", p.figureTable(), "")
		all[len(all)-1].Facts = p.closedForms()
		add("Under stress", "The same policy, the same seeds, a harder world.", p.stressTable(), "")
	}
	if p.Miss != nil {
		add("Closest miss", "", p.targetTable(p.Miss.Closest.Margins), "")
	}
	if len(p.TradeOffs) > 0 {
		text := "Policies that no other one beats in calls and in what the targets ask for, as the search saw them."
		if p.Chosen != nil {
			text += " Δ is from the chosen policy, paired by replication."
		}
		add("Trade-offs", text, p.tradeOffTable(), "")
	}
	if p.Code != "" {
		add("Go", "", nil, p.Code)
		add("Scenario file", "", nil, p.YAML)
	}
	add("How it was found", "", p.phaseTable(), "")
	return all
}

func (p *Plan) targetTable(margins []Margin) *render.Table {
	t := &render.Table{Columns: []render.Column{
		render.Left("target"), render.Right("bound"), render.Right("pessimistic"), render.Right("margin"), render.Left(""),
	}}
	for _, m := range margins {
		word, margin := "≤ ", wholePercent(m.Margin)
		if m.Floor {
			word = "≥ "
		}
		if m.Figure == boundFigure {
			margin = ""
		}
		holds := "holds"
		if !m.Meets {
			holds = "missed"
		}
		if m.Clamped {
			holds += ": too few replications"
		}
		if m.Margin < -1 && m.Figure != boundFigure {
			margin = "below -100 %"
		}
		t.Add(m.Figure, word+render.Value(m.Figure, m.Bound), render.Value(m.Figure, m.Value), margin, holds)
	}
	return t
}

func (p *Plan) figureTable() *render.Table {
	t := &render.Table{Columns: []render.Column{
		render.Left("figure"), render.Right("simulated"), render.Right("closed form"), render.Right("own policy"),
	}}
	given := p.Given.Figures.All()
	for i, f := range p.Chosen.Figures.All() {
		form := ""
		for _, e := range p.Estimates {
			if e.Figure == f.Name {
				form = fmt.Sprintf("%s to %s", render.Value(f.Name, e.Low), render.Value(f.Name, e.High))
			}
		}
		t.Add(f.Name, render.Figure(f.Name, *f.Figure), form, render.Figure(f.Name, *given[i].Figure))
	}
	return t
}

// closedForms are the formulas of the table of figures, as footnotes.
func (p *Plan) closedForms() (notes []render.Fact) {
	for _, e := range p.Estimates {
		notes = append(notes, render.Fact{Name: e.Figure, Value: e.Formula})
	}
	return notes
}

func (p *Plan) stressTable() *render.Table {
	t := &render.Table{Columns: []render.Column{render.Left("stress")}}
	for _, x := range p.Targets {
		t.Columns = append(t.Columns, render.Right(x.Figure))
	}
	t.Columns = append(t.Columns, render.Right("calls_per_s"), render.Left(""))
	for _, s := range p.Stress {
		row := []string{s.Description}
		for _, m := range s.Margins {
			text := render.Value(m.Figure, m.Value)
			if !m.Meets {
				text += " !"
			}
			row = append(row, text)
		}
		holds := "holds"
		if !s.Meets {
			holds = "missed"
		}
		if s.Must {
			holds += " (must)"
		}
		t.Add(append(row, render.Interval(s.Figures.CallsPerS), holds)...)
	}
	return t
}

func (p *Plan) tradeOffTable() *render.Table {
	names := p.figuresShown()
	t := &render.Table{Columns: []render.Column{render.Right("target"), render.Right("ttl"), render.Right("overcommit"), render.Right("burst")}}
	for _, name := range names {
		t.Columns = append(t.Columns, render.Right(name))
	}
	if p.Chosen != nil {
		t.Columns = append(t.Columns, render.Right("Δ calls_per_s"))
	}
	t.Columns = append(t.Columns, render.Left(""))
	for i := range p.TradeOffs {
		c := &p.TradeOffs[i]
		row := []string{c.Policy.Target, c.Policy.TTL, render.Number(float64(c.Policy.Overcommit)), render.Number(float64(c.Policy.Burst))}
		for _, name := range names {
			row = append(row, render.Figure(name, sweep.FigureOf(&c.Figures, name)))
		}
		says := "meets all"
		if !c.Meets {
			says = "misses"
		}
		if p.Chosen != nil {
			d, ok := c.Differences["calls_per_s"]
			text := ""
			if c.Policy == p.Chosen.Policy {
				says = "chosen"
			} else if ok {
				text = render.Interval(sim.Figure{Mean: d.Mean, Low: d.Low, High: d.High})
			}
			row = append(row, text)
		}
		t.Add(append(row, says)...)
	}
	return t
}

func (p *Plan) phaseTable() *render.Table {
	t := &render.Table{Columns: []render.Column{render.Left("phase"), render.Right("policies"), render.Right("replications"), render.Right("of")}}
	for _, x := range p.Phases {
		t.Add(x.Name, fmt.Sprint(x.Candidates), fmt.Sprint(x.Reps), render.Number(x.DurationS)+" s")
	}
	return t
}

// tradeOffChart draws the trade-offs: calls against the first figure that a target bounds.
func (p *Plan) tradeOffChart() (render.Section, bool) {
	goals := objectives(p.Targets)
	if len(p.TradeOffs) < 2 {
		return render.Section{}, false
	}
	name, scale := goals[1].Figure, 1.0
	label := name
	if strings.HasSuffix(render.Value(name, 0), "%") {
		scale, label = 100, name+", in percent"
	}
	line := render.Line{Name: "no other policy is better in both", Points: true}
	chosen := render.Line{Name: "chosen", Shade: 1, Points: true}
	for i := range p.TradeOffs {
		f := &p.TradeOffs[i].Figures
		line.X = append(line.X, f.CallsPerS.Mean)
		line.Y = append(line.Y, float64(sweep.FigureOf(f, name).Mean*scale))
	}
	lines := []render.Line{line}
	if p.Chosen != nil {
		f := &p.Chosen.Figures
		chosen.X, chosen.Y = []float64{f.CallsPerS.Mean}, []float64{float64(sweep.FigureOf(f, name).Mean * scale)}
		lines = append(lines, chosen)
	}
	chart := render.Lines{XLabel: "lease calls per second", YLabel: label, Lines: lines, FromZero: !goals[1].Max}
	return render.Section{Title: "What calls buy", Charts: []render.Titled{{Title: name + " against calls", Chart: chart}}}, true
}
