package live

import (
	"math"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/rival"
)

// validateLimit demands what concerns the limits alone, and reports whether there is one.
func (o Options) validateLimit(demand func(holds bool, format string, args ...any)) bool {
	if o.Limit == "" {
		demand(o.Rate >= 1 && o.Rate <= recordsMax,
			"--rate is %d, must be 1 to %d (tokens per second)", o.Rate, recordsMax)
		demand(o.Burst >= 1, "--burst is %d, must be at least 1", o.Burst)
	}
	all := []string{o.Limit}
	if o.Change != "" {
		to, at, _ := cutLast(o.Change, "@")
		all = append(all, to)
		after, err := time.ParseDuration(at)
		demand(err == nil && after > 0 && after < o.Duration, "--change is %q, must be LIMIT@TIME, "+
			"as in '50 in 1m@12s', and the time less than --duration (%v)", o.Change, o.Duration)
		demand(o.FlushAfter == 0, "--change and --flush-after are for two runs: what is set is lost with the rest")
	}
	for _, text := range all {
		if text == "" {
			continue
		}
		l, err := lease.ParseLimit(text)
		if err == nil {
			_, err = rival.NewCentral([]lease.Limit{l})
		}
		demand(err == nil, "the limit %q: %w", text, err)
		if err != nil {
			return false
		}
	}
	return true
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// limit is the one at the start. Where Limit is no limit, which Validate refuses, it is not valid.
func (o Options) limit() lease.Limit {
	if o.Limit == "" {
		return lease.PerSecond(o.Rate).WithBurst(o.Burst)
	}
	l, _ := lease.ParseLimit(o.Limit)
	return l
}

// change is what the limit becomes, and when; false if it stays.
func (o Options) change() (to lease.Limit, after time.Duration, changes bool) {
	if o.Change == "" {
		return lease.Limit{}, 0, false
	}
	text, at, _ := cutLast(o.Change, "@")
	to, _ = lease.ParseLimit(text)
	after, _ = time.ParseDuration(at)
	return to, after, true
}

// isCalendar reports whether a limit goes by the server's clock.
func (o Options) isCalendar() bool {
	to, _, _ := o.change()
	return o.limit().Kind == lease.KindCalendar || to.Kind == lease.KindCalendar
}

// meanRate is what Offered is a multiple of: that of the limit, of two that of the higher one.
func (o Options) meanRate() float64 {
	rate := o.limit().Rate()
	if to, _, ok := o.change(); ok {
		rate = max(rate, to.Rate())
	}
	return rate
}

// entitlement is the most that the limit can give in a time.
func (o Options) entitlement(d time.Duration) float64 {
	to, after, changes := o.change()
	if !changes || after >= d {
		return gives(o.limit(), d) + float64(o.Overcommit)
	}
	most := gives(o.limit(), after) + gives(to, d-after) + float64(o.Overcommit)
	if !o.limit().Windowed() && !to.Windowed() { // a change fills no bucket
		most -= float64(min(o.limit().Capacity(), to.Capacity()))
	}
	return most
}

// gives is what a limit gives in a time: a window all of it whenever one begins, of as many as fit.
// A run may begin and end within a calendar's period.
func gives(l lease.Limit, d time.Duration) float64 {
	if l.Windowed() {
		windows := max(1, math.Ceil(float64(d)/float64(l.Per)))
		if l.Kind == lease.KindCalendar {
			windows++
		}
		return float64(l.Tokens) * windows
	}
	return float64(l.Capacity()) + l.Rate()*d.Seconds()
}

// entitled says what entitlement is.
func (o Options) entitled() string {
	switch {
	case o.Change != "":
		return "what both limits give"
	case o.limit().Windowed():
		return "tokens + overcommit of as many windows as fit"
	}
	return "burst + overcommit + rate x duration"
}

// capacity is how many admissions one process may record: twice what the whole fleet may admit, as
// often as there are buckets.
func (o Options) capacity() int {
	if o.Shape == ShapeReplay {
		return len(o.Trace) + 1
	}
	buckets := 2.0
	if o.FlushAfter > 0 {
		buckets = 4
	}
	return int(buckets*o.entitlement(o.Duration+2*time.Second)) + int(o.Forge) + 1024
}

// denialsMax is how many refusals one process may record. With more, nothing is replayed.
const denialsMax = 20_000_000

// denials is how many refusals one process has room to record.
func (o Options) denials() int {
	asked := 2 * o.Offered * o.meanRate() * (o.Duration + 2*time.Second).Seconds()
	if o.Shape == ShapeAdversary {
		pauses := float64(o.Duration) / float64(o.leased().Target/4+1)
		asked = 4*workers*pauses + 4*float64(o.capacity())
	}
	return int(min(asked, denialsMax-2048)) + 2048
}

const (
	// DurationDefault is long enough for a token bucket.
	DurationDefault = 5 * time.Second
	// OfferedDefault is a load that the limit denies half of.
	OfferedDefault = 2.0
	// OfferedMost is the largest load, and ProcessesMost the largest fleet.
	OfferedMost   = 1000.0
	ProcessesMost = 256
	// longWindow is the longest window of which three are waited for.
	longWindow = time.Minute
)

// ThreeWindows is how long a run is by default, to see three windows or periods of each limit.
func (o Options) ThreeWindows() time.Duration {
	d := DurationDefault
	to, _, _ := o.change()
	for _, l := range []lease.Limit{o.limit(), to} {
		if l.Windowed() {
			d = max(d, 3*min(l.Per, longWindow))
		}
	}
	return d
}
