package view

import (
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

// Cell is a cell with its alignment.
type Cell struct {
	Text  string
	Right bool
}

// Cells are the head and the rows, without what goes beyond the columns.
func (t *Table) Cells() (head []Cell, rows [][]Cell) {
	for _, name := range t.Columns {
		text, right := strings.CutPrefix(name, ">")
		head = append(head, Cell{text, right})
	}
	for _, row := range t.Rows {
		var cells []Cell
		for i, text := range row[:min(len(row), len(head))] {
			cells = append(cells, Cell{text, head[i].Right})
		}
		rows = append(rows, cells)
	}
	return head, rows
}

// Head and Body are the two parts of Cells, for templates.
func (t *Table) Head() []Cell   { head, _ := t.Cells(); return head }
func (t *Table) Body() [][]Cell { _, rows := t.Cells(); return rows }

// String is the table as aligned text: two spaces between columns, a line under the head, no blanks
// at the end of lines.
func (t *Table) String() string {
	head, rows := t.Cells()
	widths := make([]int, len(head))
	for _, row := range append(rows, head) {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	rule := make([]Cell, len(head))
	for i, width := range widths {
		rule[i].Text = strings.Repeat("-", width)
	}
	var b strings.Builder
	for _, row := range append([][]Cell{head, rule}, rows...) {
		var line strings.Builder
		for i, c := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.Text))
			if c.Right {
				line.WriteString(space + c.Text + "  ")
			} else {
				line.WriteString(c.Text + space + "  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// lineMax is how many characters a line of text has at most.
const lineMax = 120

// Wrap breaks longer lines of text at blanks, into lines of at most 120 characters. A longer word
// stays whole. The lines made from one begin with the same blanks.
func Wrap(text string) string {
	var lines []string
	for paragraph := range strings.SplitSeq(text, "\n") {
		if utf8.RuneCountInString(paragraph) <= lineMax {
			lines = append(lines, paragraph)
			continue
		}
		indent := paragraph[:len(paragraph)-len(strings.TrimLeft(paragraph, " "))]
		line := indent
		for i, word := range strings.Fields(paragraph) {
			switch {
			case i == 0:
				line += word
			case utf8.RuneCountInString(line+" "+word) > lineMax:
				lines, line = append(lines, line), indent+word
			default:
				line += " " + word
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
