package protocol

import (
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A model of a limit that is a window knows this: its meter, and how it is written down.

// spentTicks are more than a window of a model has.
const spentTicks = 8

// admit counts units in the meter.
func (w *world) admit(units int64) {
	if !w.limit.Windowed() {
		w.x = max(0, w.x+units)
		return
	}
	w.spent[0] += units
	w.worst()
}

// ages lets the meter of a window go on by a tick.
func (w *world) ages() {
	if !w.limit.Windowed() {
		return
	}
	length := exact.Micros(w.limit.Per)
	if w.back > 0 {
		if w.server()%length == 0 {
			w.spent[0], w.spent[1], w.spent[2] = w.spent[1], 0, w.spent[0]
		}
		w.worst()
		return
	}
	copy(w.spent[1:], w.spent[:])
	w.spent[0] = 0
	if w.limit.Kind == lease.KindCalendar {
		length = w.now % length // since the boundary
	} else {
		length -= w.tick
	}
	clear(w.spent[length/w.tick+1:])
	w.worst()
}

// stepsBack has the server's clock step back, by less than a period.
func (w *world) stepsBack() {
	length := exact.Micros(w.limit.Per)
	before := w.server() / length
	if w.behind = w.back; w.server()/length < before {
		w.spent[0], w.spent[1], w.spent[2] = w.spent[2], w.spent[0], 0
	}
	w.worst()
}

// worst makes x what the worst window admitted that ends now.
func (w *world) worst() {
	if w.back > 0 {
		w.x = max(w.spent[0], w.spent[1])
		return
	}
	w.x = 0
	sum := int64(0)
	for _, n := range w.spent {
		sum += n
		w.x = max(w.x, sum)
	}
}

// left is level k, or what window k has: without regard to a loss that is waited out.
func (w *world) left(b *Bucket, k int) int64 {
	if b.windows[k] == nil {
		return b.level[k]
	}
	return b.scales[k].Capacity + b.config.Overcommit - b.ring.ledger() - b.windows[k].sum
}

// windows describes what the windows of the bucket count.
func (d *describer) windows(to []byte, w *world) []byte {
	s := &w.bucket
	if s.windows == [lease.LimitsMax]*window{} && !w.limit.Windowed() {
		return to
	}
	for k, win := range s.windows {
		if win != nil {
			to = d.window(to, w, win, &s.scales[k], w.now)
		}
	}
	return put(to, d.near(s.frozen-w.now-w.grain+1))
}

// window describes win, which was advanced up to the time at.
func (d *describer) window(to []byte, w *world, win *window, sc *lease.Scale, at int64) []byte {
	if sc.Kind == lease.KindCalendar {
		return put(to, win.sum, d.near(w.now-w.now%sc.Tick-win.period*sc.Tick), d.near(w.now-win.begun))
	}
	to = put(to, d.near((at/sc.Cell-win.first)*w.grain))
	for j := win.first; j <= win.first+sc.Tick/sc.Cell+1; j++ {
		to = put(to, *win.slot(j))
	}
	return to
}

// pasts describes what the bucket remembers of limits that have left.
func (d *describer) pasts(to []byte, w *world) []byte {
	if w.alternative == nil {
		return to
	}
	s := &w.bucket
	to = put(to, d.near(w.now-s.forgotAt), int64(len(s.pasts)))
	for i := range s.pasts {
		p := s.pasts[i]
		to = put(to, flags(p.limit.Equal(w.limit)), p.usedAt(w.now))
		if p.scale.Kind != lease.KindBucket {
			p.advance(&p.scale, w.now, w.now)
			to = d.window(put(to, d.near(w.now-p.at)), w, &p.window, &p.scale, w.now)
		}
	}
	return to
}
