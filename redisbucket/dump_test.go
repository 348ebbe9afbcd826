package redisbucket

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// mark begins every stored text. The texts of the other tests come without it.
var mark = string([]byte{'y', layout})

// unmarked returns a stored text without its mark; "" where nothing is stored.
func unmarked(t testing.TB, text string) string {
	t.Helper()
	rest, ok := strings.CutPrefix(text, mark)
	testkit.Must(t, ok || text == "", "%q is stored without its mark", text)
	return rest
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
			testkit.NoErr(t, s.rdb.Set(context.Background(), k, mark+text, 0).Err())
		}
	}
}

// unnamed is how many numbers begin a record that the reference does not have: the birth and the
// epoch, which only say whether the record counts.
const unnamed = 2

// dumped returns the texts that Redis should store for bucket d, records without the numbers that the
// reference does not have.
func dumped(t testing.TB, d protocol.BucketDump) texts {
	t.Helper()
	x := texts{records: make(map[string]string)}
	if !d.Exists {
		return x
	}
	for h, r := range d.Records {
		x.records[h] = string(appendDoubles(nil, r.Seq, r.Ends, r.Held, r.Weight, r.Waiting, r.Granted,
			bit(r.Void), r.Since, r.Last)) + doubles(r.Allowance)
	}
	if atRest(d) {
		x.state = rested(t, d)
		return x
	}
	state := appendDoubles(nil, d.Created, d.Epoch, d.Counter, d.Spent, d.Denied, d.Clock, d.Now, d.Frozen,
		d.SetAt, d.Keep, d.StoodAt, micros(d.Config.TTL), d.Proposed, d.ProposedAt, d.Width,
		d.MovedAt, d.Updated, d.ContendedUntil, d.IdleSince)
	tail := chargedTo(t, &d)
	state = appendDoubles(append(state, doubles(d.Share)...), d.Level[0], d.Rest[0])
	state = appendDoubles(appendDoubles(state, d.Held[:]...), d.Weight[:]...)
	d.Config.TTL = ttlMax // the one in force may be too short for the Target
	state = append(state, suspended(textOf(t, d.Config), d.Switch)...)
	for k := 1; k < len(d.Config.Limits); k++ {
		state = appendDoubles(state, d.Level[k], d.Rest[k])
	}
	x.state = string(append(state, tail...))
	return x
}

// chargedTo returns the end of the long form of d: the charges of windows. Their levels and rests
// become what stands there.
func chargedTo(t testing.TB, d *protocol.BucketDump) (tail []byte) {
	t.Helper()
	for k, l := range d.Config.Limits {
		w := &d.Windows[k]
		switch l.Kind {
		case lease.KindCalendar:
			d.Level[k], d.Rest[k] = w.Sum, w.Begun
			tail = appendDoubles(tail, w.Period)
		case lease.KindSliding:
			scale, err := l.Scale(d.Config.Overcommit)
			testkit.NoErr(t, err)
			cells := cellsOf(w, scale, d.Now)
			d.Level[k], d.Rest[k] = w.Sum, int64(len(cells)/cellSize)
			tail = append(tail, cells...)
		}
	}
	return tail
}

// cellsOf returns the text of the cells of a sliding window at that time.
func cellsOf(w *protocol.WindowDump, s lease.Scale, at int64) (text []byte) {
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

// atRest reports whether d should be stored in the short form: where what that leaves out follows
// from the rest, and the numbers fit.
func atRest(d protocol.BucketDump) bool {
	return d.Exists && d.Switch == protocol.SwitchNone && reflect.DeepEqual(d, d.AtRest()) &&
		max(d.Counter, d.Spent, d.Denied) < 1<<48 && slices.Min(d.Level[:]) >= 0 &&
		!slices.ContainsFunc(d.Config.Limits, lease.Limit.Windowed)
}

// dated reports whether the short form of d says when levels were set.
func dated(d protocol.BucketDump) bool { return d.SetAt != d.Epoch-1 }

// rested returns the short form of d.
func rested(t testing.TB, d protocol.BucketDump) string {
	t.Helper()
	var text []byte
	for _, n := range [...]struct {
		size  int
		value int64
	}{{7, d.Epoch}, {6, d.Counter}, {7, d.Now}, {4, micros(d.Config.TTL)}, {6, d.Spent}, {6, d.Denied}} {
		text = appendWhole(text, n.size, n.value)
	}
	for k := range d.Config.Limits {
		text = appendWhole(appendWhole(text, 7, d.Level[k]), 3, d.Rest[k])
	}
	d.Config.TTL = ttlMax // the one in force may be too short for the Target
	text = append(text, textOf(t, d.Config)...)
	if dated(d) {
		text = appendWhole(text, 7, d.SetAt)
	}
	return string(text)
}

// differs says where what is stored differs from the reference. A record that the reference does
// not know is as good as absent.
func (x texts) differs(want texts) string {
	var b strings.Builder
	for h, text := range want.records {
		if got := x.records[h]; len(got) != 8*recordNumbers || got[8*unnamed:] != text {
			fmt.Fprintf(&b, "record %q:\nwant %v\ngot  %v\n", h, numbers(text), numbers(got))
		}
	}
	if x.state != want.state {
		fmt.Fprintf(&b, "state:\nwant %v\ngot  %v\n", numbers(want.state), numbers(x.state))
	}
	return b.String()
}

// numbers returns the doubles of text, as the scripts read them.
func numbers(text string) (all []float64) {
	for ; len(text) >= 8; text = text[8:] {
		all = append(all, math.Float64frombits(binary.LittleEndian.Uint64([]byte(text))))
	}
	return all
}

// doubles writes values as the scripts store them.
func doubles(values ...float64) string {
	var b []byte
	for _, x := range values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return string(b)
}

// setNumber returns text with its i-th number replaced.
func setNumber(text string, i int, x float64) string {
	return text[:8*i] + doubles(x) + text[8*i+8:]
}

// appendDoubles writes values, which are below 2^53, in the form of Lua's numbers.
func appendDoubles(dst []byte, values ...int64) []byte {
	for _, v := range values {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(v)))
	}
	return dst
}
