package live

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/rival"
)

// The shapes of offered load.
const (
	ShapeSteady    = "steady"
	ShapeBursts    = "bursts"    // of all processes at the same moments
	ShapeAdversary = "adversary" // keeps all that it can get, and spends it just before each report
)

// ShapeReplay names the load in which each process plays its part of a trace.
const ShapeReplay = "replay"

// Shapes are the valid values of Options.Shape.
var Shapes = []string{ShapeSteady, ShapeBursts, ShapeAdversary}

// Options describe a run. Flags of the same names describe the fields.
type Options struct {
	Redis      string // host:port or a URL, see newClient; empty: an embedded one
	Processes  int
	Limit      string // as text
	Overcommit int64
	Offered    float64 // requests, as a multiple of the limit's rate, of all processes together
	Shape      string
	Within     time.Duration // of a burst; 0: as fast as two workers can
	Duration   time.Duration
	Target     time.Duration
	TTL        time.Duration
	Strict     bool
	// CallsPerSecond is the budget of lease calls of all processes together; 0 for the default.
	CallsPerSecond int64
	Key            string
	// Trace is played in the place of a shape: each request by its process, for one of Keys keys.
	Trace     []sim.TraceRequest `json:"-"` // processes find their parts in a file
	Keys      int
	Deadline  time.Duration // of a request of the trace, which waits in line until then; 0: Allow
	Weights   []int64       // Policy.Weight of each process; none: 1
	KillAfter time.Duration // kill -9 the last process then; 0: never
	StopAfter time.Duration // stop the first process then; 0: never
	StopFor   time.Duration // 0: twice the TTL
	HangAfter time.Duration // keep the server from answering anything from then
	HangFor   time.Duration // for so long; 0: never
	Forge     int64         // admissions that the first process invents at one instant, to try the audit
}

const (
	// workers share a process's load, so that its pool is contended as in a service.
	workers = 2
	// period is from one burst to the next.
	period = 500 * time.Millisecond
)

// recordsMax is how many admissions a run may expect: 16 bytes each, twice over, in a sparse file.
const recordsMax = 100_000_000

// ErrUsage is wrapped by Validate's error.
var ErrUsage = errors.New("leasesim: bad usage")

// Validate reports every violation, with value and bound.
func (o Options) Validate() error {
	bad := violation.List{Kind: ErrUsage}
	demand := func(holds bool, flag string, value any, want string, args ...any) {
		if !holds {
			bad.Add(flag, value, want, args...)
		}
	}
	violation.Between(&bad, "--processes", o.Processes, 1, ProcessesMost)
	demand(slices.Contains(Shapes, o.Shape) || o.Shape == ShapeReplay, "--shape", o.Shape,
		"must be one of %q", Shapes)
	violation.Between(&bad, "--offered", o.Offered, 0, OfferedMost)
	demand(o.Within == 0 || o.Within > 0 && o.Within <= period/2 && o.Shape == ShapeBursts, "--within", o.Within,
		"must be 0 to %v, and only for --shape %s", period/2, ShapeBursts)
	violation.Between(&bad, "--duration", o.Duration, 100*time.Millisecond, time.Hour)
	const during = "must be 0 (never) or less than --duration (%v)"
	demand(o.KillAfter == 0 || o.KillAfter > 0 && o.KillAfter < o.Duration, "--kill-after", o.KillAfter,
		during, o.Duration)
	demand(o.StopAfter == 0 || cannotStop == "", "--stop-after", o.StopAfter, "must be 0: %s", cannotStop)
	demand(o.StopAfter == 0 || o.StopAfter > 0 && o.StopAfter < o.Duration, "--stop-after", o.StopAfter,
		during, o.Duration)
	if o.Redis != "" {
		rdb, err := newClient(o.Redis)
		demand(err == nil, "--redis", nil, "cannot be used: %v", err)
		if err == nil {
			rdb.Close()
		}
	}
	demand(o.Key != "", "--key", nil, "is empty")
	l, err := lease.ParseLimit(o.Limit)
	if err == nil {
		_, err = rival.NewCentral([]lease.Limit{l})
	}
	if err != nil {
		bad.Adopt(err, violation.Under("--limit"))
		return bad.Err()
	}
	violation.Between(&bad, "--forge", o.Forge, 0, recordsMax)
	most := o.entitlement(o.Duration)
	demand(most <= recordsMax, o.entitled(), math.Round(most),
		"must be at most %d, because every admission is recorded", recordsMax)
	if bad.Len() == 0 {
		bad.Adopt(o.config().Validate(), func(path string) string { return cmp.Or(flags[path], path) })
	}
	return bad.Err()
}

