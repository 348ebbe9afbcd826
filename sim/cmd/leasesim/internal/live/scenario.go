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

// withinMin is the shortest burst that processes can be relied upon to ask for on time, whose
// timers have a grain of a millisecond, and which share a few processors.
const withinMin = 10 * time.Millisecond

// NewKey is a key that nobody else uses.
func NewKey() string { return "leasesim-" + strings.ToLower(rand.Text()) }

// Scenario is what the processes of o are to the simulator, but for the network and the server: see
// Simulated. There is none for ShapeAdversary: what an adversary is leased hangs on which of two
// requests of one instant comes first, so that two simulations that differ in nothing else gave it
// 3 % and 98 % of the limit.
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

// FromScenario is the fleet that a scenario describes, with a key of its own, and without a Redis.
// Whatever the scenario has that live does not do, is an error, and each names a field; they wrap
// ErrUsage. Not looked at are what gives a scenario its name and the simulator its precision, the
// rivals, and what is measured: network.round_trip and redis.service_time.
func FromScenario(s sim.Scenario) (Options, error) {
	s = s.Defaults()
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: live cannot run this scenario: %s "+format, append([]any{ErrUsage, path}, args...)...))
	}
	o := Options{
		Processes: s.Groups[0].Count, Duration: s.Duration, Key: NewKey(), Offered: s.Workload.Load,
		Overcommit: s.Policy.Overcommit, Target: s.Policy.Target, TTL: s.Policy.TTL, Strict: s.Policy.StrictExpiry,
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
			bad("workload.within", "is %v, must be at least %v: no process asks for a burst at one instant", o.Within, withinMin)
		}
		if s.Duration%period != 0 {
			bad("duration", "is %v, must be a multiple of workload.every (%v): how many bursts there are would be chance", s.Duration, period)
		}
	default:
		bad("workload.kind", "is %s, must be %s (--shape %s) or %s (--shape %s)", s.Workload.Kind, sim.Constant, ShapeSteady, sim.Sync, ShapeBursts)
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

// serviceAssumed is what a lease call takes a real Redis (docs/figures.md), for one that does not
// say.
const serviceAssumed = 15 * time.Microsecond

// Simulated is s with the round trips and the service time of a real run, which are no results of
// the simulator but are put into it. They are taken from the run itself and not from one before: a
// round trip to an idle machine is 0.2 ms, to one that is busy with a burst of all processes 2 ms.
// In the simulator each way draws half of a round trip by itself, so that the whole varies a little
// less than what was measured.
func Simulated(s sim.Scenario, real Report) sim.Scenario {
	service := time.Duration(real.ServiceTimeNs)
	if service == 0 {
		service = serviceAssumed
	}
	trip := max(time.Duration(real.RoundTripNs.P50)-service, time.Microsecond)
	slow := max(time.Duration(real.RoundTripNs.P99)-service, trip)
	s.Network.RoundTrip = sim.DurationDist{Dist: sim.Dist{Kind: sim.DistLognormal, P: float64(trip), Q: float64(slow)}}
	s.Redis.ServiceTime = sim.Constantly(service)
	return s
}

// differences are the fields of s that are not as live has them. Every field is compared, so that one
// that is new in the simulator is not passed over in silence.
func (o Options) differences(s sim.Scenario) []scenfile.Difference {
	own := o.Scenario()
	own.Name, own.Description, own.Seed, own.Reps, own.Rivals = s.Name, s.Description, s.Seed, s.Reps, s.Rivals
	own.Limits = s.Limits // FromScenario has looked at them
	own.Network.RoundTrip, own.Redis.ServiceTime = s.Network.RoundTrip, s.Redis.ServiceTime
	own.Groups[0].Name, own.Groups[0].Share = s.Groups[0].Name, s.Groups[0].Share // it has all, whatever its share
	own.Workload = o.workload(s.Workload)
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

// workload is w with what counts for its kind as the processes do it. The kind itself has been judged.
func (o Options) workload(w sim.Workload) sim.Workload {
	w.Cost, w.Verb = sim.Cost{}, ""
	if o.Shape == ShapeBursts {
		w.Every = period
	}
	return w
}
