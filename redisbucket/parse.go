package redisbucket

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// These are the sizes, in bytes, of the parts of a stored bucket and of a record (common.lua, lease.lua), and
// the bits of a bucket's form.
const (
	headSize, levelSize                = 36, 10
	datedSize, usedSize, pastSize      = 7, 152, 46
	owedSize, recordSize               = 8, 76
	formDated, formUsed, formPast byte = 4, 8, 16
)

// cellSize is the number of bytes that the store has for a cell of a sliding window, periodSize for a period
// of a calendar.
const cellSize, periodSize = 8, 16

// errLayout reports a value that the scripts of this version do not store.
var errLayout = errors.New("unknown format of stored state")

// Every value begins with layoutMark bytes: "y", and the layout's number plus formUnit times the form.
const layoutMark, formUnit = 2, 8

// ofLayout returns text without its layout mark, and the form.
func ofLayout(text string) (rest string, form byte, err error) {
	switch {
	case len(text) < layoutMark || text[0] != 'y' || text[1]%formUnit < layoutOldest:
		return "", 0, fmt.Errorf("%w: the layout mark is missing", errLayout)
	case text[1]%formUnit > layout:
		return "", 0, newerLayout(int64(text[1] % formUnit))
	}
	return text[layoutMark:], text[1] / formUnit, nil
}

func newerLayout(number int64) error {
	return fmt.Errorf("%w of yuzhi: its layout is %d, this release reads up to %d", errNewer, number, layout)
}

// reader takes numbers from the start of a text, which must be long enough. A reader keeps the first error.
type reader struct {
	left string
	err  error
}

func (r *reader) whole(size int) (v int64) {
	for i := size - 1; i >= 0; i-- {
		v = v<<8 | int64(r.left[i])
	}
	r.left = r.left[size:]
	return v
}

func (r *reader) double() float64 {
	bits := binary.LittleEndian.Uint64([]byte(r.left[:8]))
	r.left = r.left[8:]
	return math.Float64frombits(bits)
}

// number reads size bytes, whose value must be from least to most.
func (r *reader) number(size int, least, most int64) int64 {
	n := r.whole(size)
	if n < least || n > most {
		if r.err == nil {
			r.err = fmt.Errorf("%w: a number is %d, must be %d to %d", errLayout, n, least, most)
		}
		return least
	}
	return n
}

func (r *reader) time(most int64) int64 { return r.number(7, 0, most) }

func (r *reader) ttl() int64 { return r.number(4, 2, ttlMax.Microseconds()) }

// bucketSize returns the size of a bucket of the given form, without its mark and the charges of windows.
func bucketSize(form byte) int {
	limits := int(form%formDated) + 1
	n := headSize + levelSize*limits + configSize(limits)
	if form&formDated != 0 {
		n += datedSize
	}
	if form&formUsed != 0 {
		n += usedSize
	}
	if form&formPast != 0 {
		n += pastSize + owedSize*limits
	}
	return n
}

func parseBucket(text string) (d protocol.BucketDump, err error) {
	text, form, err := ofLayout(text)
	if err != nil {
		return d, err
	}
	limits := int(form%formDated) + 1
	if len(text) < bucketSize(form) || form&formPast != 0 && form&formUsed == 0 {
		return d, fmt.Errorf("%w: the length is %d bytes", errLayout, len(text))
	}
	r := reader{left: text}
	d.Exists = true
	d.Epoch, d.Counter, d.Now = r.number(7, 1, lease.WaitingMax), r.whole(6), r.time(lease.WaitingMax)
	ttl := r.ttl()
	d.Spent, d.Denied, d.SetAt = r.whole(6), r.whole(6), d.Epoch-1
	d.Level[0], d.Rest[0] = r.whole(7), r.whole(3)
	if form&formUsed != 0 {
		parseUsed(&d, &r)
	}
	for k := 1; k < limits; k++ {
		d.Level[k], d.Rest[k] = r.whole(7), r.whole(3)
	}
	if form&formDated != 0 {
		d.SetAt = r.time(d.Now)
	} else if d.SetAt > d.Now {
		r.err = fmt.Errorf("%w: the epoch is after the last call", errLayout)
	}
	d.Created, d.Clock, d.StoodAt, d.Proposed, d.ProposedAt, d.Updated = d.Epoch, d.Now, d.Now, ttl, d.Now, d.Now
	owed := [lease.LimitsMax]float64{}
	if form&formPast != 0 {
		d.Created, d.Clock, d.Frozen = r.time(d.Now), r.time(lease.WaitingMax), r.time(d.Now+leaseMax.Microseconds())
		d.StoodAt, d.Proposed, d.ProposedAt, d.Updated = r.time(d.Now), r.ttl(), r.time(d.Now), r.time(d.Now)
		for k := range limits {
			owed[k] = r.double()
		}
	}
	config := r.left[:configSize(limits)]
	r.left = r.left[len(config):]
	if r.err != nil {
		return d, r.err
	}
	if d.Config, d.Switch, err = parseConfig(config, time.Duration(ttl)*time.Microsecond); err != nil {
		return d, err
	}
	parseWindows(&d, &r)
	if r.err == nil && r.left != "" {
		r.err = fmt.Errorf("%w: the length is %d bytes", errLayout, len(text))
	}
	if err := cmp.Or(r.err, addOwed(&d, &owed)); err != nil {
		return d, err
	}
	if form&formUsed == 0 {
		d = d.AtRest()
	}
	return d, nil
}

