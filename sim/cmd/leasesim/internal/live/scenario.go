package live

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// withinMin is the shortest burst that a scenario may have. Processes cannot be relied upon to ask for a
// shorter one on time: their timers have a grain of a millisecond, and they share a few processors.
const withinMin = 10 * time.Millisecond

// needsTrace is why a shape of live is not a scenario's load, while a trace can be.
const needsTrace = "must be played: its requests must be drawn, see Played"

var errScenario = fmt.Errorf("%w: live cannot run this scenario", ErrUsage)

// NewKey returns a random key.
func NewKey() string { return "leasesim-" + strings.ToLower(rand.Text()) }

// scenario describes the fleet to the simulator, except for its network and its server: see Simulated.
// It does not describe ShapeAdversary. The leases of an adversary depend on which of two simultaneous
// requests comes first, which no simulation can know.
func (o Options) scenario() sim.Scenario {
	w := sim.Workload{Kind: sim.Constant, Load: o.Offered}
	if o.Shape == ShapeBursts {
		w.Kind, w.Every, w.Within = sim.Sync, period, o.Within
	}
	c := o.config()
	return sim.Scenario{
		Duration: o.Duration, Limits: c.Limits, Policy: c.Policy,
		Groups: []sim.Group{{Count: o.Processes}}, Workload: w,
	}
}

// Played returns s as real processes run it: itself where one of live's shapes is its load, and else with its
// requests drawn, for the processes and the simulator to play the same.
func Played(s sim.Scenario) (sim.Scenario, error) {
	if _, err := FromScenario(s); err == nil {
		return s, nil
	}
	return sim.Record(s)
}

// FromScenario returns the fleet that a scenario describes, with a key of its own and without a Redis. Each
// field that asks for something that live cannot do is an error that wraps ErrUsage; Played puts some of them
// into a trace. It ignores the name, the description, the seed, the number of replications and the rivals,
// and also what a real run measures: network.round_trip and the times of redis.
func FromScenario(s sim.Scenario) (Options, error) {
	s = s.Defaults()
	bad := violation.List{Kind: errScenario}
	demand := func(holds bool, path, want string, args ...any) {
		if !holds {
			bad.Add(path, nil, want, args...)
		}
	}
	o := Options{
		Processes: s.Groups[0].Count, Duration: s.Duration, Key: NewKey(),
		Offered: s.Workload.Load, Shape: ShapeSteady, Overcommit: s.Policy.Overcommit,
		Target: s.Policy.Target, TTL: s.Policy.TTL, Strict: s.Policy.StrictExpiry,
		CallsPerSecond: s.Policy.CallsPerSecond,
	}
	o.Limit = s.Limits[0].String()
	demand(len(s.Limits) == 1 && s.Limits[0].Kind != lease.KindCalendar,
		"limits", "is %v, must be one limit and not a calendar: the run begins at a random time of its period",
		s.Limits)
	if s.Workload.Rate > 0 {
		o.Offered = float64(s.Workload.Rate) / s.Limits[0].Rate()
	}
	second := s.Limits[0].Per == time.Second && !s.Limits[0].Windowed()
	switch s.Workload.Kind {
	case sim.Constant:
		demand(second, "workload", needsTrace)
	case sim.Sync: // how many bursts there are would be chance if the duration were no multiple
		o.Shape, o.Within = ShapeBursts, s.Workload.Within
		demand(second && o.Within >= withinMin && s.Duration%period == 0, "workload", needsTrace)
	case sim.Replay:
		o.replays(s)
	default:
		demand(false, "workload.kind", "is %s, must be one whose requests do not depend on answers, with one verb for "+
			"all groups", s.Workload.Kind)
	}
	for _, d := range o.differences(s) {
		demand(false, d.Path, "is %s, must be %s", d.First, d.Second)
	}
	if bad.Len() > 0 {
		return o, bad.Err()
	}
	return o, o.Validate()
}

// Differences returns the fields of s, which was Played, that ask for something else than what live does, and
// what that is.
func Differences(s sim.Scenario) []scenfile.Difference {
	o, _ := FromScenario(s)
	return o.differences(s.Defaults())
}

// differences returns the fields of s that ask for something else than what live does. It compares
// all fields, so that one that is new in the simulator cannot be forgotten here.
func (o Options) differences(s sim.Scenario) []scenfile.Difference {
	own := o.scenario()
	own.Name, own.Description = s.Name, s.Description
	own.Seed, own.Reps, own.Rivals = s.Seed, s.Reps, s.Rivals
	own.Limits = s.Limits // FromScenario has looked at them
	own.Network.RoundTrip, own.Redis.ServiceTime = s.Network.RoundTrip, s.Redis.ServiceTime
	own.Redis.ExchangeTime, own.Redis.WakeTime = s.Redis.ExchangeTime, s.Redis.WakeTime
	own.Groups[0].Name = s.Groups[0].Name
	own.Groups[0].Share = s.Groups[0].Share // one group has all, whatever its share
	own.Groups[0].RoundTrip = s.Groups[0].RoundTrip
	own.Workload = s.Workload // of which only these fields count for what live offers
	own.Workload.Cost, own.Workload.Verb = sim.Cost{}, ""
	own.Workload.Actual, own.Workload.Hold, own.Workload.Cancelled = sim.TokenDist{}, sim.DurationDist{}, 0
	if o.Shape == ShapeBursts {
		own.Workload.Every = period
	}
	if o.Shape == ShapeReplay {
		own.Keys, own.Policy.Weight, own.Groups, own.Workload.Repeated = s.Keys, s.Policy.Weight, nil, false
		if own.Workload.Patience = (sim.DurationDist{}); o.Deadline > 0 {
			own.Workload.Verb = s.Workload.Verb
		}
		if o.HangFor > 0 {
			own.Redis.Faults = s.Redis.Faults
		}
		for _, g := range s.Groups {
			own.Groups = append(own.Groups, sim.Group{
				Name: g.Name, Count: g.Count, Weight: g.Weight, Share: g.Share, RoundTrip: g.RoundTrip,
			})
		}
		if o.StopAfter > 0 {
			own.Groups[0].Pauses = s.Groups[0].Pauses
		}
		if last := len(s.Groups) - 1; o.KillAfter > 0 {
			own.Groups[last].Scale = s.Groups[last].Scale
		}
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

// replays takes what a scenario says of a recorded load, and of what happens meanwhile.
func (o *Options) replays(s sim.Scenario) {
	if s.Workload.Verb == sim.VerbWait {
		o.Deadline = s.Workload.Deadline
	}
	if all := s.Redis.Faults; len(all) == 1 && all[0].Kind == sim.FaultHang && all[0].At > 0 {
		o.HangAfter, o.HangFor = all[0].At, all[0].For
	}
	o.Shape, o.Trace, o.Keys, o.Processes = ShapeReplay, s.Workload.Trace.Requests, s.Keys.Count, 0
	for _, g := range s.Groups {
		o.Processes += g.Count
		o.Weights = append(o.Weights, slices.Repeat([]int64{g.Weight}, g.Count)...)
	}
	if stop := s.Groups[0].Pauses; stop.Every == 0 && stop.For.Kind == "" {
		o.StopAfter, o.StopFor = stop.At, time.Duration(stop.For.P)
	}
	last := s.Groups[len(s.Groups)-1]
	if all := last.Scale; len(all) == 1 && all[0].Kill && all[0].Count == last.Count-1 {
		o.KillAfter = all[0].At
	}
}
