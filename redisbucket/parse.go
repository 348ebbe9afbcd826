package redisbucket

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// The layout of common.lua and lease.lua, for readers without a script: the numbers at the start of a
// bucket, those of them that identify it and count, the numbers of a record, and those up to its
// waiting.
const (
	stateNumbers, counterNumbers     = 38, 5
	recordNumbers, recordHeadNumbers = 12, 7
)

// errLayout says that a text is not what this version stores.
var errLayout = errors.New("not what this version of yuzhi stores")

// layoutMark is the length of what every bucket and record begins with, "y" and the layout's number.
const layoutMark = 2

// ofLayout is text without its layout's mark.
func ofLayout(text string) (string, error) {
	switch {
	case len(text) < layoutMark || text[0] != 'y' || text[1] < layoutOldest:
		return "", fmt.Errorf("%w: the mark of a layout is missing", errLayout)
	case text[1] > layout:
		return "", newerLayout(int64(text[1]))
	}
	return text[layoutMark:], nil
}

func newerLayout(number int64) error {
	return fmt.Errorf("%w of yuzhi, in layout %d; this one knows %d", errNewer, number, layout)
}

// numbersOf reads the first n numbers of text.
func numbersOf(text string, n int) ([]float64, error) {
	if len(text) < 8*n {
		return nil, fmt.Errorf("%w: %d bytes, must be at least %d", errLayout, len(text), 8*n)
	}
	all := make([]float64, n)
	for i := range all {
		all[i] = math.Float64frombits(binary.LittleEndian.Uint64([]byte(text[8*i : 8*i+8])))
	}
	return all, nil
}

// wholes takes numbers one after the other. It keeps the first error.
type wholes struct {
	left []float64
	err  error
}

// number is the next one, which must be whole and from least to most.
func (w *wholes) number(least, most int64) int64 {
	x := w.left[0]
	w.left = w.left[1:]
	if !(x >= float64(least) && x <= float64(most)) || x != math.Trunc(x) {
		if w.err == nil {
			w.err = fmt.Errorf("%w: a number is %v, must be whole, %d to %d", errLayout, x, least, most)
		}
		return least
	}
	return int64(x)
}

// restSize returns the bytes of a bucket with that number of limits in the short form. datedSize adds
// the two times that most buckets leave out.
func restSize(limits int) int { return 36 + 10*limits + configSize(limits) }

const datedSize = 14

// parseRest reads the text of a bucket in the short form. ok is false where the length is not one
// of that form.
func parseRest(text string) (d protocol.BucketDump, ok bool, err error) {
	limits := (len(text) - restSize(0)) / (restSize(1) - restSize(0))
	end := restSize(limits)
	dated := len(text) == end+datedSize
	if limits < 1 || limits > lease.LimitsMax || len(text) != end && !dated {
		return d, false, nil
	}
	at := 0
	next := func(size int) int64 {
		at += size
		return wholeAt(text, at-size, size)
	}
	d.Epoch, d.Counter, d.Now = next(7), next(6), next(7)
	d.SetAt = d.Epoch - 1
	ttl := next(4)
	d.Spent, d.Denied = next(6), next(6)
	for k := range limits {
		d.Level[k], d.Rest[k] = next(7), next(3)
	}
	config := text[at:end]
	if at = end; dated {
		d.SetAt, d.ForgotAt = next(7), next(7)
	}
	if d.Epoch < 1 || ttl < 2 || ttl > ttlMax.Microseconds() || d.Now > lease.WaitingMax ||
		max(d.Epoch, d.SetAt, d.ForgotAt) > d.Now {
		return d, true, fmt.Errorf("%w: a time is out of range", errLayout)
	}
	if d.Config, err = parseConfig(config, time.Duration(ttl)*time.Microsecond); err != nil {
		return d, true, err
	}
	return d.AtRest(), true, nil
}

// longSize returns the bytes of a bucket with that number of limits in the long form, without the
// charges of windows and without limits that have left.
func longSize(limits int) int { return 8*stateNumbers + configSize(limits) + 16*(limits-1) }

