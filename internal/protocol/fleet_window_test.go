package protocol

import (
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Random schedules do this to windows: times of some milliseconds, which is as short as they are.

// randomWindow is a sliding window or a calendar. Lengths are few, so that limits of one length
// meet.
func (f *fleet) randomWindow() lease.Limit {
	length := []time.Duration{1000, 1500, 2000, 3000, 3000, 7001, 90_000}[f.rnd.IntN(7)] * time.Microsecond
	n := 1 + f.rnd.Int64N(12)
	if f.rnd.IntN(3) == 0 {
		return lease.Calendar(n, length, time.Duration(f.rnd.IntN(3))*length/5/time.Microsecond*time.Microsecond)
	}
	return lease.Sliding(n, length)
}

// passToABoundary lets time pass to a moment that matters to a window: the end of a cell, the
// moment at which one is dropped, or the boundary of a calendar; or to just before or after it.
func (f *fleet) passToABoundary() {
	for k, sc := range f.bucket.scales[:len(f.bucket.config.Limits)] {
		w := f.bucket.windows[k]
		if w == nil || f.rnd.IntN(2) == 0 {
			continue
		}
		at := (w.period+1)*sc.Tick + sc.Offset - f.server()
		if sc.Kind == lease.KindSliding {
			at = (f.bucket.now/sc.Cell+1)*sc.Cell - f.bucket.now
			if drops := w.dropsAt(&sc, 1+f.rnd.Int64N(3)); drops > 0 && f.rnd.IntN(2) == 0 {
				at = drops - f.bucket.now
			}
		}
		if at += f.rnd.Int64N(3) - 1; at > 0 && at < 10*sc.Tick {
			f.pass(at)
		}
		return
	}
}

// loseAWindow has all but n lease what there is, and spend it late, after the bucket was lost; n
// knows that it was, and asks for everything when something is dropped.
func (f *fleet) loseAWindow(n *node) {
	for range 2 { // first they hear of the bucket; then what was charged has been dropped
		for _, other := range f.nodes {
			f.calls(other, ask{Want: 20 * flags(other != n)})
			f.receiveAll()
		}
		for _, l := range f.bucket.config.Limits {
			f.pass(f.rnd.Int64N(2) * exact.Micros(l.TimeToFull()) * flags(f.rnd.IntN(2) == 0))
		}
	}
	for _, other := range f.nodes {
		f.calls(other, ask{Want: 20 * flags(other != n)})
		f.receiveAll()
	}
	if !f.knows(n) {
		return
	}
	f.lose(n)
	f.pass(f.rnd.Int64N(f.bucket.ttl))
	for _, other := range f.nodes {
		f.drain(other)
	}
	for range 6 {
		f.passToABoundary()
		f.asksForEverything(n)
	}
}
