package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// Calibrate makes about 2,000 requests to the Redis at address, under the limits and the policy of s. Each
// request is for another key and makes a lease call. Calibrate returns s with the measured round trips, and
// with the script's time if the server reports it (INFO commandstats, which adds up all scripts). The keys
// expire.
func Calibrate(ctx context.Context, address string, s sim.Scenario) (sim.Scenario, Report, error) {
	full := s.Defaults()
	r, err := Run(ctx, Options{Redis: address, Key: NewKey(), Scenario: sim.Scenario{
		Duration: 2 * time.Second, Limits: full.Limits, Policy: full.Policy, Keys: sim.Keys{Count: 2000},
		Groups: []sim.Group{{Count: 1}}, Workload: sim.Workload{Kind: sim.Constant, Rate: 1000},
	}}, nil)
	if err == nil && r.RoundTripNs.P50 == 0 {
		err = errors.New("no lease call was answered")
	}
	if err != nil {
		return s, r, fmt.Errorf("leasesim: --calibrate: %w", err)
	}
	if r.ServiceTimeNs > 0 {
		full.Redis.ServiceTime = sim.Constantly(time.Duration(r.ServiceTimeNs).Round(100 * time.Nanosecond))
		s.Redis.ServiceTime = full.Redis.ServiceTime
	}
	inServer := full.Redis.ServiceTime.P + full.Redis.ExchangeTime.P + full.Redis.WakeTime.P
	s.Network.RoundTrip = linkOf(r.RoundTripNs, time.Duration(inServer))
	for _, x := range []*float64{&s.Network.RoundTrip.P, &s.Network.RoundTrip.Q} { // round to microseconds
		*x = float64(time.Duration(*x).Round(time.Microsecond))
	}
	return s, r, nil
}
