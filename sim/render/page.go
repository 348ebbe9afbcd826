package render

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

// Page is one self-contained HTML file: no script, and nothing that a browser would load. Everything in it is text,
// and escaped, but for the charts, which are drawn here.
type Page struct {
	Title    string
	Subtitle string
	Verdicts []Verdict
	Facts    []Fact // what identifies it: seed, hash, replications
	Sections []Section
	Machine  []Fact // what another machine would have different, at the end
}

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

// Fact is a name and its value.
type Fact struct{ Name, Value string }

// Section is a part of a Page: text, then facts, then charts, then a table, then code, of which any may be missing.
type Section struct {
	Title  string
	Text   []string // paragraphs
	Facts  []Fact
	Charts []Titled
	Table  *Table
	Code   string
}

// Titled is a chart with its title and, below, what there is to say about it.
type Titled struct {
	Title string
	Note  string
	Chart Chart
}

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// Write writes the page. Equal pages are written with equal bytes.
func (p Page) Write(w io.Writer) error {
	type drawn struct {
		Titled
		Picture picture
	}
	type section struct {
		Section
		Drawn []drawn
	}
	sections := make([]section, len(p.Sections))
	for i, s := range p.Sections {
		sections[i].Section = s
		for _, c := range s.Charts {
			pic, err := c.Chart.picture()
			if err != nil {
				return fmt.Errorf("%w (chart %q)", err, c.Title)
			}
			sections[i].Drawn = append(sections[i].Drawn, drawn{c, pic})
		}
	}
	var b strings.Builder
	err := pageTemplate.Execute(&b, struct {
		Page
		Style    template.CSS
		Sections []section
	}{p, template.CSS(pageStyle), sections})
	if err != nil {
		return fmt.Errorf("render: %w", err)
	}
	_, err = io.WriteString(w, strings.Map(printable, b.String()))
	return err
}

// printable replaces what neither HTML nor XML can have in it.
func printable(r rune) rune {
	switch {
	case r == '\n' || r == '\t' || r >= ' ' && r < 0x7f || r >= 0xa0 && r != 0xfffe && r != 0xffff:
		return r
	}
	return '\ufffd'
}

// cell is a cell of a table as the page's template wants it.
type cell struct {
	Text  string
	Right bool
}

// Cells are the rows of t, each cell with its column's alignment.
func (t Table) Cells() [][]cell {
	rows := make([][]cell, len(t.Rows))
	for i, row := range t.Rows {
		for k, text := range row[:min(len(row), len(t.Columns))] {
			rows[i] = append(rows[i], cell{text, t.Columns[k].Right})
		}
	}
	return rows
}
