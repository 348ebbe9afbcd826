package redisbucket

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// limit returns a random limit, of any kind in a round with windows.
func (x *trio) limit() lease.Limit {
	if x.few != nil {
		return x.few[x.rng.IntN(len(x.few))]
	}
	if x.windows && x.rng.IntN(2) == 0 {
		return x.window()
	}
	return limit(x.rng)
}

// window returns a random sliding window or calendar, of a millisecond to half a century. Most are
// about as long as the test takes, so that what is charged is dropped while it is looked at.
func (x *trio) window() lease.Limit {
	rng := x.rng
	n := 1 + upTo(rng, 1000)
	if rng.IntN(16) == 0 {
		n = 1<<52 - 1
	}
	span := []int64{1000, 59_999, 100_000, 1_000_000, 10_000_000, day, 50 * 365 * day}[rng.IntN(7)]
	if span > 1000 && rng.IntN(2) == 0 {
		span = 1000 + rng.Int64N(span-1000)
	}
	per := time.Duration(span) * time.Microsecond
	l := lease.Sliding(n, per)
	if rng.IntN(3) == 0 {
		l = lease.Calendar(n, per, time.Duration(upTo(rng, span-1))*time.Microsecond)
	}
	if rng.IntN(8) == 0 {
		l.Burst = n // said, where it is left out elsewhere
	}
	return l
}

// sawWindows counts what happened to windows from before to after.
func (x *trio) sawWindows(before, after *protocol.BucketDump) {
	was, is := before.Config.Limits, after.Config.Limits
	if !slices.ContainsFunc(slices.Concat(was, is), lease.Limit.Windowed) {
		return
	}
	x.saw("windowed", true)
	if !slices.Equal(was, is) {
		x.saw("of another kind", slices.ContainsFunc(was, func(l lease.Limit) bool { return l.Kind != is[0].Kind }))
		return
	}
	for k, l := range is {
		old, new := &before.Windows[k], &after.Windows[k]
		x.saw("charged", new.Sum > old.Sum)
		x.saw("dropped", l.Kind == lease.KindSliding && new.Sum < old.Sum)
		x.saw("a new period", old.Sum > 0 && new.Period > old.Period)
		x.saw("cells", l.Kind == lease.KindSliding && slices.Max(new.Cells[:]) < new.Sum)
	}
}
