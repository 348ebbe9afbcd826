package view

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// Heat is a map of one figure over two parameters: a part of what one central bucket admits, which
// is 1 where the limit is kept and used. Every map has the same scale, so one colour means one
// thing in all of them, and what differs by less than its first step has the colour of 1.
type Heat struct {
	Title  string        // the question that it answers, or the answer
	Down   string        // the parameters of the rows of one algorithm
	Across []search.Axis // the parameters of the columns: each of them varies alone
	Rows   []HeatRow
}

// columns are the values of the parameters of the columns.
func (h Heat) columns() (all []string) {
	for _, a := range h.Across {
		all = append(all, a.Values...)
	}
	return all
}

// section shows the map, or where all of it has one colour and the bound holds, a sentence that says so.
func (h Heat) section() Section {
	low, high := math.Inf(1), math.Inf(-1)
	for _, row := range h.Rows {
		for _, c := range row.Cells {
			if finite(c.Part.Mean) {
				low, high = min(low, c.Part.Mean), max(high, c.Part.Mean)
			}
		}
	}
	if h.exceeded() || low > high || heatStepOf(low) != heatStepOf(high) {
		s := Section{Title: h.Title, Text: []string{h.explained()}}
		t := h.table()
		h.Title = "" // which the section has
		s.Heat, s.Table = &h, &t
		return s
	}
	return Section{Title: h.Title, Text: []string{throughout(100*low, 100*high)}}
}

// HeatRow is the cells of one algorithm, or of one at one value of the other parameter.
type HeatRow struct {
	Name  string
	Cells []HeatCell
}

// HeatCell is one point.
type HeatCell struct {
	Part   sim.Figure // of what one central bucket admits; a NaN if it did not run
	Excess float64    // tokens above the bound, in the worst window
}

// heatStep is a colour of the scale: of what is below it.
type heatStep struct {
	below       float64
	name        string
	paper, text template.CSS
}

// heatScale is blue where tokens are lost, and burns where too many are admitted. Colour-blind readers
// can tell the two apart.
var heatScale = []heatStep{
	{0.90, "below 90 %", "#2166ac", "#ffffff"},
	{0.97, "90 to 97 %", "#92c5de", "#1b1f24"},
	{0.99, "97 to 99 %", "#d6e8f2", "#1b1f24"},
	{1.01, "99 to 101 %", "#eef3ee", "#1b1f24"},
	{1.05, "to 105 %", "#fddbc7", "#1b1f24"},
	{1.25, "to 125 %", "#f4a582", "#1b1f24"},
	{1.75, "to 175 %", "#d6604d", "#ffffff"},
	{0, "above 175 %", "#8b0a1a", "#ffffff"},
}

func heatStepOf(part float64) heatStep {
	for _, s := range heatScale {
		if part < s.below {
			return s
		}
	}
	return heatScale[len(heatScale)-1]
}

// corner names the parameters of the rows and of the columns in few characters.
func (h Heat) corner() string {
	names := shortest(append(strings.Fields(h.Down), h.Across[0].Path)...)
	last := len(names) - 1
	return strings.Join(names[:last], " ") + " ↓  " + names[last] + " →"
}

// exceeded reports whether any row has an excess.
func (h Heat) exceeded() bool {
	return slices.ContainsFunc(h.Rows, func(row HeatRow) bool { return row.excess() > 0 })
}

// excess is that of the row's worst cell.
func (row HeatRow) excess() (worst float64) {
	for _, c := range row.Cells {
		worst = max(worst, c.Excess)
	}
	return worst
}

// text is the cell in few characters: what is known of it, to a tenth of a percent.
func (c HeatCell) text() string {
	if !finite(c.Part.Mean) {
		return "–"
	}
	return decimal(100*c.Part.Mean, 1, 1)
}

// whole describes the cell for a reader that points at it.
func (c HeatCell) whole() string {
	return Figure("admitted_vs_central", c.Part) +
		either(c.Excess > 0, ", "+heatExcess+" "+Number(c.Excess), "")
}

// table is the map for a terminal. A "!" stands behind what exceeds the bound, and at the end of
// the row by how much it does at most: a few tokens and a second bucket are not the same.
func (h Heat) table() Table {
	t := Table{Columns: []string{h.corner()}}
	t.head(h.columns()...)
	if h.exceeded() {
		t.Columns = append(t.Columns, "?>"+heatExcess)
	}
	for _, row := range h.Rows {
		cells := []string{row.Name}
		for _, c := range row.Cells {
			cells = append(cells, c.text()+either(c.Excess > 0, "!", " "))
		}
		t.Add(append(cells, Number(row.excess()))...)
	}
	return t
}

const heatExcess = "excess" // the name of the last column

// The sizes of a map, in pixels where it is not scaled.
const (
	heatLetter = 7  // of a letter of the names, at most
	heatWidth  = 68 // of a cell, at least
	heatHeight = 30
	heatTop    = 64 // the title, the parameter of the columns, and their names
	heatKey    = 4  // colours in a line of the legend
)

