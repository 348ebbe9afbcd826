package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table is rows of text in columns. A column whose name begins with ">" is aligned to the right, as
// numbers are; one whose name begins with "?" may be left out of a text that would be too wide. The
// signs are not shown. A row may be shorter than the columns.
type Table struct {
	Columns []string
	Rows    [][]string
	Keys    int // columns that stand in front of each part of a table that is divided; 0 means 1
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// head appends right-aligned columns.
func (t *Table) head(names ...string) {
	for _, name := range names {
		t.Columns = append(t.Columns, ">"+name)
	}
}

// shortest are the last parts of several paths, where those are enough to tell them apart, as the
// paths stand above all.
func shortest(paths ...string) (names []string) {
	last := func(path string) string { return path[strings.LastIndex(path, ".")+1:] }
	for _, a := range paths {
		same := slices.ContainsFunc(paths, func(b string) bool { return b != a && last(b) == last(a) })
		names = append(names, either(same || len(paths) == 1, a, last(a)))
	}
	return names
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

// String is the table as aligned text of at most 80 characters a line: two spaces between columns, a
// line under the head, no blanks at the end of lines. A wider table loses the columns that may go, the
// last ones first; then a text in the last column is broken; then the table is divided.
func (t *Table) String() string {
	t = t.narrow()
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

// roomMin is the least width to which a text is broken.
const roomMin = 24

// narrow is t without as many of the columns that may go as it takes.
func (t *Table) narrow() *Table {
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

// pick is t with some of its columns.
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

// divided is t as several tables below each other, with the key columns in front of each.
func (t *Table) divided() string {
	keys, widths := max(t.Keys, 1), t.widths()
	front, widest := 0, slices.Max(widths[min(keys, len(widths)-1):])
	for _, w := range widths[:min(keys, len(widths))] {
		front += w + 2
	}
	if keys > 1 && front+widest > lineMax { // no room for the keys: the rows have numbers instead
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

// numbered is t with the numbers of its rows as its only keys.
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

// aligned is the table as text, whose last column is at most so wide.
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
		var more []string // lines of the last cell
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

// lineMax is how many characters a line of text has at most.
const lineMax = 80

// Wrap breaks longer lines of text at blanks, into lines of at most `most` characters. A longer word
// stays whole. The lines made from one begin with the same blanks.
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
