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
	for part := range strings.SplitSeq(text, ",") {
		name, goal, said := strings.Cut(strings.TrimSpace(part), ":")
		o := Objective{name, sim.MoreIsBetter(name)}
		if said {
			o.Max = goal == "max"
		}
		switch {
		case !slices.Contains(FigureNames(), name):
			return nil, fmt.Errorf("%w %q: there is no figure %q; the figures are %s",
				ErrObjective, text, name, strings.Join(FigureNames(), ", "))
		case said && goal != "min" && goal != "max":
			return nil, fmt.Errorf("%w %q: %q must be min or max", ErrObjective, text, goal)
		case slices.ContainsFunc(all, func(other Objective) bool { return other.Figure == name }):
			return nil, fmt.Errorf("%w %q: %s is there twice", ErrObjective, text, name)
		}
		all = append(all, o)
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
func FigureOf(f *sim.Figures, name string) sim.Figure {
	for _, named := range f.All() {
		if named.Name == name {
			return *named.Figure
		}
	}
	panic("search: there is no figure " + name)
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
		on[i] = row != nil && !slices.ContainsFunc(row, math.IsNaN)
	}
	comparable := slices.Clone(on)
	for i := range rows {
		for j := range rows {
			if comparable[i] && comparable[j] && beats(rows[j], rows[i]) {
				on[i] = false
				break
			}
		}
	}
	return on
}

// beats reports whether a is nowhere worse than b and somewhere better.
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
