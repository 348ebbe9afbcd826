package view

import (
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

// table returns the map for a terminal. A "!" follows each value that exceeds the bound. The end of the row
// has the largest excess, because a few tokens matter less than a whole second bucket.
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

// explained says how to read the map.
func (h Heat) explained() string {
	return "100 % is a limit that is kept and fully used. A ! marks a bound that is exceeded in some window" +
		either(h.Exceeded(), ", and excess is the most tokens above it in a row", "") +
		". Cells have one scale of colours; differences of 1 % or less share a colour."
}
