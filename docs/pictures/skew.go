package main

import (
	"context"

	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// skewed and skewAxes are the scenario and the axes of the map. docs/simulator.md and the example's
// own first lines have them as a command, and a test compares.
const skewed = "example:clock-skew"

var skewAxes = []search.Axis{
	{Path: "policy.target", Values: []string{"10ms", "30ms", "100ms", "250ms"}},
	{Path: "clock.offset", Values: []string{"0s", "1ms", "10ms", "100ms", "1s", "10s"}},
}

// clockSkew runs the example at each point of the axes; skewAxes give the map.
func clockSkew(ctx context.Context, axes []search.Axis) (search.SweepReport, error) {
	s, err := scenfile.Load(skewed)
	if err != nil {
		return search.SweepReport{}, err
	}
	lab := search.Lab{Run: sim.Runner{Parallel: 1}.Run}
	return lab.Sweep(ctx, s, axes)
}

func skewPicture(r search.SweepReport) string { return string(view.HeatOf(r).SVG()) }
