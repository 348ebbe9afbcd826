package redisbucket

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// The layout of common.lua and lease.lua, for readers without a script: the numbers at the start of a
// bucket, those of them that identify it and count, the numbers of a record, and those up to waiting.
const (
	stateNumbers, counterNumbers     = 38, 5
	recordNumbers, recordHeadNumbers = 12, 7
)

// cellSize is the length of one cell of a sliding window at the end of a bucket's text, periodSize that of a
// calendar's period (window.lua).
const cellSize, periodSize = 8, 8

// errLayout says that a text is not what this version stores.
var errLayout = errors.New("unknown format of stored state")

// layoutMark is the length of what every bucket and record begins with, "y" and the layout's number.
const layoutMark = 2

// ofLayout is text without its layout's mark.
func ofLayout(text string) (string, error) {
	switch {
	case len(text) < layoutMark || text[0] != 'y' || text[1] < layoutOldest:
		return "", fmt.Errorf("%w: the layout mark is missing", errLayout)
	case text[1] > layout:
		return "", newerLayout(int64(text[1]))
	}
	return text[layoutMark:], nil
}

func newerLayout(number int64) error {
	return fmt.Errorf("%w of yuzhi: its layout is %d, this release reads up to %d", errNewer, number, layout)
}

// reader takes numbers from the start of a text that is long enough. It keeps the first error.
type reader struct {
	left string
	err  error
}

// whole reads what appendWhole wrote.
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

// number reads a double, which must be whole and from least to most.
func (r *reader) number(least, most int64) int64 {
	x := r.double()
	if !(x >= float64(least) && x <= float64(most)) || x != math.Trunc(x) {
		if r.err == nil {
			r.err = fmt.Errorf("%w: %v must be a whole number, %d to %d", errLayout, x, least, most)
		}
		return least
	}
	return int64(x)
}

// count reads a double, which must be whole and not negative.
func (r *reader) count() int64 { return r.number(0, wholeMax-1) }

func (r *reader) level() (level, rest int64) {
	return r.number(1-wholeMax, wholeMax-1), r.number(1-wholeMax, wholeMax-1)
}

// restSize returns the bytes of a bucket with that number of limits in the short form. datedSize adds
// the time that most buckets leave out.
func restSize(limits int) int { return 36 + 10*limits + configSize(limits) }

const datedSize = 7

// parseRest reads a bucket in the short form. ok is false where the length is not one of that form.
func parseRest(text string) (d protocol.BucketDump, ok bool, err error) {
	limits := (len(text) - restSize(0)) / (restSize(1) - restSize(0))
	dated := len(text) == restSize(limits)+datedSize
	if limits < 1 || limits > lease.LimitsMax || len(text) != restSize(limits) && !dated {
		return d, false, nil
	}
	r := reader{left: text}
	d.Epoch, d.Counter, d.Now = r.whole(7), r.whole(6), r.whole(7)
	d.SetAt = d.Epoch - 1
	ttl := r.whole(4)
	d.Spent, d.Denied = r.whole(6), r.whole(6)
	for k := range limits {
		d.Level[k], d.Rest[k] = r.whole(7), r.whole(3)
	}
	config := r.left[:configSize(limits)]
	if r.left = r.left[len(config):]; dated {
		d.SetAt = r.whole(7)
	}
	if d.Epoch < 1 || ttl < 2 || ttl > ttlMax.Microseconds() || d.Now > lease.WaitingMax ||
		max(d.Epoch, d.SetAt) > d.Now {
		return d, true, fmt.Errorf("%w: a time is out of range", errLayout)
	}
	if d.Config, d.Switch, err = parseConfig(config, time.Duration(ttl)*time.Microsecond); err != nil {
		return d, true, err
	}
	if slices.ContainsFunc(d.Config.Limits, lease.Limit.Windowed) {
		return d, true, fmt.Errorf("%w: a window is in the short form", errLayout)
	}
	d = d.AtRest()
	return d, true, levelsFit(&d)
}

