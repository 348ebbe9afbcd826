// Package view writes the results of the simulator: as aligned text, as JSON, or as one self-contained HTML
// page with charts. Run, Comparison, Sweep and Plan make a Document. Document.Write writes the Document.
// Equal documents give equal bytes. Any goroutine may use a Document while the values in it do not change.
package view

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	html "html/template"
	"io"
	"math"
	"strings"
	text "text/template"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// These constants are the formats of a document.
const (
	FormatTable = "table"
	FormatJSON  = "json"
	FormatHTML  = "html"
)

// Formats lists the formats of a document.
var Formats = []string{FormatTable, FormatJSON, FormatHTML}

// Document is a report in sections that Write formats.
type Document struct {
	Title    string
	Subtitle string
	Verdicts []Verdict
	Headline []Fact // the five figures that most readers read first
	Facts    []Fact // facts that identify the run: seed, hash, replications
	Sections []Section
	Scenario string      // the scenario's file, only on pages
	Command  string      // the command line that repeats the run, only on pages
	Machine  sim.Machine // facts about the machine, at the end
	Data     any         // the value that Write encodes as JSON
}

// Fact is a name and its value.
type Fact struct{ Name, Value string }

// Verdict is a finding in plain words.
type Verdict struct {
	Mood string // Neutral, Good or Bad
	Text string
}

// These constants are the moods of a verdict.
const (
	Neutral = "neutral"
	Good    = "good"
	Bad     = "bad"
)

// Section is a section of a document. The text format omits a section that has neither a table nor code.
type Section struct {
	Title  string
	Text   []string // paragraphs of the section
	Charts []Chart
	Table  *Table
	Code   string
}

func answer(a search.Asked, m sim.Machine, data any, text, command string) Document {
	return Document{
		Title: cmp.Or(a.Scenario, unnamed),
		Facts: []Fact{
			{"replications", fmt.Sprint(a.Reps)},
			{"confidence", Percent(a.Confidence)},
			{"seed", fmt.Sprint(a.Seed)},
			{"hash", a.ScenarioHash},
		},
		Scenario: text, Command: command, Machine: m,
		Data: data,
	}
}

func (d *Document) say(mood, format string, args ...any) {
	d.Verdicts = append(d.Verdicts, Verdict{mood, fmt.Sprintf(format, args...)})
}

func (d *Document) tabulate(title string, t Table, text ...string) {
	d.Sections = append(d.Sections, Section{Title: title, Table: &t, Text: text})
}

var (
	//go:embed page.txt
	textSource string
	//go:embed page.html
	pageSource string

	textTemplate = text.Must(text.New("text").Funcs(text.FuncMap{
		"wrap": func(text string) string { return Wrap(text, lineMax) }, "upper": strings.ToUpper, "line": factLine,
	}).Parse(textSource))
	pageTemplate = html.Must(html.New("page").Funcs(html.FuncMap{"numeric": numeric,
		"units": units}).Parse(pageSource))
)

// Write writes the document in one of Formats. A page refers to no other file, and its
// Content-Security-Policy forbids a browser to load one. Everything in a page except its style and its script
// is escaped text.
func (d Document) Write(w io.Writer, format string) error {
	m := d.Machine
	shown := struct {
		Document
		Style         html.CSS
		Script        html.JS
		Policy, Speed string
	}{
		d, html.CSS(Style), html.JS(Script), pagePolicy,
		fmt.Sprintf("Simulated %s requests in %v, %s per second on this machine.",
			Number(m.Requests), m.Elapsed.Round(time.Millisecond), Number(math.Round(m.RequestsPerS))),
	}
	switch format {
	case FormatTable:
		return textTemplate.Execute(w, shown)
	case FormatJSON: // JSON has no NaN and no infinities
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(d.Data)
	case FormatHTML:
		var b bytes.Buffer
		if err := pageTemplate.Execute(&b, shown); err != nil {
			return fmt.Errorf("view: %w", err)
		}
		_, err := w.Write(bytes.Map(printable, b.Bytes()))
		return err
	}
	return fmt.Errorf("view: there is no format %q", format)
}

func factLine(facts []Fact) string {
	words := make([]string, len(facts))
	for i, f := range facts {
		words[i] = f.Name + " " + f.Value
	}
	return Wrap(strings.Join(words, ", "), lineMax)
}

// numeric formats a number for a cell of a page. A number and its unit stay on one line. The number's
// interval or range has a smaller font, and may stand on the next line.
func numeric(text string) html.HTML {
	at := strings.LastIndexAny(text, "(±")
	if at < 1 {
		return html.HTML(html.HTMLEscapeString(together(text)))
	}
	number, rest := strings.TrimRight(text[:at], " "), text[at:]
	for _, unit := range []string{inPercent, inMillis} {
		if of, after, ok := strings.Cut(rest, unit); ok {
			number, rest = number+unit+after, of
		}
	}
	return html.HTML(html.HTMLEscapeString(together(number)) + " <small>" +
		html.HTMLEscapeString(together(rest)) + "</small>")
}

// units keeps percent signs on the line of their numbers.
func units(text string) string { return strings.ReplaceAll(text, inPercent, together(inPercent)) }
