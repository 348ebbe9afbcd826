package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table is a table of texts. ">" before a column's name aligns the column to the right, as for numbers. "?"
// before a name limits the column to pages. A row may have fewer cells than the table has columns.
type Table struct {
	Columns []string
	Rows    [][]string
	Brief   bool // the text has the means of figures, without their intervals and ranges
}

// spread matches the interval or the range after the mean of a figure.
var spread = regexp.MustCompile(` ± [^ )]+| \([^()]*\.\.[^()]*\)`)

// Means returns t with the means of figures.
func (t *Table) Means() *Table {
	means := &Table{Columns: t.Columns}
	for _, row := range t.Rows {
		cells := slices.Clone(row)
		for i, cell := range cells {
			cells[i] = spread.ReplaceAllString(cell, "")
		}
		means.Add(cells...)
	}
	return means
}

// Add appends a row of cells.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

func (t *Table) head(names ...string) {
	for _, name := range names {
		t.Columns = append(t.Columns, ">"+name)
	}
}

// Cell is a table cell with its alignment.
type Cell struct {
	Text  string
	Right bool
}

// Cells returns the head and the rows, without cells beyond the last column.
func (t *Table) Cells() [][]Cell {
	cells := make([][]Cell, 1+len(t.Rows))
	for k, name := range t.Columns {
		text, right := strings.CutPrefix(strings.TrimPrefix(name, "?"), ">")
		cells[0] = append(cells[0], Cell{text, right})
		for i, row := range t.Rows {
			if k < len(row) {
				cells[i+1] = append(cells[i+1], Cell{row[k], right})
			}
		}
	}
	return cells
}

// String returns the table as aligned text, with two spaces between columns and a line under the head,
// without the columns for pages.
func (t *Table) String() string {
	if t.Brief {
		t = t.Means()
	}
	rows, widths := t.Cells(), make([]int, len(t.Columns))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	var b strings.Builder
	for k, row := range rows {
		line, rule := "", ""
		for i, c := range row {
			if strings.HasPrefix(t.Columns[i], "?") {
				continue
			}
			width := widths[i]
			rule += strings.Repeat("-", width) + "  "
			if !c.Right {
				width = -width
			}
			line += fmt.Sprintf("%*s  ", width, c.Text)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		if k == 0 {
			b.WriteString(strings.TrimRight(rule, " ") + "\n")
		}
	}
	return b.String()
}

const lineMax = 80 // characters in a line of text

// Wrap breaks lines of text at blanks, into lines of at most `most` characters. A word that is longer stays
// whole. Each piece of a broken line begins with the leading blanks of the line.
func Wrap(text string, most int) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		if utf8.RuneCountInString(line) > most {
			words := strings.Fields(line)
			line = indent + words[0]
			for _, word := range words[1:] {
				if utf8.RuneCountInString(line+" "+word) > most {
					lines, line = append(lines, line), indent+word
				} else {
					line += " " + word
				}
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
