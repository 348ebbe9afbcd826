package redisbucket

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// marked returns what is stored for a text of the other tests, which begins with its form.
func marked(text string) string {
	if text == "" {
		return string([]byte{'y', layout})
	}
	return string([]byte{'y', layout + formUnit*text[0]}) + text[1:]
}

// unmarked returns the text of what is stored; "" where nothing is.
func unmarked(t testing.TB, stored string) string {
	t.Helper()
	if stored == "" {
		return ""
	}
	text, form, err := ofLayout(stored)
	testkit.Must(t, err == nil, "%q is stored without its mark", stored)
	return string(form) + text
}

// texts holds the texts that Redis stores for one bucket and for the records of some holders; a
// missing one is empty.
type texts struct {
	state   string
	records map[string]string
}

func textsOf(t testing.TB, s *Store, key string, holders ...string) texts {
	t.Helper()
	ctx, bucket, pipe := context.Background(), s.bucketKey(key), s.rdb.Pipeline()
	state, records := pipe.Get(ctx, bucket), make(map[string]*redis.StringCmd)
	for _, h := range holders {
		records[h] = pipe.Get(ctx, recordKey(bucket, h))
	}
	_, err := pipe.Exec(ctx)
	testkit.Must(t, err == nil || err == redis.Nil, "%v", err)
	x := texts{unmarked(t, state.Val()), make(map[string]string)}
	for h, text := range records {
		x.records[h] = unmarked(t, text.Val())
	}
	return x
}

// put stores x where nothing is.
func (x texts) put(t testing.TB, s *Store, key string) {
	t.Helper()
	values, bucket := map[string]string{s.bucketKey(key): x.state}, s.bucketKey(key)
	for h, text := range x.records {
		values[recordKey(bucket, h)] = text
	}
	for k, text := range values {
		if text != "" {
			testkit.NoErr(t, s.rdb.Set(context.Background(), k, marked(text), 0).Err())
		}
	}
}

// unnamed is the length of the numbers that begin a record and that the reference does not have: the birth and
// the epoch, which only say whether the record counts. Before them is the form.
const unnamed = 1 + 7 + 7

// dumped returns the texts that Redis should store for bucket d, records without what is unnamed.
func dumped(t testing.TB, d protocol.BucketDump) texts {
	t.Helper()
	x := texts{records: make(map[string]string)}
	if !d.Exists {
		return x
	}
	for h, r := range d.Records {
		text := appendWholes(nil, 7, r.Seq, r.Ends, r.Held)
		text = appendWholes(appendWhole(text, 4, r.Weight), 7, r.Waiting, r.Granted)
		text = appendWholes(appendWhole(text, 1, bit(r.Void)), 7, r.Since, r.Last)
		x.records[h] = string(text) + doubles(r.Allowance)
	}
	form := formOf(d)
	b := []byte{form}
	b = appendWhole(appendWhole(appendWhole(b, 7, d.Epoch), 6, d.Counter), 7, d.Now)
	b = appendWholes(appendWhole(b, 4, exact.Micros(d.Config.TTL)), 6, d.Spent, d.Denied)
	tail, owed := chargedTo(t, &d), []byte(nil)
	level := func(k int) {
		b = appendWhole(appendWhole(b, 7, max(0, d.Level[k])), 3, d.Rest[k])
		owed = append(owed, doubles(float64(min(0, d.Level[k])))...)
	}
	level(0)
	if form&formUsed != 0 {
		b = appendWhole(append(b, doubles(d.Share)...), 4, d.Width)
		b = appendWholes(b, 7, d.Keep, d.MovedAt, d.ContendedUntil, d.IdleSince)
		b = appendWholes(appendWholes(b, 7, d.Held[:]...), 7, d.Weight[:]...)
	}
	for k := 1; k < len(d.Config.Limits); k++ {
		level(k)
	}
	if form&formDated != 0 {
		b = appendWhole(b, 7, d.SetAt)
	}
	if form&formPast != 0 {
		b = appendWholes(b, 7, d.Created, d.Clock, d.Frozen, d.StoodAt)
		b = append(appendWholes(appendWhole(b, 4, d.Proposed), 7, d.ProposedAt, d.Updated), owed...)
	}
	d.Config.TTL = ttlMax // the one in force may be too short for the Target
	b = append(b, suspended(textOf(t, d.Config), d.Switch)...)
	x.state = string(append(b, tail...))
	return x
}