// parseUsed reads the numbers that only a bucket in use has.
func parseUsed(d *protocol.BucketDump, r *reader) {
	d.Share, d.Width, d.Keep = r.double(), r.number(4, 1, 1<<29), r.time(wholeMax-1)
	d.MovedAt, d.ContendedUntil, d.IdleSince = r.time(d.Now), r.time(wholeMax-1), r.time(d.Now)
	ledger, weight := int64(0), int64(0)
	for i := range d.Held {
		d.Held[i] = r.number(7, 0, lease.WaitingMax)
		ledger += d.Held[i]
	}
	for i := range d.Weight {
		d.Weight[i] = r.number(7, 0, lease.WaitingMax)
		weight += d.Weight[i]
	}
	if !(d.Share > 0 && d.Share < wholeMax) || max(ledger, weight) > lease.WaitingMax {
		r.err = cmp.Or(r.err, fmt.Errorf("%w: the share or the ledger is out of range", errLayout))
	}
}

// addOwed adds the owed amounts to the levels of d, or returns an error if a level or a rest is out of range.
func addOwed(d *protocol.BucketDump, owed *[lease.LimitsMax]float64) error {
	for k, l := range d.Config.Limits {
		scale := protocol.ScaleOf(l, d.Config.Overcommit)
		if d.Level[k] > l.Capacity()*scale.Unit {
			return fmt.Errorf("%w: a level is above its burst", errLayout)
		}
		if d.Rest[k] < 0 || d.Rest[k] >= scale.Tick {
			return fmt.Errorf("%w: a rest is out of range [0, tick)", errLayout)
		}
		if owes := owed[k]; owes != 0 {
			if !(owes < 0 && owes > -wholeMax) || owes != math.Trunc(owes) || d.Level[k] > 0 || l.Windowed() {
				return fmt.Errorf("%w: a level of %v is out of range", errLayout, owes)
			}
			d.Level[k] = int64(owes)
		}
	}
	return nil
}

// parseWindows reads the charges of the windows of d from r. A window's Level and Rest, which hold its sum
// and its number of cells, become 0.
func parseWindows(d *protocol.BucketDump, r *reader) {
	for k, l := range d.Config.Limits {
		if !l.Windowed() {
			continue
		}
		w, rest := &d.Windows[k], d.Rest[k]
		w.Sum, d.Level[k], d.Rest[k] = d.Level[k], 0, 0
		scale := protocol.ScaleOf(l, d.Config.Overcommit)
		fits := w.Sum >= 0 && w.Sum <= lease.WaitingMax
		switch {
		case l.Kind == lease.KindSliding:
			fits = fits && parseCells(w, scale, rest, d.Now, r)
		case len(r.left) < periodSize:
			fits = false
		default:
			period, begun := r.double(), r.double()
			starts := period*float64(scale.Tick) + float64(scale.Offset)
			// The period must not have ended before the bucket's last call.
			fits = fits && rest == 0 && period == math.Trunc(period) && begun == math.Trunc(begun) &&
				begun <= float64(d.Now) && begun > -wholeMax/2 && starts < wholeMax/2 &&
				starts+float64(scale.Tick) > float64(d.Clock)
			if fits {
				w.Period, w.Begun = int64(period), int64(begun)
			}
		}
		if !fits || r.err != nil {
			r.err = fmt.Errorf("%w: a window charge is out of range", errLayout)
			return
		}
	}
}

// parseCells reads from r the n cells of a sliding window that was stored at the running time `at`.
// parseCells reports whether the cells are in order and add up to the window's sum.
func parseCells(w *protocol.WindowDump, s exact.Scale, n, at int64, r *reader) bool {
	if n < 0 || n > int64(min(len(r.left)/cellSize, len(w.Cells))) {
		return false
	}
	first, total, next := max(0, at-s.Tick)/s.Cell, int64(0), int64(0)
	for range n {
		age, tokens := r.whole(1), r.whole(7)
		if age < next || first+age > at/s.Cell || tokens < 1 {
			return false
		}
		w.Cells[(first+age)%int64(len(w.Cells))] = tokens
		total, next = total+tokens, age+1
	}
	return total == w.Sum
}

// parseRecord reads the text of a record. `of` reports whether the record belongs to the bucket d, not to an
// earlier one.
func parseRecord(text string, d *protocol.BucketDump) (record protocol.RecordDump, of bool, err error) {
	if text, _, err = ofLayout(text); err != nil {
		return record, false, err
	}
	if len(text) != recordSize {
		return record, false, fmt.Errorf("%w: the length is %d bytes", errLayout, len(text))
	}
	r := reader{left: text}
	of = r.time(wholeMax) == d.Created
	of = r.time(wholeMax) == d.Epoch && of
	record = protocol.RecordDump{
		Seq: r.time(wholeMax), Ends: r.time(wholeMax), Held: r.number(7, 0, wholeMax), Weight: r.whole(4),
		Waiting: r.number(7, 0, wholeMax), Granted: r.number(7, 0, wholeMax), Void: r.number(1, 0, 1) == 1,
		Since: r.time(wholeMax), Debit: protocol.Debit{Last: r.time(wholeMax), Allowance: r.double()},
	}
	return record, of, r.err
}

// layout is the number of the layout that the scripts store, and layoutOldest the lowest number that they
// read. layout rises when a release stores data that the release before would misread.
const layout, layoutOldest = 2, 2
