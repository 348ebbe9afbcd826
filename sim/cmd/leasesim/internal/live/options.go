// Package live runs a fleet of real processes against one Redis and audits every admission of every one.
//
// The parent (Run) re-executes its own binary once per process; a child (Child) imports hybrid like any
// service, offers load, and stamps each admission before and after the call into a file shared with the
// parent, which a kill does not take back. The parent then looks for the worst of all windows.
package live

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// The shapes of offered load.
const (
	// ShapeSteady offers evenly.
	ShapeSteady = "steady"
	// ShapeBursts offers the same number in bursts, of all processes at the same moments.
	ShapeBursts = "bursts"
	// ShapeAdversary asks for as much as it can, keeps it, and spends all of it just before each report.
	ShapeAdversary = "adversary"
)

// Shapes are the valid values of Options.Shape.
var Shapes = []string{ShapeSteady, ShapeBursts, ShapeAdversary}

// Options say what to run. Every field is what the flag of the same name says.
type Options struct {
	Redis      string // host:port or a URL, see newClient; empty: an embedded one
	Processes  int
	Rate       int64 // tokens per second
	Burst      int64
	Overcommit int64
	Offered    float64 // requests, as a multiple of Rate, of all processes together
	Shape      string
	Within     time.Duration // of a burst; 0: as fast as two workers can
	Duration   time.Duration
	Target     time.Duration
	TTL        time.Duration
	Strict     bool
	Key        string
	KillAfter  time.Duration // kill -9 the last process then; 0: never
	StopAfter  time.Duration // SIGSTOP the first process then, for twice the TTL; 0: never
	Forge      int64         // admissions that the first process invents at one instant, to try the audit
}

// recordsMax is how many admissions a run may expect: 24 bytes each, twice over, in a sparse file.
const recordsMax = 100_000_000

// ErrUsage is wrapped by Validate's error.
var ErrUsage = errors.New("leasesim: bad usage")

// Validate reports every violation, with value and bound.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrUsage}, args...)...))
	}
	if o.Processes < 1 || o.Processes > 256 {
		bad("--processes is %d, must be 1 to 256", o.Processes)
	}
	if !slices.Contains(Shapes, o.Shape) {
		bad("--shape is %q, must be one of %q", o.Shape, Shapes)
	}
	if math.IsNaN(o.Offered) || o.Offered < 0 || o.Offered > 1000 {
		bad("--offered is %v, must be 0 to 1000", o.Offered)
	}
	if o.Within < 0 || o.Within > period/2 || o.Within > 0 && o.Shape != ShapeBursts {
		bad("--within is %v, must be 0 to %v, and 0 but for --shape %s", o.Within, period/2, ShapeBursts)
	}
	if o.Duration < 100*time.Millisecond || o.Duration > time.Hour {
		bad("--duration is %v, must be 100ms to 1h", o.Duration)
	}
	if o.KillAfter < 0 || o.KillAfter >= o.Duration && o.KillAfter > 0 {
		bad("--kill-after is %v, must be 0 (never) or less than --duration (%v)", o.KillAfter, o.Duration)
	}
	if o.StopAfter < 0 || o.StopAfter >= o.Duration && o.StopAfter > 0 {
		bad("--stop-after is %v, must be 0 (never) or less than --duration (%v)", o.StopAfter, o.Duration)
	}
	if o.Redis != "" {
		if rdb, err := newClient(o.Redis); err != nil {
			bad("--redis: %w", err)
		} else {
			rdb.Close()
		}
	}
	if o.Key == "" {
		bad("--key is empty")
	}
	if o.Rate < 1 || o.Rate > 100_000_000 {
		bad("--rate is %d, must be 1 to 100000000 (tokens per second)", o.Rate)
	}
	if o.Burst < 1 {
		bad("--burst is %d, must be at least 1", o.Burst)
	}
	if o.Forge < 0 || o.Forge > recordsMax {
		bad("--forge is %d, must be 0 to %d", o.Forge, recordsMax)
	}
	if n := o.entitlement(); n > recordsMax {
		bad("burst + overcommit + rate x duration is %.0f, must be at most %d, as every admission is recorded", n, recordsMax)
	}
	if len(errs) == 0 {
		if err := o.config().Validate(); err != nil {
			bad("%w", err)
		}
	}
	return errors.Join(errs...)
}

func (o Options) limit() hybrid.Limit { return hybrid.PerSecond(o.Rate).WithBurst(o.Burst) }

// config is what every child gives to hybrid.New. The bound is promised for FallbackDeny.
func (o Options) config() hybrid.Config {
	return hybrid.Config{
		Limits: []hybrid.Limit{o.limit()},
		Policy: hybrid.Policy{
			Target:       o.Target,
			TTL:          o.TTL,
			Overcommit:   o.Overcommit,
			Fallback:     hybrid.FallbackDeny,
			StrictExpiry: o.Strict,
		},
	}
}

// ttl is T in force at the start.
func (o Options) ttl() time.Duration {
	c := o.config()
	return c.Policy.ConfigFor(c.Limits, 0, c.CallTimeout).TTL
}

func (o Options) target() time.Duration {
	c := o.config()
	return c.Policy.TargetFor(c.Limits)
}

func (o Options) bound() audit.Bound {
	return audit.Bound{Tokens: o.Rate, Per: time.Second, Burst: o.Burst, Overcommit: o.Overcommit}
}

// entitlement is the most that the bucket can give while the load lasts.
func (o Options) entitlement() float64 {
	return float64(o.Burst+o.Overcommit) + float64(o.Rate)*o.Duration.Seconds()
}

// capacity is how many admissions one process may record: twice what the whole fleet may admit.
func (o Options) capacity() int {
	seconds := (o.Duration + 2*time.Second).Seconds()
	return int(2*(float64(o.Burst+o.Overcommit)+float64(o.Rate)*seconds)) + int(o.Forge) + 1024
}
