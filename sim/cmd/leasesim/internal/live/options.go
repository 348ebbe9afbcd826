package live

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// Options describes a run.
type Options struct {
	// Scenario has only fields that real processes can play. The processes of a load of kind sim.Adversary
	// keep all tokens that they can get, and spend them just before each lease call.
	Scenario sim.Scenario
	Redis    string // host:port or a URL, see newClient; "" for an embedded Redis
	Key      string // prefix of the keys
}

// processesMost and requestsMost bound a run. A request takes 16 bytes of a file, and more in the audit.
const (
	processesMost = 256
	requestsMost  = 100_000_000
)

const workers = 2

var errScenario = fmt.Errorf("%w: live cannot run this scenario", ErrUsage)

// FromScenario returns the run of a scenario, with a new key and with an embedded Redis. A field that real
// processes cannot play gets its default and a note. The error wraps ErrUsage, and lists the values with
// which real processes cannot run, or cannot be compared with a simulation if compared is set.
func FromScenario(s sim.Scenario, compared bool) (o Options, notes []string, err error) {
	o = Options{Scenario: s, Key: "leasesim-" + strings.ToLower(rand.Text())}
	s = s.Defaults()
	bad := violation.List{Kind: errScenario}
	if len(s.Limits) != 1 || s.Limits[0].Kind == lease.KindCalendar {
		bad.Add("limits", nil, "is %v, must be one limit, and not a calendar", s.Limits)
	}
	ownLoad := func(g sim.Group) bool { return g.Workload != nil }
	attack := s.Workload.Kind == sim.Adversary && !slices.ContainsFunc(s.Groups, ownLoad)
	if _, err := sim.Requests(s, -1); err != nil && (compared || !attack) {
		bad.Adopt(err, violation.Under(""))
	}
	violation.Between(&bad, "groups[0].count", len(o.weights()), 1, processesMost)
	violation.Between(&bad, "duration", s.Duration, 100*time.Millisecond, time.Hour)
	if bad.Len() > 0 {
		return o, nil, bad.Err()
	}
	o.Scenario = o.playable()
	bad.Adopt(o.Scenario.Validate(), violation.Under(""))
	bad.Adopt(o.config().Validate(), violation.Under(""))
	own := o.Scenario.Defaults()
	all := own.RequestsPerS() * own.Duration.Seconds()
	switch own.Workload.Kind {
	case sim.Replay:
		all = float64(len(own.Workload.Trace.Requests))
	case sim.Adversary:
		all = float64(o.capacityOfAdversary()) * float64(len(o.weights()))
	}
	if all > requestsMost {
		bad.Add("duration", s.Duration, "makes %.0f requests, must be at most %d, because every request is recorded",
			all, requestsMost)
	}
	for _, d := range scenfile.Differences(s, own) {
		notes = append(notes, fmt.Sprintf("%s is %s, and %s for real processes", d.Path, d.First, d.Second))
	}
	return o, notes, bad.Err()
}

// playable returns o.Scenario with the defaults of all fields that real processes cannot play. playable keeps
// the fields that a run ignores, and those that a run measures: network.round_trip and the times of redis.
func (o Options) playable() sim.Scenario {
	s, f := o.Scenario.Defaults(), o.faults()
	p := s.Policy
	own := sim.Scenario{
		Name: s.Name, Description: s.Description, Seed: s.Seed, Reps: s.Reps, Rivals: s.Rivals,
		Duration: s.Duration, Limits: s.Limits, Keys: s.Keys, Workload: offered(s.Workload),
		Policy: lease.Policy{Target: p.Target, TTL: p.TTL, Overcommit: p.Overcommit, Weight: p.Weight,
			StrictExpiry: p.StrictExpiry, CallsPerSecond: p.CallsPerSecond,
			Fallback: lease.FallbackDeny}, // without which there is no bound
		Network: sim.Network{RoundTrip: s.Network.RoundTrip},
		Redis: sim.Redis{ServiceTime: s.Redis.ServiceTime, ExchangeTime: s.Redis.ExchangeTime,
			WakeTime: s.Redis.WakeTime},
	}
	for _, g := range s.Groups {
		its := sim.Group{Name: g.Name, Count: g.Count, Weight: g.Weight, Share: g.Share, Skew: g.Skew,
			RoundTrip: g.RoundTrip}
		if g.Workload != nil {
			w := offered(*g.Workload)
			its.Workload = &w
		}
		own.Groups = append(own.Groups, its)
	}
	if f.hang > 0 {
		own.Redis.Faults = s.Redis.Faults
	}
	if f.stop > 0 && cannotStop == "" {
		own.Groups[0].Pauses = s.Groups[0].Pauses
	}
	if last := len(s.Groups) - 1; f.kill > 0 {
		own.Groups[last].Scale = s.Groups[last].Scale
	}
	return own
}

// offered returns w with the defaults of all fields about the making of a request, but keeps VerbWait.
func offered(w sim.Workload) sim.Workload {
	if w.Verb != sim.VerbWait {
		w.Verb = ""
	}
	w.Actual, w.Hold = sim.TokenDist{}, sim.DurationDist{}
	return w
}

// faults has the times of the faults of a run; 0 means never.
type faults struct {
	kill          time.Duration // time of the kill -9 of the last process
	stop, stopFor time.Duration // time and length of a stop of the first process
	hang, hangFor time.Duration // time and length of a hang of the server
}

// faults returns the faults of the scenario that real processes can play.
func (o Options) faults() (f faults) {
	s := o.Scenario.Defaults()
	if all := s.Redis.Faults; len(all) == 1 && all[0].Kind == sim.FaultHang {
		f.hang, f.hangFor = all[0].At, all[0].For
	}
	if stop := s.Groups[0].Pauses; stop.Every == 0 && stop.For.Kind == "" {
		f.stop, f.stopFor = stop.At, time.Duration(stop.For.P)
	}
	last := s.Groups[len(s.Groups)-1]
	if all := last.Scale; len(all) == 1 && all[0].Kill && all[0].Count == last.Count-1 {
		f.kill = all[0].At
	}
	return f
}

func (o Options) weights() (all []int64) {
	for _, g := range o.Scenario.Defaults().Groups {
		all = append(all, slices.Repeat([]int64{g.Weight}, g.Count)...)
	}
	return all
}

// config returns the configuration of every process, without the weight.
func (o Options) config() hybrid.Config {
	return hybrid.Config{Limits: o.Scenario.Limits, Policy: o.Scenario.Policy}
}

func (o Options) leased() lease.Config {
	c := o.config()
	return c.Policy.ConfigFor(c.Limits, 0, c.CallTimeout)
}

func (o Options) limit() lease.Limit { return o.Scenario.Limits[0] }

// capacity returns the number of slots in the file of a process.
func (o Options) capacity(process int) (n int, err error) {
	if o.Scenario.Workload.Kind == sim.Adversary {
		return o.capacityOfAdversary(), nil
	}
	requests, err := sim.Requests(o.Scenario, process)
	if err == nil {
		for range requests {
			n++
		}
	}
	return n + 1, err
}

// capacityOfAdversary returns a capacity for several times the admissions and pauses of an adversary.
func (o Options) capacityOfAdversary() int {
	l, d := o.limit(), o.Scenario.Duration+2*time.Second
	admissions := float64(l.Capacity()+o.Scenario.Policy.Overcommit) + l.Rate()*d.Seconds()
	pauses := float64(o.Scenario.Duration) / float64(o.leased().Target/4+1)
	return int(10*admissions+4*workers*pauses) + 4096
}
