package redisbucket

import (
	"fmt"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// cellSize is the length of one cell of a sliding window at the end of a bucket's text, periodSize
// that of a calendar's period: window.lua says what is there.
const cellSize, periodSize = 8, 8

// parseWindows reads what is charged to the windows of d from tail, the end of a bucket's text, and
// returns what is left of that. The levels and rests of windows, which are their sums and what
// window.lua says, become 0.
func parseWindows(d *protocol.BucketDump, tail string) (rest string, err error) {
	for k, l := range d.Config.Limits {
		if !l.Windowed() {
			continue
		}
		w, rest := &d.Windows[k], d.Rest[k]
		w.Sum, d.Level[k], d.Rest[k] = d.Level[k], 0, 0
		scale, _ := l.Scale(d.Config.Overcommit) // a valid limit has one
		size := int64(periodSize)
		if l.Kind == lease.KindSliding {
			size = cellSize * rest
		}
		if w.Sum < 0 || w.Sum > lease.WaitingMax ||
			size < 0 || size > int64(min(len(tail), cellSize*len(w.Cells))) {
			return "", fmt.Errorf("%w: a window is charged %d, with %d bytes for %d",
				errLayout, w.Sum, len(tail), size)
		}
		var fits bool
		if l.Kind == lease.KindSliding {
			fits = parseCells(w, tail[:size], max(0, (d.Now-scale.Tick)/scale.Cell), d.Now/scale.Cell)
		} else {
			all, _ := numbersOf(tail, 1)
			in := &wholes{left: all}
			w.Period, w.Begun = in.number(-1, wholeMax-1), rest
			// The period that has begun has not ended yet.
			starts := float64(w.Period)*float64(scale.Tick) + float64(scale.Offset)
			fits = in.err == nil && starts+float64(scale.Tick) > float64(d.Clock) &&
				starts < wholeMax/2 && w.Begun <= d.Now
		}
		if !fits {
			return "", fmt.Errorf("%w: what is charged to a window is out of range", errLayout)
		}
		tail = tail[size:]
	}
	return tail, nil
}

// parseCells reads the cells of a sliding window whose oldest live cell is first, and whose newest
// is last. It reports whether they are in order and make up its sum.
func parseCells(w *protocol.WindowDump, text string, first, last int64) bool {
	total, next := int64(0), first
	for ; text != ""; text = text[cellSize:] {
		cell, n := first+wholeAt(text, 0, 1), wholeAt(text, 1, 7)
		if cell < next || cell > last || n < 1 {
			return false
		}
		w.Cells[cell%int64(len(w.Cells))] = n
		total, next = total+n, cell+1
	}
	return total == w.Sum
}
