package sweep

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
)

// ErrObjective is wrapped by every error about an objective's text.
var ErrObjective = errors.New("sweep: invalid objective")

// Objective is a figure, by its JSON key, that should be small, or large if Max.
type Objective struct {
	Figure string `json:"figure"`
	Max    bool   `json:"max"`
}

// String is the text that ParseObjectives reads.
func (o Objective) String() string {
	if o.Max {
		return o.Figure + ":max"
	}
	return o.Figure + ":min"
}

// DefaultObjectives are what leases trade: accuracy against calls.
func DefaultObjectives() []Objective {
	return []Objective{{Figure: "false_reject_ratio"}, {Figure: "calls_per_s"}}
}

// ParseObjectives reads "admitted_vs_central:max,calls_per_s:min". Without :max or :min a figure goes where it is good.
func ParseObjectives(text string) (all []Objective, err error) {
	known := FigureNames()
	for part := range strings.SplitSeq(text, ",") {
		name, goal, said := strings.Cut(strings.TrimSpace(part), ":")
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%w %q: there is no figure %q; the figures are %s", ErrObjective, text, name, strings.Join(known, ", "))
		}
		o := Objective{name, sim.MoreIsBetter(name)}
		if said {
			if goal != "min" && goal != "max" {
				return nil, fmt.Errorf("%w %q: %q must be min or max", ErrObjective, text, goal)
			}
			o.Max = goal == "max"
		}
		if slices.ContainsFunc(all, func(other Objective) bool { return other.Figure == name }) {
			return nil, fmt.Errorf("%w %q: %s is there twice", ErrObjective, text, name)
		}
		all = append(all, o)
	}
	return all, nil
}

// FigureNames are the JSON keys of sim.Figures, in order.
func FigureNames() (names []string) {
	var f sim.Figures
	for _, named := range f.All() {
		names = append(names, named.Name)
	}
	return names
}

// FigureOf finds a figure by its JSON key. It panics if there is none: names are checked where they come in.
func FigureOf(f *sim.Figures, name string) sim.Figure {
	for _, named := range f.All() {
		if named.Name == name {
			return *named.Figure
		}
	}
	panic("sweep: there is no figure " + name)
}

// Score is what an objective makes of figures: less is better.
func (o Objective) Score(f *sim.Figures) float64 {
	if o.Max {
		return -FigureOf(f, o.Figure).Mean
	}
	return FigureOf(f, o.Figure).Mean
}

// Scores are those of all objectives.
func Scores(objectives []Objective, f *sim.Figures) []float64 {
	scores := make([]float64, len(objectives))
	for i, o := range objectives {
		scores[i] = o.Score(f)
	}
	return scores
}

// Front marks the rows that no other row beats: no other is at least as good in every column and better in one, less
// being better. Equal rows stand or fall together. A nil row, and one with a NaN, is not on the front and beats none.
func Front(rows [][]float64) []bool {
	on := make([]bool, len(rows))
	// In lexical order a row can be beaten only by an earlier one, and then by one that is on the front itself.
	order := make([]int, 0, len(rows))
	for i, row := range rows {
		if row != nil && !slices.ContainsFunc(row, math.IsNaN) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return slices.Compare(rows[i], rows[j]) })
	var front []int
	for _, i := range order {
		if !slices.ContainsFunc(front, func(j int) bool { return beats(rows[j], rows[i]) }) {
			front = append(front, i)
			on[i] = true
		}
	}
	return on
}

// beats: a is nowhere worse than b and somewhere better.
func beats(a, b []float64) bool {
	better := false
	for k := range a {
		if a[k] > b[k] {
			return false
		}
		better = better || a[k] < b[k]
	}
	return better
}
