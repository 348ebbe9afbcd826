package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	simreport "github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// difference is the output of diff. Its JSON keys are part of the command's interface.
type difference struct {
	Before     string     `json:"before"` // the hashes of the scenarios
	After      string     `json:"after"`
	Paired     bool       `json:"paired"`
	Confidence float64    `json:"confidence"`
	Changed    []string   `json:"changed"` // the figures that differ beyond noise
	Figures    []changeOf `json:"figures"`
	Alone      []string   `json:"alone,omitempty"` // rivals of one report only, as "before: central"
}

// changeOf is a change of the leases' figure, or of a rival's or a class's.
type changeOf struct {
	Of string `json:"of,omitempty"`
	simreport.Change
}

// known is a mean as exactly as the difference of the two is known.
func (c changeOf) known(mean float64) string {
	half := max(c.Difference.High-c.Difference.Mean, c.Difference.Mean-c.Difference.Low)
	return view.Mean(c.Name, sim.Figure{Mean: mean, Low: mean - half, High: mean + half})
}

func diffCommand() *cobra.Command {
	var out string
	c := command("diff", nil)
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		var all faults
		all.addf(len(args) != 2, "diff takes two reports, not %d", len(args))
		all.addf(out != view.FormatTable && out != view.FormatJSON, "--out is %q, must be table or json", out)
		if all != nil {
			return all[0]
		}
		var reports [2]sim.Report
		for i, path := range args {
			var err error
			if reports[i], err = readReport(path); err != nil {
				return err
			}
		}
		d := differ(&reports[0], &reports[1])
		if out == view.FormatJSON {
			e := json.NewEncoder(c.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(d)
		}
		_, err := io.WriteString(c.OutOrStdout(), d.text(&reports[0], &reports[1]))
		return err
	}
	c.Flags().StringVar(&out, "out", view.FormatTable, "table or json")
	return c
}

// readReport reads what run, compare or replay wrote as JSON.
func readReport(path string) (r sim.Report, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("%w: %w", errUsage, err)
	}
	if syntax := (*json.SyntaxError)(nil); errors.As(json.Unmarshal(text, new(any)), &syntax) {
		return r, fmt.Errorf("%w: %s is not JSON, as --out json writes it: %w", errUsage, path, syntax)
	}
	if err := json.Unmarshal(text, &r); err != nil || r.ScenarioHash == "" || r.Reps < 1 ||
		r.Offered.Values == nil {
		return r, fmt.Errorf("%w: %s is not a report of run, compare or replay, as --out json writes it", errUsage,
			path)
	}
	if r.SchemaVersion != sim.SchemaVersion {
		return r, fmt.Errorf("%w: %s has schema_version %d, this leasesim %d: write it again", errUsage, path,
			r.SchemaVersion, sim.SchemaVersion)
	}
	return r, nil
}

// differ compares the figures that both reports have.
func differ(before, after *sim.Report) difference {
	d := difference{
		Before: before.ScenarioHash, After: after.ScenarioHash, Paired: simreport.Paired(before, after),
		Confidence: before.Confidence, Changed: []string{},
	}
	add := func(of string, b, a []simreport.Named) {
		for _, c := range simreport.Changes(b, a, d.Paired, d.Confidence) {
			d.Figures = append(d.Figures, changeOf{of, c})
			if c.BeyondNoise {
				d.Changed = append(d.Changed, strings.TrimPrefix(of+"."+c.Name, "."))
			}
		}
	}
	add("", before.Figures.All(), after.Figures.All())
	for i := range before.Rivals {
		b := &before.Rivals[i]
		if k := slices.IndexFunc(after.Rivals, func(a sim.RivalReport) bool { return a.Name == b.Name }); k >= 0 {
			add("rival."+b.Name, b.All(), after.Rivals[k].All())
		} else {
			d.Alone = append(d.Alone, "before: "+b.Name)
		}
	}
	for _, a := range after.Rivals {
		if !slices.ContainsFunc(before.Rivals, func(b sim.RivalReport) bool { return a.Name == b.Name }) {
			d.Alone = append(d.Alone, "after: "+a.Name)
		}
	}
	for i := range before.Classes {
		b := &before.Classes[i]
		same := func(a sim.ClassReport) bool { return a.Headroom == b.Headroom }
		if k := slices.IndexFunc(after.Classes, same); k >= 0 {
			add(fmt.Sprintf("headroom %v", b.Headroom), b.All(), after.Classes[k].All())
		}
	}
	return d
}

// text is the difference for people: figures that are 0 in both are left out.
func (d *difference) text(before, after *sim.Report) string {
	var b strings.Builder
	line := func(text string) { b.WriteString(view.Wrap(text, helpMax) + "\n") }
	for i, r := range []*sim.Report{before, after} {
		line(fmt.Sprintf("%-7s %s, hash %s, seed %d, %s of %s s", []string{"before", "after"}[i], r.Scenario,
			r.ScenarioHash, r.Seed, view.Count(r.Reps, "replication"), view.Number(r.DurationS)))
	}
	how := "The seeds are the same: differences are taken replication by replication."
	if !d.Paired {
		how = "The seeds or their number differ: each side has noise of its own."
	}
	if !simreport.TellNoise(before.Reps, after.Reps, d.Paired) {
		how = "So few replications cannot tell a difference from noise: take --reps 6 or more."
	}
	line(how)
	for _, alone := range d.Alone {
		line("Only " + alone)
	}
	b.WriteString("\n")
	switch n := len(d.Changed); n {
	case 0:
		b.WriteString("No figure differs beyond noise.\n")
	case 1:
		b.WriteString("1 figure differs beyond noise, marked *.\n")
	default:
		fmt.Fprintf(&b, "%d figures differ beyond noise, marked *.\n", n)
	}
	t, of := view.Table{}, ""
	flush := func() {
		if len(t.Rows) > 0 {
			b.WriteString("\n" + t.String())
		}
		t = view.Table{Columns: strings.Split("figure,>before,>after,>difference,*", ",")}
		if of != "" {
			t.Columns[0] = of
		}
	}
	flush()
	for _, c := range d.Figures {
		if c.Of != of {
			of = c.Of
			flush()
		}
		if c.Before == 0 && c.After == 0 {
			continue
		}
		d, mark := c.Difference, ""
		if c.BeyondNoise {
			mark = "*"
		}
		off := sim.Figure{Mean: d.Mean, Low: d.Low, High: d.High, Range: d.Range}
		t.Add(c.Name, c.known(c.Before), c.known(c.After), view.Figure(c.Name, off), mark)
	}
	flush()
	return b.String()
}
