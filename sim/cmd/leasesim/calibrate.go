package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// measure puts what --calibrate finds into s, but where --set says something else, and says on
// standard error what it is. The calls it makes are for the limits and the policy of s.
func (f *shared) measure(s *sim.Scenario) error {
	if !f.Flags().Changed("calibrate") {
		return nil
	}
	full := s.Defaults()
	c, err := live.Calibrate(f.Context(), f.calibrate, full.Policy.ConfigFor(full.Limits, 0, full.CallTimeout))
	if err != nil && f.Context().Err() != nil {
		return fmt.Errorf("leasesim: --calibrate: %w", sim.ErrInterrupted)
	}
	if err != nil {
		return err
	}
	measured := *s
	c.Apply(&measured)
	put := func(section, field string, into, value *sim.DurationDist) {
		path := section + "." + field
		if slices.ContainsFunc(f.sets, func(set string) bool {
			return strings.HasPrefix(set, section+"=") || strings.HasPrefix(set, path+"=")
		}) {
			return
		}
		*into = *value
		text, _ := value.MarshalText() // which never fails
		f.program.measured = append(f.program.measured, path+"="+string(text))
	}
	put("network", "round_trip", &s.Network.RoundTrip, &measured.Network.RoundTrip)
	put("redis", "service_time", &s.Redis.ServiceTime, &measured.Redis.ServiceTime)
	put("redis", "exchange_time", &s.Redis.ExchangeTime, &measured.Redis.ExchangeTime)
	put("redis", "wake_time", &s.Redis.WakeTime, &measured.Redis.WakeTime)
	fmt.Fprintf(f.ErrOrStderr(), "leasesim: Redis at %s, %d lease calls: a round trip took %s, one in a "+
		"hundred %s or more; the server worked for %s, and with fifty connections for %s\n", c.Redis, c.Calls,
		view.Shortly(time.Duration(c.RoundTrip.P50)), view.Shortly(time.Duration(c.RoundTrip.P99)),
		view.Shortly(c.Service+c.Exchange+c.Wake), view.Shortly(c.Service+c.Exchange))
	for _, set := range f.program.measured {
		fmt.Fprintf(f.ErrOrStderr(), "leasesim: this run uses %s\n", set)
	}
	return nil
}