// parseBucket reads the text of a bucket, without the records.
func parseBucket(text string) (d protocol.BucketDump, err error) {
	if text, err = ofLayout(text); err != nil {
		return d, err
	}
	if d, ok, err := parseRest(text); ok {
		if err == nil {
			err = levelsFit(&d)
		}
		return d, err
	}
	limits := 1 // what windows and pasts add is a multiple of 8 bytes, so the rest of the length tells
	for limits <= lease.LimitsMax && (len(text)-longSize(limits))%8 != 0 {
		limits++
	}
	if limits > lease.LimitsMax || len(text) < longSize(limits) {
		return d, fmt.Errorf("%w: %d bytes", errLayout, len(text))
	}
	all, _ := numbersOf(text, stateNumbers)
	w := &wholes{left: all}
	count := func(to ...*int64) {
		for _, n := range to {
			*n = w.number(0, wholeMax-1)
		}
	}
	var ttl int64
	count(&d.Created, &d.Epoch, &d.Counter, &d.Spent, &d.Denied, &d.Clock, &d.Now, &d.Frozen, &d.SetAt, &d.Keep,
		&d.StoodAt, &d.ForgotAt, &ttl, &d.Proposed, &d.ProposedAt, &d.Width, &d.MovedAt, &d.Updated,
		&d.ContendedUntil)
	d.Share, w.left = w.left[0], w.left[1:]
	d.Level[0], d.Rest[0] = w.number(1-wholeMax, wholeMax-1), w.number(1-wholeMax, wholeMax-1)
	for i := range d.Held {
		count(&d.Held[i])
	}
	for i := range d.Weight {
		count(&d.Weight[i])
	}
	end := 8*stateNumbers + configSize(limits)
	more, _ := numbersOf(text[end:], 2*(limits-1))
	w.left = more
	for k := 1; k < limits; k++ {
		d.Level[k], d.Rest[k] = w.number(1-wholeMax, wholeMax-1), w.number(1-wholeMax, wholeMax-1)
	}
	if w.err == nil && (ttl < 1 || ttl > ttlMax.Microseconds() || d.Width < 1) {
		w.err = fmt.Errorf("%w: a ttl of %d us, a slice of %d us", errLayout, ttl, d.Width)
	}
	if w.err != nil {
		return d, w.err
	}
	d.Config, err = parseConfig(text[8*stateNumbers:end], time.Duration(ttl)*time.Microsecond)
	d.Exists = true
	if err == nil {
		var rest string
		if rest, err = parseWindows(&d, text[longSize(limits):]); err == nil {
			d.Pasts, err = parsePasts(rest, d.Now, d.ForgotAt)
		}
	}
	return d, cmp.Or(err, levelsFit(&d))
}

// levelsFit is an error where a level of d is above its burst, or its rest a tick or more.
func levelsFit(d *protocol.BucketDump) error {
	for k, l := range d.Config.Limits {
		scale, _ := l.Scale(d.Config.Overcommit) // a valid limit has one
		if d.Level[k] > l.Capacity()*scale.Unit {
			return fmt.Errorf("%w: a level is above its burst", errLayout)
		}
		if d.Rest[k] < 0 || d.Rest[k] >= scale.Tick {
			return fmt.Errorf("%w: a rest is not 0 to a tick", errLayout)
		}
	}
	return nil
}

// parseRecord reads the text of a record. of says whether it belongs to the bucket d: a record that
// an earlier bucket left is as good as absent.
func parseRecord(text string, d *protocol.BucketDump) (r protocol.RecordDump, of bool, err error) {
	if text, err = ofLayout(text); err != nil {
		return r, false, err
	}
	if len(text) != 8*recordNumbers {
		return r, false, fmt.Errorf("%w: %d bytes", errLayout, len(text))
	}
	all, _ := numbersOf(text, recordNumbers)
	w := &wholes{left: all}
	next := func() int64 { return w.number(0, wholeMax-1) }
	created, epoch := next(), next()
	r = protocol.RecordDump{Seq: next(), Ends: next(), Held: next(), Weight: next(),
		Waiting: next(), Granted: next(), Void: next() == 1, Since: next(), Last: next()}
	r.Allowance = w.left[0]
	return r, created == d.Created && epoch == d.Epoch, w.err
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
	if err != nil {
		r.Err = err
		return 0
	}
	all, err := numbersOf(text, n)
	if r.Err = err; err != nil {
		return 0
	}
	w := &wholes{left: all}
	next := func() int64 { return w.number(0, wholeMax-1) }
	if r.Created, r.Epoch = next(), next(); r.Holder == "" {
		r.Counter, r.Spent, r.Denied = next(), next(), next()
	} else {
		w.left = w.left[1:] // seq
		ends, r.Held, r.Weight, r.Waiting = next(), next(), next(), next()
	}
	r.Err = w.err
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

// unescaper is the inverse of escaper.
var unescaper = strings.NewReplacer("%25", "%", "%7D", "}")
