package search

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

// bruteFront compares everything with everything, by the definition.
func bruteFront(rows [][]float64) []bool {
	on := make([]bool, len(rows))
	for i, a := range rows {
		on[i] = a != nil && !slices.ContainsFunc(a, math.IsNaN)
		for _, b := range rows {
			if b == nil || slices.ContainsFunc(b, math.IsNaN) || !on[i] {
				continue
			}
			noWorse, better := true, false
			for k := range a {
				noWorse = noWorse && b[k] <= a[k]
				better = better || b[k] < a[k]
			}
			on[i] = !(noWorse && better)
		}
	}
	return on
}

func TestFrontAgreesWithBruteForce(t *testing.T) {
	r := testkit.Rand(t)
	for range 2000 {
		rows := make([][]float64, r.IntN(40))
		columns, values := 1+r.IntN(4), 1+r.IntN(12) // few values make many ties
		for i := range rows {
			if r.IntN(20) == 0 {
				continue
			}
			for range columns {
				x := float64(r.IntN(values)) - 3
				if r.IntN(50) == 0 {
					x = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[r.IntN(3)]
				}
				rows[i] = append(rows[i], x)
			}
		}
		if got, want := paretoFront(rows), bruteFront(rows); !slices.Equal(got, want) {
			t.Fatalf("%v:\n%v, want\n%v", rows, got, want)
		}
	}
}

func TestObjectivesAreFiguresWithADirection(t *testing.T) {
	for text, want := range map[string][]Objective{
		"admitted_vs_central:max,calls_per_s:min": {{"admitted_vs_central", true}, {"calls_per_s", false}},
		"jain, stranded": {{"jain", true}, {"stranded", false}},
		"jain:min":       {{"jain", false}},
	} {
		got, err := ParseObjectives(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                    `there is no figure ""; the figures are offered, admitted`,
		"calls":               `there is no figure "calls"`,
		"jain:up":             `"up" must be min or max`,
		"jain,calls_per_s:":   `"" must be min or max`,
		"jain,burnt,jain:max": "jain is there twice",
	} {
		if _, err := ParseObjectives(text); !errors.Is(err, ErrObjective) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestAnObjectiveScoresSoThatLessIsBetter(t *testing.T) {
	f := sim.Figures{Jain: sim.Figure{Mean: 0.9}, CallsPerS: sim.Figure{Mean: 70}}
	if got := scores([]Objective{{"jain", true}, {"calls_per_s", false}}, &f); !slices.Equal(got, []float64{-0.9, 70}) {
		t.Error(got)
	}
	scores(DefaultObjectives(), &f) // panics if there is no such figure
}
