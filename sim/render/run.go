package render

import (
	"fmt"
	"io"
	"strings"
)

// table writes the figures, and in plain words what they mean.
func (r Result) table(w io.Writer) error {
	var b strings.Builder
	r.head(&b)
	if err := r.figures().Write(&b); err != nil {
		return err
	}
	b.WriteString("\n" + Wrap(Bases) + "\n")
	if n := len(r.Report.Rivals); n > 0 {
		fmt.Fprintf(&b, "\nThe figures of %s are in leasesim compare, and in --out json, csv and html.\n", Count(n, "rival"))
	}
	r.foot(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// head is what stands above a table of a run.
func (r Result) head(b *strings.Builder) {
	rep := &r.Report
	fmt.Fprintf(b, "%s  (hash %s, seed %d)\n%s\n\n", Heading(rep.Scenario), rep.ScenarioHash, rep.Seed, Wrap(r.subtitle()))
}

// foot is what stands below a table of a run.
func (r Result) foot(b *strings.Builder) {
	b.WriteByte('\n')
	for _, v := range r.verdicts() {
		fmt.Fprintln(b, Wrap(v.Text))
	}
	m := r.Report.Machine
	fmt.Fprintf(b, "\nThis machine simulated %s requests in %s, %s per second.\n",
		Number(float64(m.Requests)), Machine(m)[0].Value, Machine(m)[2].Value)
}

// figures is the table of all figures.
func (r Result) figures() Table {
	t := Table{Columns: []Column{
		Left("figure"), Right("mean ± " + Percent(r.Report.Confidence)), Right("worst"), Right("of seed"), Left("what it is"),
	}}
	if r.Report.Reps < 2 {
		t.Columns[1].Name = "value"
	}
	for _, f := range r.Report.Figures.All() {
		t.Add(f.Name, Figure(f.Name, *f.Figure), Value(f.Name, f.Worst), fmt.Sprint(f.WorstSeed), About(f.Name))
	}
	return t
}

// csv writes one line per figure.
func (r Result) csv(w io.Writer) error {
	var rows [][]string
	for _, f := range r.Report.Figures.All() {
		rows = append(rows, []string{f.Name, Raw(f.Mean), Raw(f.Low), Raw(f.High), Raw(f.Worst), fmt.Sprint(f.WorstSeed)})
	}
	for i := range r.Report.Rivals {
		rival := &r.Report.Rivals[i]
		for _, f := range rival.All() {
			rows = append(rows, []string{"rival." + rival.Name + "." + f.Name, Raw(f.Mean), Raw(f.Low), Raw(f.High), Raw(f.Worst), fmt.Sprint(f.WorstSeed)})
		}
	}
	for _, x := range []struct {
		name string
		n    int
	}{{"reps", r.Report.Reps}, {"reps_asked", r.Report.RepsAsked}} {
		n := fmt.Sprint(x.n)
		rows = append(rows, []string{x.name, n, n, n, n, ""})
	}
	return WriteCSV(w, []string{"name", "mean", "low", "high", "worst", "worst_seed"}, rows)
}

// page is the report as a page.
func (r Result) page() Page {
	sections := []Section{r.timeSection()}
	if len(r.Report.Members) > 1 {
		sections = append(sections, r.shareSection())
	}
	figures := r.figures()
	sections = append(sections, Section{
		Title: "Figures",
		Text:  []string{"Each is over the replications: the mean with its confidence interval, and the worst of all replications with its seed: with that --seed and --reps 1 the same comes again.", Bases},
		Table: &figures,
	})
	if len(r.Report.Rivals) > 0 {
		sections = append(sections, r.rivalSections()...)
	}
	return r.pageOf(Heading(r.Report.Scenario), append(sections, r.closing()...))
}

// pageOf is a page about r.
func (r Result) pageOf(title string, sections []Section) Page {
	return Page{
		Title:    title,
		Subtitle: strings.TrimSpace(r.Scenario.Description + "\n" + r.subtitle()),
		Verdicts: r.verdicts(),
		Facts:    r.identity(),
		Sections: sections,
		Machine:  Machine(r.Report.Machine),
	}
}
