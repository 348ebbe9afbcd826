package live

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/rival"
)

// validateLimit returns what is wrong with the limit alone.
func (o Options) validateLimit() error {
	l, err := lease.ParseLimit(o.Limit)
	if err == nil {
		_, err = rival.NewCentral([]lease.Limit{l})
	}
	return err
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