// longSize returns the bytes of a bucket with that number of limits in the long form, without the
// charges of windows.
func longSize(limits int) int { return 8*stateNumbers + configSize(limits) + 16*(limits-1) }

// parseBucket reads the text of a bucket, without the records.
func parseBucket(text string) (d protocol.BucketDump, err error) {
	if text, err = ofLayout(text); err != nil {
		return d, err
	}
	if d, ok, err := parseRest(text); ok {
		return d, err
	}
	limits := 1 // what windows add is a multiple of 8 bytes, so the rest of the length tells
	for limits <= lease.LimitsMax && (len(text)-longSize(limits))%8 != 0 {
		limits++
	}
	if limits > lease.LimitsMax || len(text) < longSize(limits) {
		return d, fmt.Errorf("%w: the length is %d bytes", errLayout, len(text))
	}
	r := reader{left: text}
	var ttl int64
	for _, n := range [...]*int64{&d.Created, &d.Epoch, &d.Counter, &d.Spent, &d.Denied, &d.Clock, &d.Now,
		&d.Frozen, &d.SetAt, &d.Keep, &d.StoodAt, &ttl, &d.Proposed, &d.ProposedAt, &d.Width,
		&d.MovedAt, &d.Updated, &d.ContendedUntil, &d.IdleSince} {
		*n = r.count()
	}
	d.Share = r.double()
	d.Level[0], d.Rest[0] = r.level()
	for i := range d.Held {
		d.Held[i] = r.count()
	}
	for i := range d.Weight {
		d.Weight[i] = r.count()
	}
	config := r.left[:configSize(limits)]
	r.left = r.left[len(config):]
	for k := 1; k < limits; k++ {
		d.Level[k], d.Rest[k] = r.level()
	}
	if r.err == nil && (ttl < 1 || ttl > ttlMax.Microseconds() || d.Width < 1) {
		r.err = fmt.Errorf("%w: TTL %d us or slice width %d us is out of range", errLayout, ttl, d.Width)
	}
	if r.err != nil {
		return d, r.err
	}
	d.Exists = true
	if d.Config, d.Switch, err = parseConfig(config, time.Duration(ttl)*time.Microsecond); err == nil {
		if parseWindows(&d, &r); r.err == nil && r.left != "" {
			r.err = fmt.Errorf("%w: the length is %d bytes", errLayout, len(text))
		}
	}
	return d, cmp.Or(err, r.err, levelsFit(&d))
}

// levelsFit is an error where a level of d is above its burst, or its rest a tick or more.
func levelsFit(d *protocol.BucketDump) error {
	for k, l := range d.Config.Limits {
		scale, _ := l.Scale(d.Config.Overcommit) // a valid limit has one
		if d.Level[k] > l.Capacity()*scale.Unit {
			return fmt.Errorf("%w: a level is above its burst", errLayout)
		}
		if d.Rest[k] < 0 || d.Rest[k] >= scale.Tick {
			return fmt.Errorf("%w: a rest is out of range [0, tick)", errLayout)
		}
	}
	return nil
}

// parseWindows reads what is charged to the windows of d from r. The levels and rests of windows,
// which are their sums and what window.lua says, become 0.
func parseWindows(d *protocol.BucketDump, r *reader) {
	for k, l := range d.Config.Limits {
		if !l.Windowed() {
			continue
		}
		w, rest := &d.Windows[k], d.Rest[k]
		w.Sum, d.Level[k], d.Rest[k] = d.Level[k], 0, 0
		scale, _ := l.Scale(d.Config.Overcommit) // a valid limit has one
		fits := w.Sum >= 0 && w.Sum <= lease.WaitingMax
		switch {
		case l.Kind == lease.KindSliding:
			fits = fits && parseCells(w, scale, rest, d.Now, r)
		case len(r.left) < periodSize:
			fits = false
		default:
			w.Period, w.Begun = r.number(-1, wholeMax-1), rest
			// The period that has begun has not ended yet.
			fits = fits && w.Begun <= d.Now && starts(w.Period, scale) < wholeMax/2 &&
				starts(w.Period, scale)+float64(scale.Tick) > float64(d.Clock)
		}
		if !fits || r.err != nil {
			r.err = fmt.Errorf("%w: a window charge is out of range", errLayout)
			return
		}
	}
}

