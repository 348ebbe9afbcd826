package render

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Column is a column of a Table.
type Column struct {
	Name  string
	Right bool // aligned to the right, as numbers are
}

// Left and Right are columns.
func Left(name string) Column  { return Column{Name: name} }
func Right(name string) Column { return Column{Name: name, Right: true} }

// Table is rows of text in columns. A row may be shorter than the columns.
type Table struct {
	Columns []Column
	Rows    [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Write writes the table as aligned text: two spaces between columns, a line under the head, none at the end of lines.
func (t Table) Write(w io.Writer) error {
	head, rule := make([]string, len(t.Columns)), make([]string, len(t.Columns))
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		head[i] = c.Name
		widths[i] = utf8.RuneCountInString(c.Name)
		for _, row := range t.Rows {
			if i < len(row) {
				widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
			}
		}
		rule[i] = strings.Repeat("-", widths[i])
	}
	var b strings.Builder
	for _, row := range append([][]string{head, rule}, t.Rows...) {
		var line strings.Builder
		for i, cell := range row[:min(len(row), len(widths))] {
			if i > 0 {
				line.WriteString("  ")
			}
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.Columns[i].Right {
				line.WriteString(space + cell)
			} else {
				line.WriteString(cell + space)
			}
		}
		fmt.Fprintln(&b, strings.TrimRight(line.String(), " "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
