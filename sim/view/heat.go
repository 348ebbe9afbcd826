package view

import (
	"math"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// Heat is a map of one figure over two parameters: a part of what one central bucket admits, which
// is 1 where the limit is kept and used. Every map has the same scale, so one colour means one
// thing in all of them, and what differs by less than its first step has the colour of 1.
type Heat struct {
	Title  string      // the question that it answers, or the answer
	Down   string      // the parameters of the rows of one algorithm
	Across search.Axis // the parameter of the columns
	Rows   []HeatRow
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
	if h.Exceeded() || low > high || heatStepOf(low) != heatStepOf(high) {
		s := Section{Title: h.Title, Text: []string{h.explained()}}
		t := h.table()
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

// heatStep is a colour of the scale, which the page's style has: of what is below it.
type heatStep struct {
	below float64
	Name  string
	Class string
}

// heatScale is blue where tokens are lost, and burns where too many are admitted. Colour-blind readers
// can tell the two apart.
var heatScale = []heatStep{
	{0.90, "below 90 %", "heat-0"}, {0.97, "90 to 97 %", "heat-1"}, {0.99, "97 to 99 %", "heat-2"},
	{1.01, "99 to 101 %", "heat-3"}, {1.05, "to 105 %", "heat-4"}, {1.25, "to 125 %", "heat-5"},
	{1.75, "to 175 %", "heat-6"}, {0, "above 175 %", "heat-7"},
}

func heatStepOf(part float64) heatStep {
	for _, s := range heatScale {
		if part < s.below {
			return s
		}
	}
	return heatScale[len(heatScale)-1]
}

// Corner names the parameters of the rows and of the columns in few characters.
func (h Heat) Corner() string {
	names := shortest(append(strings.Fields(h.Down), h.Across.Path)...)
	last := len(names) - 1
	return strings.Join(names[:last], " ") + " ↓  " + names[last] + " →"
}

// Exceeded reports whether any row has an excess.
func (h Heat) Exceeded() bool {
	return slices.ContainsFunc(h.Rows, func(row HeatRow) bool { return row.Excess() > 0 })
}

// Excess is that of the row's worst cell.
func (row HeatRow) Excess() (worst float64) {
	for _, c := range row.Cells {
		worst = max(worst, c.Excess)
	}
	return worst
}

// Class is the cell's colour on a page.
func (c HeatCell) Class() string {
	return either(finite(c.Part.Mean), heatStepOf(c.Part.Mean).Class, "")
}

// text is the cell in few characters: what is known of it, to a tenth of a percent.
func (c HeatCell) text() string {
	if !finite(c.Part.Mean) {
		return "–"
	}
	return decimal(100*c.Part.Mean, 1, 1)
}

// Short is the cell on a page.
func (c HeatCell) Short() string { return c.text() + either(c.Excess > 0, " !", "") }

// Whole describes the cell for a reader that points at it.
func (c HeatCell) Whole() string {
	return Figure("admitted_vs_central", c.Part) +
		either(c.Excess > 0, ", "+heatExcess+" "+Number(c.Excess), "")
}

// table is the map for a terminal. A "!" stands behind what exceeds the bound, and at the end of
// the row by how much it does at most: a few tokens and a second bucket are not the same.
func (h Heat) table() Table {
	t := Table{Columns: []string{h.Corner()}}
	t.head(h.Across.Values...)
	if h.Exceeded() {
		t.Columns = append(t.Columns, "?>"+heatExcess)
	}
	for _, row := range h.Rows {
		cells := []string{row.Name}
		for _, c := range row.Cells {
			cells = append(cells, c.text()+either(c.Excess > 0, "!", " "))
		}
		t.Add(append(cells, Number(row.Excess()))...)
	}
	return t
}

const heatExcess = "excess" // the name of the last column

// HeatOf is the map of a sweep: what each algorithm admits of what one central bucket would have. The columns
// are the values of the last parameter. The rows are the algorithms, at the values of the parameters before
// it. Where those are of the leases' policy, which the other algorithms do not know, each of these has one
// row, at their first values.
func HeatOf(r search.SweepReport) Heat {
	last := len(r.Axes) - 1
	v, across := sweepView{&r}, r.Axes[last]
	h := Heat{Title: "How much is admitted, in % of what one central bucket admits?", Down: "algorithm",
		Across: across}
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
		either(h.Exceeded(), ", and excess is the most tokens above it in a row", "") +
		". Cells have one scale of colours; differences of 1 % or less share a colour."
}
