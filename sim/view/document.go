// Package view shows what the other rooms of the simulator found: as aligned text, as JSON, as CSV,
// or as one self-contained HTML page with charts. Run, Comparison, Sweep and Plan make a Document,
// and Document.Write writes it. Equal documents give equal bytes. Everything here may be used by
// any goroutine, as long as nobody changes the values that it was given.
//
// Files: run.go, compare.go, sweep.go and plan.go what each document says; document.go how it is
// written; table.go, chart.go and run_charts.go its parts; number.go and figures.go how numbers and
// figures are called and written.
package view

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/yuzhi-go/yuzhi/sim"
)

// The formats of a document.
const (
	FormatTable = "table"
	FormatJSON  = "json"
	FormatCSV   = "csv"
	FormatHTML  = "html"
)

// Formats are all formats.
var Formats = []string{FormatTable, FormatJSON, FormatCSV, FormatHTML}

// Document is a report with all that a reader needs beside it.
type Document struct {
	Title    string
	Subtitle string
	Facts    []Fact // what identifies it: seed, hash, replications
	Verdicts []Verdict
	Sections []Section
	Machine  sim.Machine // what another machine would have different, at the end
	Data     any         // what JSON shows
	Rows     [][]string  // what CSV shows, the head first
}

// Fact is a name and its value.
type Fact struct{ Name, Value string }

// Verdict is a finding in plain words.
type Verdict struct {
	Mood Mood
	Text string
}

// Mood is how good a finding is.
type Mood string

// The moods.
const (
	Neutral Mood = "neutral"
	Good    Mood = "good"
	Bad     Mood = "bad"
)

// Section is a part of a document, of which any part may be missing. A section that has neither a
// table nor code, and one that is PageOnly, is not in the text.
type Section struct {
	Title    string
	Text     []string // paragraphs
	Facts    []Fact
	Charts   []TitledChart
	Table    *Table
	Code     string
	PageOnly bool
}

// TitledChart is a chart with its title and, below it, what there is to say about it.
type TitledChart struct {
	Title, Note string
	Chart       Lines
}

// Write writes the document in one of Formats.
func (d Document) Write(w io.Writer, format string) error {
	switch format {
	case FormatTable:
		_, err := io.WriteString(w, d.text())
		return err
	case FormatJSON: // without NaN and the infinities, which JSON does not have
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(d.Data)
	case FormatCSV: // as RFC 4180 has it: lines end with CR LF
		c := csv.NewWriter(w)
		c.UseCRLF = true
		return c.WriteAll(d.Rows)
	case FormatHTML:
		return d.page(w)
	}
	return fmt.Errorf("view: there is no format %q", format)
}

func (d Document) text() string {
	var b strings.Builder
	facts := make([]string, len(d.Facts))
	for i, f := range d.Facts {
		facts[i] = f.Name + " " + f.Value
	}
	fmt.Fprintf(&b, "%s\n%s\n%s\n\n", d.Title, Wrap(strings.Join(facts, ", ")), Wrap(d.Subtitle))
	for _, v := range d.Verdicts {
		fmt.Fprintln(&b, Wrap(v.Text))
	}
	for _, s := range d.Sections {
		if s.PageOnly || s.Table == nil && s.Code == "" {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n\n", strings.ToUpper(s.Title))
		if s.Table != nil {
			b.WriteString(s.Table.String())
		}
		for _, text := range s.Text {
			fmt.Fprintf(&b, "\n%s\n", Wrap(text))
		}
		b.WriteString(s.Code)
	}
	m := d.Machine
	fmt.Fprintf(&b, "\nThis machine simulated %s requests in %v, %s per second.\n",
		Number(float64(m.Requests)), m.Elapsed.Round(time.Millisecond), Number(math.Round(m.RequestsPerS)))
	return b.String()
}

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle template.CSS

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"draw": Lines.picture,
}).Parse(pageText))

// page writes the document as one HTML file without a script, and with nothing that a browser would
// load. Everything in it is text, and escaped, but for the charts, which are drawn here.
func (d Document) page(w io.Writer) error {
	var b bytes.Buffer
	m := d.Machine
	err := pageTemplate.Execute(&b, struct {
		Document
		Style   template.CSS
		Machine []Fact
	}{d, pageStyle, []Fact{
		{"took", m.Elapsed.Round(time.Millisecond).String()},
		{"simulated requests", Number(float64(m.Requests))},
		{"per second", Number(math.Round(m.RequestsPerS))},
		{"at one time", fmt.Sprint(m.Parallel)},
		{"Go", m.GoVersion},
		{"platform", m.Platform},
	}})
	if err != nil {
		return fmt.Errorf("view: %w", err)
	}
	_, err = w.Write(bytes.Map(printable, b.Bytes()))
	return err
}

// printable replaces what neither HTML nor XML can have in it.
func printable(r rune) rune {
	if r == '\n' || r == '\t' || r >= ' ' && r < 0x7f || r >= 0xa0 && r != 0xfffe && r != 0xffff {
		return r
	}
	return utf8.RuneError
}

// figureHead is the head of figureRows.
var figureHead = []string{"what", "figure", "mean", "low", "high", "worst", "worst_seed"}

// figureRows has a line for programs for each figure of something: an algorithm, a point, a policy.
func figureRows(what string, figures []sim.Named) (rows [][]string) {
	for _, f := range figures {
		rows = append(rows, []string{what, f.Name, Raw(f.Mean), Raw(f.Low), Raw(f.High), Raw(f.Worst), fmt.Sprint(f.WorstSeed)})
	}
	return rows
}

// Closing is the end of every page: the scenario that was run, and how to do it again.
func Closing(scenario, command string) []Section {
	return []Section{
		{Title: "Scenario file", Code: scenario, PageOnly: true},
		{
			Title: "How to repeat it",
			Text:  []string{"The same scenario and seed give the same figures on any machine."},
			Code:  command, PageOnly: true,
		},
	}
}

// nameOf is the name of a scenario, or words for one without.
func nameOf(scenario string) string {
	if scenario == "" {
		return "unnamed scenario"
	}
	return scenario
}

// count is a number of things: "1 replication", "3 processes".
func count(n int, thing string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(thing, "s"):
		thing += "es"
	default:
		thing += "s"
	}
	return Number(float64(n)) + " " + thing
}
