package search

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
)

// ErrObjective is wrapped by every error about an objective's text.
var ErrObjective = errors.New("search: invalid objective")

// Objective is a figure, by its JSON key, that should be small, or large if Max.
type Objective struct {
	Figure string `json:"figure"`
	Max    bool   `json:"max"`
}

// DefaultObjectives are what leases trade: accuracy against calls.
func DefaultObjectives() []Objective {
	return []Objective{{Figure: "false_reject_ratio"}, {Figure: "calls_per_s"}}
}

// ParseObjectives reads "admitted_vs_central:max,calls_per_s:min". A figure without :max or :min
// goes in the direction in which it is good.
func ParseObjectives(text string) (all []Objective, err error) {
	wrong := func(format string, args ...any) ([]Objective, error) {
		return nil, fmt.Errorf("%w %q: "+format, append([]any{ErrObjective, text}, args...)...)
	}
	for part := range strings.SplitSeq(text, ",") {
		name, goal, said := strings.Cut(strings.TrimSpace(part), ":")
		switch {
		case !slices.Contains(FigureNames(), name):
			return wrong("there is no figure %q; the figures are %s", name, strings.Join(FigureNames(), ", "))
		case said && goal != "min" && goal != "max":
			return wrong("%q must be min or max", goal)
		case slices.ContainsFunc(all, func(other Objective) bool { return other.Figure == name }):
			return wrong("%s is there twice", name)
		}
		all = append(all, Objective{name, goal == "max" || !said && sim.MoreIsBetter(name)})
	}
	return all, nil
}

// FigureNames are the JSON keys of a report's figures, in their order.
func FigureNames() []string { return namesOf((&sim.Figures{}).All()) }

// RivalFigureNames are the JSON keys of a rival's figures, in their order.
func RivalFigureNames() []string { return namesOf((&sim.RivalReport{}).All()) }

func namesOf(figures []sim.Named) (names []string) {
	for _, f := range figures {
		names = append(names, f.Name)
	}
	return names
}

// FigureOf finds a figure by its JSON key. It panics if there is none: names are checked where
// they come in.
func FigureOf(f *sim.Figures, name string) sim.Figure { return *figureIn(f.All(), name) }

// figureIn is nil if there is no such figure.
func figureIn(all []sim.Named, name string) *sim.Figure {
	for _, named := range all {
		if named.Name == name {
			return named.Figure
		}
	}
	return nil
}

// scores are the means of the objectives' figures, turned so that less is better.
func scores(objectives []Objective, f *sim.Figures) []float64 {
	all := make([]float64, len(objectives))
	for i, o := range objectives {
		if all[i] = FigureOf(f, o.Figure).Mean; o.Max {
			all[i] = -all[i]
		}
	}
	return all
}

// paretoFront marks the rows that no other row beats: no other is at least as good in every column
// and better in one, less being better. Equal rows stand or fall together. A row that is nil or has
// a NaN is not on the front, and beats none.
func paretoFront(rows [][]float64) []bool {
	on := make([]bool, len(rows))
	for i, row := range rows {
		beaten := slices.ContainsFunc(rows, func(other []float64) bool { return beats(other, row) })
		on[i] = !beaten && row != nil && !slices.ContainsFunc(row, math.IsNaN)
	}
	return on
}

// beats reports whether a is nowhere worse than b and somewhere better. Nothing compares with NaN.
func beats(a, b []float64) bool {
	better := false
	for k := range min(len(a), len(b)) {
		if !(a[k] <= b[k]) {
			return false
		}
		better = better || a[k] < b[k]
	}
	return better
}
