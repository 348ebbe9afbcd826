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

// measure puts what --calibrate finds into s, but where one of sets says something else, says on standard error
// what it is, and returns it as --set takes it. The calls it makes are for the limits and the policy of s.
func measure(cmd *cobra.Command, redis string, sets []string, s *sim.Scenario) (measured []string, err error) {
	full := s.Defaults()
	c, err := live.Calibrate(cmd.Context(), redis, full.Policy.ConfigFor(full.Limits, 0, full.CallTimeout))
	if err != nil && cmd.Context().Err() != nil {
		return nil, fmt.Errorf("leasesim: --calibrate: %w", sim.ErrInterrupted)
	}
	if err != nil {
		return nil, err
	}
	found := *s
	c.Apply(&found)
	put := func(section, field string, into, value *sim.DurationDist) {
		path := section + "." + field
		if slices.ContainsFunc(sets, func(set string) bool {
			return strings.HasPrefix(set, section+"=") || strings.HasPrefix(set, path+"=")
		}) {
			return
		}
		*into = *value
		text, _ := value.MarshalText() // which never fails
		measured = append(measured, path+"="+string(text))
	}
	put("network", "round_trip", &s.Network.RoundTrip, &found.Network.RoundTrip)
	put("redis", "service_time", &s.Redis.ServiceTime, &found.Redis.ServiceTime)
	put("redis", "exchange_time", &s.Redis.ExchangeTime, &found.Redis.ExchangeTime)
	put("redis", "wake_time", &s.Redis.WakeTime, &found.Redis.WakeTime)
	fmt.Fprintf(cmd.ErrOrStderr(), "leasesim: Redis at %s, %d lease calls: a round trip took %s, one in a "+
		"hundred %s or more; the server worked for %s, and with fifty connections for %s\n", c.Redis, c.Calls,
		view.Shortly(time.Duration(c.RoundTrip.P50)), view.Shortly(time.Duration(c.RoundTrip.P99)),
		view.Shortly(c.Service+c.Exchange+c.Wake), view.Shortly(c.Service+c.Exchange))
	for _, set := range measured {
		fmt.Fprintf(cmd.ErrOrStderr(), "leasesim: this run uses %s\n", set)
	}
	return measured, nil
}