// starts returns when a period of a calendar starts, by the server's clock.
func starts(period int64, s lease.Scale) float64 {
	return float64(period)*float64(s.Tick) + float64(s.Offset)
}

// parseCells reads n cells of a sliding window, as they were at the given time, from r. It reports whether
// they are in order and make up its sum.
func parseCells(w *protocol.WindowDump, s lease.Scale, n, at int64, r *reader) bool {
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

// parseRecord reads the text of a record. of says whether it belongs to the bucket d: a record that
// an earlier bucket left is as good as absent.
func parseRecord(text string, d *protocol.BucketDump) (record protocol.RecordDump, of bool, err error) {
	if text, err = ofLayout(text); err != nil {
		return record, false, err
	}
	if len(text) != 8*recordNumbers {
		return record, false, fmt.Errorf("%w: the length is %d bytes", errLayout, len(text))
	}
	r := reader{left: text}
	of = r.count() == d.Created
	of = r.count() == d.Epoch && of
	record = protocol.RecordDump{Seq: r.count(), Ends: r.count(), Held: r.count(), Weight: r.count(),
		Waiting: r.count(), Granted: r.count(), Void: r.count() == 1, Since: r.count(), Last: r.count(),
		Allowance: r.double()}
	return record, of, r.err
}

// readSize is how many bytes of a bucket tell its form and its counters: one more than the longest
// short form has, so that what is shorter is in the short form and complete.
var readSize = layoutMark + restSize(lease.LimitsMax) + datedSize + 1

// parse reads the beginning of a bucket, or of a record if there is a holder. ends is when the
// record's lease ends, in the bucket's running time.
func (r *Reading) parse(text string) (ends int64) {
	if r.Holder == "" && len(text) < readSize {
		d, err := parseBucket(text)
		r.Created, r.Epoch, r.Counter, r.Spent, r.Denied, r.Err =
			d.Created, d.Epoch, d.Counter, d.Spent, d.Denied, err
		return 0
	}
	n := counterNumbers
	if r.Holder != "" {
		n = recordHeadNumbers
	}
	text, err := ofLayout(text)
	if err == nil && len(text) < 8*n {
		err = fmt.Errorf("%w: the length is %d bytes", errLayout, len(text))
	}
	if r.Err = err; err != nil {
		return 0
	}
	in := reader{left: text}
	if r.Created, r.Epoch = in.count(), in.count(); r.Holder == "" {
		r.Counter, r.Spent, r.Denied = in.count(), in.count(), in.count()
	} else {
		in.double() // seq
		ends, r.Held, r.Weight, r.Waiting = in.count(), in.count(), in.count(), in.count()
	}
	r.Err = in.err
	return ends
}

// userKey returns the key whose bucket is at redisKey, and the holder if a record is there. For a
// long key it returns the hash. ok is false for a Redis key that is not of this Store.
func (s *Store) userKey(redisKey string) (key, holder string, ok bool) {
	rest, ok := strings.CutPrefix(redisKey, s.prefix+"{")
	if !ok {
		return "", "", false
	}
	tag, holder, ok := strings.Cut(rest, "}")
	if !ok || tag == "" || holder != "" && (holder[0] != ':' || holder == ":") {
		return "", "", false
	}
	if tag != tagEmpty {
		key = unescaper.Replace(tag)
	}
	return key, strings.TrimPrefix(holder, ":"), true
}

var unescaper = strings.NewReplacer("%25", "%", "%7D", "}")