// formOf returns the form in which d should be stored: with the parts that do not follow from the rest.
func formOf(d protocol.BucketDump) byte {
	rest := d.AtRest()
	form := byte(len(d.Config.Limits) - 1)
	if d.SetAt != d.Epoch-1 {
		form += formDated
	}
	past := slices.Min(d.Level[:]) < 0 || d.Created != rest.Created || d.Clock != rest.Clock || d.Frozen != 0 ||
		d.StoodAt != rest.StoodAt || d.Proposed != rest.Proposed || d.ProposedAt != rest.ProposedAt ||
		d.Updated != rest.Updated
	if past {
		form += formPast
	}
	if past || d.Share != rest.Share || d.Width != rest.Width || d.Keep != rest.Keep || d.MovedAt != rest.MovedAt ||
		d.ContendedUntil != 0 || d.IdleSince != 0 || d.Held != rest.Held || d.Weight != rest.Weight {
		form += formUsed
	}
	return form
}

// chargedTo returns the end of the text of d: the charges of windows. Their levels and rests become what stands
// there.
func chargedTo(t testing.TB, d *protocol.BucketDump) (tail []byte) {
	t.Helper()
	for k, l := range d.Config.Limits {
		w := &d.Windows[k]
		switch l.Kind {
		case lease.KindCalendar:
			d.Level[k], d.Rest[k] = w.Sum, 0
			tail = append(tail, doubles(float64(w.Period), float64(w.Begun))...)
		case lease.KindSliding:
			cells := cellsOf(w, protocol.ScaleOf(l, d.Config.Overcommit), d.Now)
			d.Level[k], d.Rest[k] = w.Sum, int64(len(cells)/cellSize)
			tail = append(tail, cells...)
		}
	}
	return tail
}

// cellsOf returns the text of the cells of a sliding window at that time.
func cellsOf(w *protocol.WindowDump, s exact.Scale, at int64) (text []byte) {
	first, slots := max(0, at-s.Tick)/s.Cell, int64(len(w.Cells))
	for j := range slots {
		if n := w.Cells[(first+j)%slots]; n > 0 {
			text = appendWhole(appendWhole(text, 1, j), 7, n)
		}
	}
	return text
}

// suspended returns the text of a configuration whose limits are beneath a switch.
func suspended(text string, on protocol.Switch) string {
	b := []byte(text)
	if on != protocol.SwitchNone {
		b[emptyByte] = b[emptyByte]%switchUnit + byte(switchUnit*on)
	}
	return string(b)
}

// atRest reports whether d should be stored in the short form, and dated whether that says when levels were set.
func atRest(d protocol.BucketDump) bool { return d.Exists && formOf(d)&(formUsed|formPast) == 0 }

func dated(d protocol.BucketDump) bool { return formOf(d)&formDated != 0 }

// differs says where what is stored differs from the reference. A record that the reference does
// not know is as good as absent.
func (x texts) differs(want texts) string {
	var b strings.Builder
	for h, text := range want.records {
		if got := x.records[h]; len(got) < unnamed || got[unnamed:] != text {
			fmt.Fprintf(&b, "record %q:\nwant %x\ngot  %x\n", h, text, got)
		}
	}
	if x.state != want.state {
		was, _ := parseBucket(marked(want.state))
		is, err := parseBucket(marked(x.state))
		fmt.Fprintf(&b, "state:\nwant %x\ngot  %x\nwant %+v\ngot  %+v, %v\n", want.state, x.state, was, is, err)
	}
	return b.String()
}

// doubles writes values as the scripts store them.
func doubles(values ...float64) string {
	var b []byte
	for _, x := range values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return string(b)
}

// appendWholes appends values in size bytes each.
func appendWholes(dst []byte, size int, values ...int64) []byte {
	for _, v := range values {
		dst = appendWhole(dst, size, v)
	}
	return dst
}
