package view

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table is a table of texts. ">" before a column's name aligns the column to the right, as for numbers. "?"
// before a name lets String omit the column if the text would be too wide. String does not show these signs.
// A row may have fewer cells than the table has columns.
type Table struct {
	Columns []string
	Rows    [][]string
	Keys    int    // number of leading columns that each piece of a divided table repeats; 0 means 1
	Brief   bool   // the text has the means of figures, without their intervals and ranges
	Delta   string // explanation of the columns with differences; a text without these omits it
}

// spread matches the interval or the range after the mean of a figure.
var spread = regexp.MustCompile(` ± [^ )]+| \([^()]*\.\.[^()]*\)`)

// Means returns t with the means of figures.
func (t *Table) Means() *Table {
	means := &Table{Columns: t.Columns, Keys: t.Keys}
	for _, row := range t.Rows {
		cells := slices.Clone(row)
		for i, cell := range cells {
			cells[i] = spread.ReplaceAllString(cell, "")
		}
		means.Add(cells...)
	}
	return means
}

// differs reports whether t has columns with differences.
func (t *Table) differs() bool { return strings.Contains(strings.Join(t.Columns, " "), "Δ") }

// Add appends a row of cells.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

func (t *Table) head(names ...string) {
	for _, name := range names {
		t.Columns = append(t.Columns, ">"+name)
	}
}

// shortest returns the last component of each path if these components differ, and otherwise the whole paths.
func shortest(paths ...string) (names []string) {
	last := func(path string) string { return path[strings.LastIndex(path, ".")+1:] }
	for _, a := range paths {
		same := slices.ContainsFunc(paths, func(b string) bool { return b != a && last(b) == last(a) })
		names = append(names, either(same || len(paths) == 1, a, last(a)))
	}
	return names
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

// String returns the table as aligned text of at most 80 characters per line, with two spaces between columns
// and a line under the head. For a wider table, String first omits optional columns from the right, then
// breaks texts in the last column, and at last divides the table.
func (t *Table) String() string {
	t = t.fitted()
	if t.width() > lineMax {
		if last := len(t.Columns) - 1; last > 0 &&
			!strings.HasPrefix(strings.TrimPrefix(t.Columns[last], "?"), ">") {
			if room := lineMax - t.width() + t.widths()[last]; room >= roomMin {
				return t.aligned(room)
			}
		}
		return t.divided()
	}
	return t.aligned(lineMax)
}

// roomMin is the smallest width of a broken text.
const roomMin = 24

// fitted returns t for the text, without as many optional columns as the width demands.
func (t *Table) fitted() *Table {
	if t.Brief {
		t = t.Means()
	}
	for t.width() > lineMax {
		k := len(t.Columns) - 1
		for k >= 0 && !strings.HasPrefix(t.Columns[k], "?") {
			k--
		}
		if k < 0 {
			break
		}
		t = t.pick(func(i int) bool { return i != k })
	}
	return t
}

func (t *Table) pick(keep func(column int) bool) *Table {
	some := &Table{Keys: t.Keys}
	for k, name := range t.Columns {
		if keep(k) {
			some.Columns = append(some.Columns, name)
		}
	}
	for _, row := range t.Rows {
		var cells []string
		for k, cell := range row {
			if k < len(t.Columns) && keep(k) {
				cells = append(cells, cell)
			}
		}
		some.Rows = append(some.Rows, cells)
	}
	return some
}

// divided splits t into several tables, each with the key columns in front.
func (t *Table) divided() string {
	keys, widths := max(t.Keys, 1), t.widths()
	front, widest := 0, slices.Max(widths[min(keys, len(widths)-1):])
	for _, w := range widths[:min(keys, len(widths))] {
		front += w + 2
	}
	if keys > 1 && front+widest > lineMax { // the keys do not fit: number the rows instead
		return t.numbered().divided()
	}
	var parts []string
	for from := keys; from < len(widths); {
		to, width := from+1, front+widths[from]
		for to < len(widths) && width+2+widths[to] <= lineMax {
			width += 2 + widths[to]
			to++
		}
		part := t.pick(func(k int) bool { return k < keys || k >= from && k < to })
		parts = append(parts, part.aligned(max(roomMin, lineMax-front)))
		from = to
	}
	return strings.Join(parts, "\n")
}

// numbered returns t with row numbers as its only key column.
func (t *Table) numbered() *Table {
	n := &Table{Columns: append([]string{">#"}, t.Columns...)}
	for i, row := range t.Rows {
		n.Rows = append(n.Rows, append([]string{strconv.Itoa(i + 1)}, row...))
	}
	return n
}

func (t *Table) widths() []int {
	widths := make([]int, len(t.Columns))
	for _, row := range t.Cells() {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	return widths
}

func (t *Table) width() int {
	sum := 2 * (len(t.Columns) - 1)
	for _, w := range t.widths() {
		sum += w
	}
	return sum
}

// aligned returns the table as text. room is the largest width of the last column.
func (t *Table) aligned(room int) string {
	rows, widths := t.Cells(), t.widths()
	last := len(widths) - 1
	widths[last] = min(widths[last], room)
	rule, indent := make([]Cell, len(widths)), 0
	for i, w := range widths {
		rule[i].Text = strings.Repeat("-", w)
		if i < last {
			indent += w + 2
		}
	}
	var b strings.Builder
	for _, row := range slices.Insert(rows, 1, rule) {
		line := ""
		var more []string // remaining lines of the last cell
		for i, c := range row {
			width := widths[i]
			if !c.Right {
				width = -width
			}
			if i == last && !c.Right {
				more = strings.Split(Wrap(c.Text, room), "\n")
				c.Text, more = more[0], more[1:]
			}
			line += fmt.Sprintf("%*s  ", width, c.Text)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		for _, text := range more {
			b.WriteString(strings.Repeat(" ", indent) + text + "\n")
		}
	}
	return b.String()
}

// lineMax is the largest number of characters in a line of text.
const lineMax = 80

// Wrap breaks lines of text at blanks, into lines of at most `most` characters. A longer word stays whole.
// Each piece of a broken line begins with the leading blanks of the line.
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
