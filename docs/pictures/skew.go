package main

import (
	"context"

	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// clockSkew is the map of example:clock-skew, as its own first lines ask for it.
func clockSkew(ctx context.Context) (search.SweepReport, error) {
	s, err := scenfile.Load("example:clock-skew")
	if err != nil {
		return search.SweepReport{}, err
	}
	lab := search.Lab{Run: sim.Runner{Parallel: 1}.Run}
	return lab.Sweep(ctx, s, []search.Axis{
		{Path: "policy.target", Values: []string{"10ms", "30ms", "100ms", "250ms"}},
		{Path: "clock.offset", Values: []string{"0s", "1ms", "10ms", "100ms", "1s", "10s"}},
	}, nil)
}

func skewPicture(r search.SweepReport) string { return string(view.HeatOf(r).SVG()) }
