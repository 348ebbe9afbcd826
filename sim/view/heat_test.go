package view

import (
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

func TestAColourOfAMapMeansOneThing(t *testing.T) {
	// Parts that differ by noise look alike,
	for _, part := range []float64{0.991, 0.9999, 1, 1.009} {
		testkit.Check(t, heatStepOf(part) == heatStepOf(1), "%v has another colour than 1", part)
	}
	// and each step away from 1 has a colour of its own, on either side.
	seen := map[heatStep]bool{}
	for _, part := range []float64{0.5, 0.95, 0.98, 1, 1.02, 1.2, 1.5, 2} {
		testkit.Check(t, !seen[heatStepOf(part)], "%v has the colour of another step", part)
		seen[heatStepOf(part)] = true
	}
	testkit.Check(t, len(seen) == len(heatScale), "%d of %d colours", len(seen), len(heatScale))
}

func TestAMapSaysWhatEachCellIs(t *testing.T) {
	// Given a map with a cell that keeps the bound, one that exceeds it, and one that did not run,
	h := Heat{Title: "parts", Down: "ttl",
		Across: search.Axis{Path: "clock.offset", Values: []string{"0s", "1s", "9s"}},
		Rows: []HeatRow{{
			Name: "a <name>", Cells: []HeatCell{{fig(1, 0, 1, 1), 0}, {sim.Figure{Mean: 1.93}, 19_382}, {unknown, 0}},
		}}}
	// when it is drawn, then each says so.
	shown := func() string {
		s := Section{Heat: &h}
		return written(t, Document{Sections: []Section{s}}, FormatHTML)
	}
	page := shown()
	for _, want := range []string{
		">a &lt;name&gt;<", ">193.0 !<", ">100.0<", ">–<", ">ttl ↓  offset →<", `class="right heat-7"`,
		">excess<", ">19,382<",
	} {
		testkit.Check(t, strings.Contains(page, want), "no %q in %s", want, page)
	}
	table := h.table()
	for _, want := range []string{"ttl ↓  offset →      0s      1s  9s  excess",
		"a <name>         100.0   193.0!  –   19,382"} {
		testkit.Check(t, strings.Contains(table.String(), want), "no %q in\n%s", want, table.String())
	}
	// Where nothing exceeds the bound, there is no column for that.
	h.Rows[0].Cells[1].Excess = 0
	kept := h.table()
	testkit.Check(t, !strings.Contains(shown()+kept.String()+h.explained(), "excess"), "%s",
		kept.String())
}
