package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// measure sets the fields of s that --calibrate measures, except fields in sets. measure prints the measured
// values on standard error, and returns them as assignments for --set. The lease calls use the limits and
// policy of s.
func measure(cmd *cobra.Command, redis string, sets []string, s *sim.Scenario) (measured []string, err error) {
	found, r, err := live.Calibrate(cmd.Context(), redis, *s)
	if cmd.Context().Err() != nil {
		return nil, fmt.Errorf("leasesim: --calibrate: %w", sim.ErrInterrupted)
	}
	if err != nil {
		return nil, err
	}
	service := "does not say how long its scripts take"
	if r.ServiceTimeNs > 0 {
		service = "ran a script for " + view.Shortly(time.Duration(r.ServiceTimeNs))
	}
	out := cmd.ErrOrStderr()
	fmt.Fprintf(out, "leasesim: Redis at %s, %d lease calls: a round trip took %s, one in a hundred %s or more; the "+
		"server %s\n", r.Redis, r.RoundTrips, view.Shortly(time.Duration(r.RoundTripNs.P50)),
		view.Shortly(time.Duration(r.RoundTripNs.P99)), service)
	for _, x := range []struct {
		section, field string
		into           *sim.DurationDist
		value          sim.DurationDist
	}{
		{"network", "round_trip", &s.Network.RoundTrip, found.Network.RoundTrip},
		{"redis", "service_time", &s.Redis.ServiceTime, found.Redis.ServiceTime},
	} {
		path := x.section + "." + x.field
		if *x.into == x.value || slices.ContainsFunc(sets, func(set string) bool {
			return strings.HasPrefix(set, x.section+"=") || strings.HasPrefix(set, path+"=")
		}) {
			continue
		}
		*x.into = x.value
		text, _ := x.value.MarshalText() // MarshalText never fails here
		measured = append(measured, path+"="+string(text))
		fmt.Fprintf(out, "leasesim: this run uses %s=%s\n", path, text)
	}
	return measured, nil
}
