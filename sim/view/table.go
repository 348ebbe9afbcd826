package view

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table is rows of text in columns. A column whose name begins with ">" is aligned to the right, as
// numbers are; the ">" is not shown. A row may be shorter than the columns.
type Table struct {
	Columns []string
	Rows    [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// head appends right-aligned columns.
func (t *Table) head(names ...string) {
	for _, name := range names {
		t.Columns = append(t.Columns, ">"+name)
	}
}

// Cell is a cell with its alignment.
type Cell struct {
	Text  string
	Right bool
}

// Cells are the head and then the rows, without what goes beyond the columns.
func (t *Table) Cells() [][]Cell {
	cells := make([][]Cell, 1+len(t.Rows))
	for k, name := range t.Columns {
		text, right := strings.CutPrefix(name, ">")
		cells[0] = append(cells[0], Cell{text, right})
		for i, row := range t.Rows {
			if k < len(row) {
				cells[i+1] = append(cells[i+1], Cell{row[k], right})
			}
		}
	}
	return cells
}

// String is the table as aligned text: two spaces between columns, a line under the head, no blanks
// at the end of lines.
func (t *Table) String() string {
	rows := t.Cells()
	rule := make([]Cell, len(t.Columns))
	widths := make([]int, len(t.Columns))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
			rule[i].Text = strings.Repeat("-", widths[i])
		}
	}
	var b strings.Builder
	for _, row := range slices.Insert(rows, 1, rule) {
		line := ""
		for i, c := range row {
			width := widths[i]
			if !c.Right {
				width = -width
			}
			line += fmt.Sprintf("%*s  ", width, c.Text)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// lineMax is how many characters a line of text has at most.
const lineMax = 110

// Wrap breaks longer lines of text at blanks, into lines of at most 110 characters. A longer word
// stays whole. The lines made from one begin with the same blanks.
func Wrap(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		if utf8.RuneCountInString(line) > lineMax {
			words := strings.Fields(line)
			line = indent + words[0]
			for _, word := range words[1:] {
				if utf8.RuneCountInString(line+" "+word) > lineMax {
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