// SVG draws the map with its legend, as a picture of its own.
func (h Heat) SVG() template.HTML {
	left := utf8.RuneCountInString(h.Down+" ↓")*heatLetter + 16
	for _, row := range h.Rows {
		left = max(left, utf8.RuneCountInString(row.Name)*heatLetter+16)
	}
	across, columns := heatWidth, h.columns()
	for _, name := range columns {
		across = max(across, utf8.RuneCountInString(name)*heatLetter+12)
	}
	end := left + len(columns)*across
	width := max(end+8+either(h.exceeded(), heatWidth, 0), 570)
	below := heatTop + len(h.Rows)*heatHeight
	height := below + 24 + (len(heatScale)+heatKey)/heatKey*22
	var b strings.Builder
	text := func(x, y int, more, s string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d"%s>%s</text>`+"\n", x, y, more, html.EscapeString(s))
	}
	const middle = ` text-anchor="middle"`
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="sans-serif" font-size="13" fill="#1b1f24">`+
		"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	text(8, 20, ` font-weight="bold"`, h.Title)
	text(8, heatTop-8, ` fill="#57606a"`, h.Down+" ↓")
	at := left
	for _, a := range h.Across {
		text(at, heatTop-26, ` fill="#57606a"`, a.Path+" →")
		at += len(a.Values) * across
	}
	for k, name := range columns {
		text(left+k*across+across/2, heatTop-8, ` fill="#57606a"`+middle, name)
	}
	if h.exceeded() {
		text(end+heatWidth/2, heatTop-8, ` fill="#57606a"`+middle, heatExcess)
	}
	for i, row := range h.Rows {
		y := heatTop + i*heatHeight
		text(8, y+20, "", row.Name)
		for k, c := range row.Cells {
			x, s := left+k*across, heatStepOf(c.Part.Mean)
			if !finite(c.Part.Mean) {
				s = heatStep{paper: "#ffffff", text: "#57606a"}
			}
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s">`+
				"<title>%s</title></rect>\n", x, y, across-2, heatHeight-2, s.paper, c.whole())
			text(x+across/2-1, y+19, fmt.Sprintf(` fill="%s"%s`, s.text, middle),
				c.text()+either(c.Excess > 0, " !", ""))
		}
		if h.exceeded() {
			text(end+heatWidth/2, y+19, middle, Number(row.excess()))
		}
	}
	for i, s := range heatScale {
		x, y := 8+i%heatKey*(width-16)/heatKey, below+16+i/heatKey*22
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="14" height="14" fill="%s" stroke="#d0d7de"/>`+"\n", x, y,
			s.paper)
		text(x+20, y+12, "", s.name)
	}
	text(8, height-12, "", "!  the bound is exceeded in some window"+either(h.exceeded(),
		"; "+heatExcess+": tokens above it, at most", ""))
	b.WriteString("</svg>\n")
	return template.HTML(b.String())
}

// HeatOf is the map of a sweep: what each algorithm admits of what one central bucket would have. The columns
// are the values of the last parameter. The rows are the algorithms, at the values of the parameters before
// it. Where those are of the leases' policy, which the other algorithms do not know, each of these has one
// row, at their first values.
func HeatOf(r search.SweepReport) Heat {
	last := len(r.Axes) - 1
	v, across := sweepView{&r}, r.Axes[last]
	h := Heat{Title: "How much is admitted, in % of what one central bucket admits?", Down: "algorithm",
		Across: []search.Axis{across}}
	known := false
	for k, a := range r.Axes[:last] {
		h.Down = either(k == 0, "", h.Down+" ") + a.Path
		known = known || !strings.HasPrefix(a.Path, "policy.")
	}
	add := func(algorithm string, all bool, cell func(p *search.Point) (part, excess sim.Figure)) {
		for points := range slices.Chunk(r.Points, len(across.Values)) {
			values := strings.Join(points[0].Values[:last], " ")
			row := HeatRow{Name: strings.TrimSpace(algorithm + either(all, " "+values, ""))}
			for i := range points {
				c := HeatCell{Part: unknown}
				if p := &points[i]; p.Figures != nil {
					part, excess := cell(p)
					c = HeatCell{part, excess.Worst}
				}
				row.Cells = append(row.Cells, c)
			}
			if h.Rows = append(h.Rows, row); !all {
				return
			}
		}
	}
	add(Own, true, func(p *search.Point) (part, excess sim.Figure) {
		return p.Figures.AdmittedVsCentral, p.Figures.BoundExceededBy
	})
	for k, name := range v.rivals() {
		add(name, known, func(p *search.Point) (part, excess sim.Figure) {
			return p.Rivals[k].AdmittedVsCentral, p.Rivals[k].BoundExceededBy
		})
	}
	return h
}

// rivals are the names of the other algorithms, of which each point that ran has the figures.
func (v sweepView) rivals() (names []string) {
	for i := range v.Points {
		for k := range v.Points[i].Rivals {
			names = append(names, v.Points[i].Rivals[k].Name)
		}
		if names != nil {
			break
		}
	}
	return names
}

// explained says how to read the map.
func (h Heat) explained() string {
	return "100 % is a limit that is kept and fully used. A ! marks a bound that is exceeded in some window" +
		either(h.exceeded(), ", and excess is the most tokens above it in a row", "") +
		". Cells have one scale of colours; differences of 1 % or less share a colour."
}
