package live

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// withinMin is the shortest burst that a scenario may have. Processes cannot be relied upon to ask
// for a shorter one on time: their timers have a grain of a millisecond, and they share a few
// processors.
const withinMin = 10 * time.Millisecond

// NewKey is a key that nobody else uses.
func NewKey() string { return "leasesim-" + strings.ToLower(rand.Text()) }

// Scenario describes the fleet to the simulator, except for its network and its server: see
// Simulated. It does not describe ShapeAdversary. What an adversary is leased depends on which of
// two simultaneous requests comes first, which no simulation can know.
func (o Options) Scenario() sim.Scenario {
	w := sim.Workload{Kind: sim.Constant, Load: o.Offered}
	if o.Shape == ShapeBursts {
		w.Kind, w.Every, w.Within = sim.Sync, period, o.Within
	}
	return sim.Scenario{
		Duration: o.Duration, Limits: []lease.Limit{o.limit()}, Policy: o.config().Policy,
		Groups: []sim.Group{{Count: o.Processes}}, Workload: w,
	}
}

// FromScenario returns the fleet that a scenario describes, with a key of its own and without a
// Redis. Each field that asks for something that live cannot do is an error that wraps ErrUsage. It
// ignores the name, the description, the seed, the number of replications and the rivals, and also
// what a real run measures: network.round_trip and redis.service_time.
func FromScenario(s sim.Scenario) (Options, error) {
	s = s.Defaults()
	var errs []error
	bad := func(path, format string, args ...any) {
		format = "%w: live cannot run this scenario: %s " + format
		errs = append(errs, fmt.Errorf(format, append([]any{ErrUsage, path}, args...)...))
	}
	o := Options{
		Processes: s.Groups[0].Count, Duration: s.Duration, Key: NewKey(), Offered: s.Workload.Load,
		Overcommit: s.Policy.Overcommit, Target: s.Policy.Target, TTL: s.Policy.TTL,
		Strict: s.Policy.StrictExpiry,
	}
	if len(s.Limits) == 1 && s.Limits[0].Per == time.Second {
		o.Rate, o.Burst = s.Limits[0].Tokens, s.Limits[0].Capacity()
	} else {
		bad("limits", "is %v, must be one limit per second", s.Limits)
	}
	if s.Workload.Rate > 0 {
		o.Offered = float64(s.Workload.Rate) / float64(max(o.Rate, 1))
	}
	switch s.Workload.Kind {
	case sim.Constant:
		o.Shape = ShapeSteady
	case sim.Sync:
		o.Shape, o.Within = ShapeBursts, s.Workload.Within
		if o.Within < withinMin {
			bad("workload.within", "is %v, must be at least %v: no process asks for a burst at one instant",
				o.Within, withinMin)
		}
		if s.Duration%period != 0 {
			bad("duration", "is %v, must be a multiple of workload.every (%v): "+
				"how many bursts there are would be chance", s.Duration, period)
		}
	default:
		bad("workload.kind", "is %s, must be %s (--shape %s) or %s (--shape %s)",
			s.Workload.Kind, sim.Constant, ShapeSteady, sim.Sync, ShapeBursts)
		o.Shape = ShapeSteady
	}
	for _, d := range o.differences(s) {
		bad(d.Path, "is %s, must be %s", d.First, d.Second)
	}
	if len(errs) == 0 {
		errs = append(errs, o.Validate())
	}
	return o, errors.Join(errs...)
}

// serviceAssumed is how long a lease call takes a real Redis (docs/figures.md). It stands in for a
// server that does not say.
const serviceAssumed = 15 * time.Microsecond

// Simulated returns s with the round trips and the service time that a real run measured: the
// simulator needs them as input. They come from the run that is compared, because a machine that is
// busy with a burst of all processes answers ten times as slowly as an idle one. The simulator
// draws half a round trip for each way, so that the whole varies a little less than what was
// measured.
func Simulated(s sim.Scenario, real Report) sim.Scenario {
	service := time.Duration(real.ServiceTimeNs)
	if service == 0 {
		service = serviceAssumed
	}
	trip := max(time.Duration(real.RoundTripNs.P50)-service, time.Microsecond)
	slow := max(time.Duration(real.RoundTripNs.P99)-service, trip)
	measured := sim.Dist{Kind: sim.DistLognormal, P: float64(trip), Q: float64(slow)}
	s.Network.RoundTrip = sim.DurationDist{Dist: measured}
	s.Redis.ServiceTime = sim.Constantly(service)
	return s
}

// differences returns the fields of s that ask for something else than what live does. It compares
// all fields, so that one that is new in the simulator cannot be forgotten here.
func (o Options) differences(s sim.Scenario) []scenfile.Difference {
	own := o.Scenario()
	own.Name, own.Description = s.Name, s.Description
	own.Seed, own.Reps, own.Rivals = s.Seed, s.Reps, s.Rivals
	own.Limits = s.Limits // FromScenario has looked at them
	own.Network.RoundTrip, own.Redis.ServiceTime = s.Network.RoundTrip, s.Redis.ServiceTime
	own.Groups[0].Name = s.Groups[0].Name
	own.Groups[0].Share = s.Groups[0].Share // one group has all, whatever its share
	own.Workload = s.Workload               // of which only these fields count for what live offers
	own.Workload.Cost, own.Workload.Verb = sim.Cost{}, ""
	if o.Shape == ShapeBursts {
		own.Workload.Every = period
	}
	if s.Policy.Weight == 1 {
		own.Policy.Weight = 1 // as 0
	}
	all := scenfile.Differences(s, own.Defaults())
	for i := range all {
		if all[i].Path == "groups" {
			all[i].First, all[i].Second = fmt.Sprintf("a list of %d", len(s.Groups)), "one group"
		}
	}
	return all
}