// flags are those that set a field of the configuration.
var flags = map[string]string{
	"Policy.Target": "--target", "Policy.TTL": "--ttl", "Policy.Overcommit": "--overcommit",
	"Policy.CallsPerSecond": "--calls-per-second", "Limits[0]": "--limit",
}

// config returns the configuration of every child. The bound is promised for FallbackDeny.
func (o Options) config() hybrid.Config {
	return hybrid.Config{
		Limits: []hybrid.Limit{o.limit()},
		Policy: hybrid.Policy{
			Target: o.Target, TTL: o.TTL, Overcommit: o.Overcommit,
			Fallback: hybrid.FallbackDeny, StrictExpiry: o.Strict,
			CallsPerSecond: o.CallsPerSecond,
		},
	}
}

// leased returns the lease configuration of the run.
func (o Options) leased() lease.Config {
	c := o.config()
	return c.Policy.ConfigFor(c.Limits, 0, c.CallTimeout)
}

// limit returns the limit of the run. It is invalid where Limit is no limit, which Validate refuses.
func (o Options) limit() lease.Limit {
	l, _ := lease.ParseLimit(o.Limit)
	return l
}

// entitlement returns the most tokens that the limit can give in d: as many whole windows as fit,
// and one more of a calendar, as a run may begin and end within a period.
func (o Options) entitlement(d time.Duration) float64 {
	l := o.limit()
	most := float64(l.Capacity()) + l.Rate()*d.Seconds()
	if l.Windowed() {
		windows := max(1, math.Ceil(float64(d)/float64(l.Per)))
		if l.Kind == lease.KindCalendar {
			windows++
		}
		most = float64(l.Tokens) * windows
	}
	return most + float64(o.Overcommit)
}

func (o Options) entitled() string {
	if o.limit().Windowed() {
		return "tokens + overcommit of as many windows as fit"
	}
	return "burst + overcommit + rate x duration"
}

// capacity returns how many admissions one process may record: twice the whole fleet's.
func (o Options) capacity() int {
	if o.Shape == ShapeReplay {
		return len(o.Trace) + 1
	}
	return int(2*o.entitlement(o.Duration+2*time.Second)) + int(o.Forge) + 1024
}

// denialsMax bounds how many denials one process may record. With more, nothing is replayed.
const denialsMax = 20_000_000

// denials returns how many denials one process has room to record.
func (o Options) denials() int {
	asked := 2 * o.Offered * o.limit().Rate() * (o.Duration + 2*time.Second).Seconds()
	if o.Shape == ShapeAdversary {
		pauses := float64(o.Duration) / float64(o.leased().Target/4+1)
		asked = 4*workers*pauses + 4*float64(o.capacity())
	}
	return int(min(asked, denialsMax-2048)) + 2048
}

// Defaults and bounds of Options.
const (
	DurationDefault = 5 * time.Second
	OfferedDefault  = 2.0 // the limit denies half of it
	OfferedMost     = 1000.0
	ProcessesMost   = 256
)

// ThreeWindows returns how long a run lasts by default, to see three windows or periods of up to a minute.
func (o Options) ThreeWindows() time.Duration {
	if l := o.limit(); l.Windowed() {
		return max(DurationDefault, 3*min(l.Per, time.Minute))
	}
	return DurationDefault
}
