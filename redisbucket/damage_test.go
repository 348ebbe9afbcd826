package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// notWhole lists numbers that a counter cannot have.
var notWhole = []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0.5, 1e300, -1e300, 1 << 53, -1 << 53, 5e-324}

// Where they begin among the numbers of a bucket.
const shareAt, levelAt, heldAt, weightAt = 19, 20, 22, 30

// configAt is the offset of the configuration in the text of a bucket.
const configAt = 8 * stateNumbers

// place is the offset and the size of a number, by default in a configuration with one limit.
type place struct{ at, size int }

var (
	deployAt, overcommitAt, callsAt, revisionAt = place{0, 7}, place{7, 7}, place{14, 4}, place{18, 7}
	emptyAt, targetAt, burstAt, unitAt          = place{25, 1}, place{26, 4}, place{30, 7}, place{37, 7}
	stepAt, codeAt                              = place{44, 7}, place{51, 1}
)

// requestAt has the places of the numbers of a request, except its headroom, which is a double.
var requestAt = map[string]place{"ttl": {0, 4}, "want": {4, 7}, "epoch": {11, 7}, "counter": {18, 7},
	"denied": {25, 7}, "seq": {32, 7}, "need": {39, 7}, "weight": {46, 4}, "leaseMax": {50, 7},
	"heardAt": {57, 7}, "heardAge": {64, 7}, "heardExpiry": {71, 7}, "heardFrozen": {78, 7},
	"remaining": {85, 7}, "returned": {92, 7}, "waiting": {99, 7}, "draw": {114, 1},
	"kind": {115, 1}, "late": {116, 7}, "drawn": {123, 7}}

const headroomAt = 106

// set returns text with the number at p, counted from start, replaced by v.
func (p place) set(text string, start int, v int64) string {
	return text[:start+p.at] + string(appendWhole(nil, p.size, v)) + text[start+p.at+p.size:]
}

// change is a place that gets another value.
type change struct {
	place
	value int64
}

func (p place) to(value int64) change { return change{p, value} }

// changed returns a way to damage a text: the places, counted from start, get other values.
func changed(start int, changes ...change) func(string) string {
	return func(text string) string {
		for _, c := range changes {
			text = c.set(text, start, c.value)
		}
		return text
	}
}

// placed adds a way to damage a text for each wrong value of each place, counted from start.
func placed(damages map[string]func(string) string, start int, wrong map[place][]int64) {
	for p, values := range wrong {
		for _, v := range values {
			damages[fmt.Sprintf("%d bytes at %d+%d are %d", p.size, start, p.at, v)] = changed(start, p.to(v))
		}
	}
}

// damages returns ways to damage the texts of a bucket of one limit, and of a record, so that the
// scripts cannot trust them. Each sets one number to a wrong value; a long run has all numbers.
func damages(long bool) (states, records map[string]func(string) string) {
	field := func(i int, to float64) func(string) string {
		return func(text string) string { return setNumber(text, i, to) }
	}
	states = map[string]func(string) string{
		"two levels":    func(s string) string { return s + s[8*levelAt:8*heldAt] },
		"one byte more": func(s string) string { return s + "\x00" },
		"one byte less": func(s string) string { return s[:len(s)-1] },
		"ledger without holder": func(s string) string {
			return s[:8*heldAt] + strings.Repeat("\x00", 8*16) + s[configAt:]
		},
		"cut in half":           func(s string) string { return s[:len(s)/2] },
		"empty":                 func(string) string { return "" },
		"text":                  func(string) string { return "x" },
		"text as long":          func(s string) string { return strings.Repeat("x", len(s)) },
		"zeros as long":         func(s string) string { return strings.Repeat("\x00", len(s)) },
		"configuration missing": func(s string) string { return s[:configAt] },
		"five limits": func(s string) string {
			return s + strings.Repeat(s[configAt+configSize(0):], 4) + strings.Repeat(s[8*levelAt:8*heldAt], 4)
		},
	}
	for i, all := range map[int][]float64{
		// times after now
		0: {1<<52 - 1}, 8: {1<<52 - 1}, 10: {1<<52 - 1}, 13: {1<<52 - 1}, 15: {1<<52 - 1}, 16: {1<<52 - 1},
		// epoch, counters, now, frozen
		1: {0, 1 << 52}, 2: {1 << 52}, 3: {1 << 52}, 4: {1 << 52}, 6: {1 << 52}, 7: {4e15},
		11: {0, 3_600_000_001}, 12: {0}, 14: {0, 3_600_000_000}, shareAt: {0}, // durations
		levelAt: {1_000_001, -3_153_600_000_000_000}, levelAt + 1: {1},
		heldAt + 1: {1 << 52}, weightAt + 1: {1 << 52},
	} {
		for _, bad := range all {
			states[fmt.Sprintf("number %d is %v", i, bad)] = field(i, bad)
		}
	}
	placed(states, configAt, map[place][]int64{deployAt: {1 << 52}, overcommitAt: {1<<52 - 1},
		callsAt: {1_000_000_001}, revisionAt: {1 << 52}, emptyAt: {6}, targetAt: {0, 3_600_000_001}, burstAt: {0},
		unitAt: {0, 99_999_999_999_999}, stepAt: {0, 1 << 52}, codeAt: {3, 7, 8}})
	wrong := func(i int, negative float64) []float64 {
		all := append(slices.Clone(notWhole), negative)
		if j := i % len(notWhole); !long {
			return all[j : j+1]
		}
		return all
	}
	for i := range stateNumbers {
		for _, bad := range wrong(i, -1) {
			if i != shareAt && (i != levelAt || bad != -1) || i == shareAt && !(bad > 0 && bad < 1<<53) {
				states[fmt.Sprintf("number %d is %v", i, bad)] = field(i, bad)
			}
		}
	}
	records = map[string]func(string) string{
		"empty": func(string) string { return "" }, "text": func(string) string { return "x" },
		"cut off":   func(s string) string { return s[:len(s)-1] },
		"longer":    func(s string) string { return s + s },
		"void is 2": field(8, 2),
	}
	for i := range recordNumbers {
		for _, bad := range wrong(i, -2) {
			if i < recordNumbers-1 || !(bad >= -1<<52 && bad < 1<<53) { // the last is an allowance
				records[fmt.Sprintf("number %d is %v", i, bad)] = field(i, bad)
			}
		}
	}
	return states, records
}

func TestDamagedStateIsAnErrorAndIsNotTouched(t *testing.T) {
	ctx := context.Background()
	states, records := damages(testkit.Long(t, "one wrong value", "ten wrong values of each number"))
	onEach(t, func(t *testing.T, s *Store) {
		bucket, record := s.bucketKey("key }"), recordKey(s.bucketKey("key }"), "h")
		// apparent: without looking at the record too
		check := func(name string, apparent bool, damage func()) {
			t.Helper()
			// given a bucket in use, and then damage
			first := granted(t, s, "key }", request(1))
			damage()
			s.rdb.Persist(ctx, bucket)
			before := contents(s)
			// when the holder calls
			r := request(2)
			r.Remaining, r.Epoch, r.Counter = 5, first.Epoch, first.Counter
			g, err := exchange(s, "key }", r)
			// then it is told which key is damaged, and nothing was written
			checkError(t, name, err, map[error]bool{lease.ErrPermanent: true, lease.ErrRefused: true})
			testkit.Check(t, g.Granted == 0 && strings.HasPrefix(fmt.Sprint(err), "redisbucket: ") &&
				strings.Contains(fmt.Sprint(err), `"key }"`), "%s: %+v, %v", name, g, err)
			_, err = s.Inspect(ctx, "key }")
			testkit.Check(t, errors.Is(err, lease.ErrPermanent) == apparent, "%s: Inspect says %v", name, err)
			_, err = s.Look(ctx, "key }") // which may see less, and must not fail otherwise
			testkit.Check(t, err == nil || errors.Is(err, lease.ErrPermanent), "%s: Look says %v", name, err)
			testkit.Check(t, contents(s) == before, "%s: written to:\n%s\n%s", name, before, contents(s))
			s.rdb.Del(ctx, bucket, record)
		}
		change := func(key string, change func(string) string) func() {
			return func() { s.rdb.Set(ctx, key, mark+change(unmarked(t, s.rdb.Get(ctx, key).Val())), 0) }
		}
		for name, c := range states {
			check("state: "+name, name != "ledger without holder", change(bucket, c))
		}
		for name, c := range records {
			check("record: "+name, false, change(record, c))
		}
		for name, other := range map[string]string{"none": "", "another": "z\x01", "of layout 0": "y\x00"} {
			for key, apparent := range map[string]bool{bucket: true, record: false} {
				check("the mark of "+key+" is "+name, apparent, func() {
					s.rdb.Set(ctx, key, other+unmarked(t, s.rdb.Get(ctx, key).Val()), 0)
				})
			}
		}
		check("the bucket is a hash", true, func() { s.rdb.Del(ctx, bucket); s.rdb.HSet(ctx, bucket, "f", "x") })
		check("the bucket is a list", true, func() { s.rdb.Del(ctx, bucket); s.rdb.LPush(ctx, bucket, "x") })
		check("the record is a list", false, func() { s.rdb.Del(ctx, record); s.rdb.LPush(ctx, record, "x") })
	})
}

// checkDamaged stores bad for the bucket of "k". Calls, Inspect and Look must call it damaged, not
// write, and not report an outage.
func checkDamaged(t *testing.T, s *Store, name, bad string, calls ...lease.Request) {
	t.Helper()
	ctx, bucket := context.Background(), s.bucketKey("k")
	testkit.NoErr(t, s.rdb.Set(ctx, bucket, mark+bad, 0).Err())
	before := contents(s)
	for _, r := range calls {
		_, err := exchange(s, "k", r)
		checkError(t, name, err,
			map[error]bool{errDamaged: true, lease.ErrPermanent: true, lease.ErrRefused: true})
		testkit.Check(t, !protocol.NodeFailed(err), "%s: an outage: %v", name, err)
	}
	_, err := s.Inspect(ctx, "k")
	checkError(t, name+": Inspect", err, map[error]bool{errDamaged: true, lease.ErrPermanent: true})
	_, err = s.Look(ctx, "k")
	checkError(t, name+": Look", err, map[error]bool{errDamaged: true, lease.ErrPermanent: true})
	testkit.Check(t, contents(s) == before, "%s: written to:\n%s\n%s", name, before, contents(s))
	s.rdb.Del(ctx, bucket, recordKey(bucket, "h"))
}

// TestARefusedReplyIsNoOutage, as one broken key must not degrade all keys of its node, unless no script
// sent it.
func TestARefusedReplyIsNoOutage(t *testing.T) {
	r := request(7)
	for _, v := range []any{grantReply(map[int]any{6: int64(0)}), grantReply(map[int]any{2: int64(11)}), "OK"} {
		_, err := decodeGrant(v, &r)
		err = wrap("k", err)
		testkit.Check(t, errors.Is(err, ErrReply) && protocol.NodeFailed(err) == (v == "OK"), "%v: %v", v, err)
	}
	r.Draw = true
	_, err := decodeGrant(strings.Repeat("\x00", drawReply), &r)
	testkit.Check(t, errors.Is(err, ErrReply) && !protocol.NodeFailed(wrap("k", err)), "%v", err)
}

// TestBadArgumentsWriteNothing goes past the checks in Go, as another client would.
func TestBadArgumentsWriteNothing(t *testing.T) {
	ctx, r := context.Background(), request(2)
	r.Epoch, r.Late = 1, oneLate(lease.LateUnused, 1) // so that what comes with these is looked at
	good, config := string(appendRequest(nil, &r)), textOf(t, r.Config)
	limit := config[configSize(0):]
	short := request(2)
	short.Draw, short.Waiting = true, short.Want
	draw := string(appendRequest(nil, &short))
	number := func(name string, to int64) string { return requestAt[name].set(good, 0, to) }
	headroom := func(to float64) string { return good[:headroomAt] + doubles(to) + good[headroomAt+8:] }
	with := func(changes ...change) string { return changed(0, changes...)(config) }
	type arguments struct{ config, now, request string }
	var calls []arguments
	for _, bad := range []string{"", "x", config[1:], config + "x", config[:configSize(0)],
		config + limit + limit + limit + limit,
		with(burstAt.to(1<<52), unitAt.to(1)), with(burstAt.to(1<<26), unitAt.to(1<<26)),
		with(overcommitAt.to(1<<52-1), burstAt.to(1), unitAt.to(1)), with(codeAt.to(3)), with(codeAt.to(7)),
		with(burstAt.to(4_503_599_627), unitAt.to(1_000_000), codeAt.to(2)), with(burstAt.to(0)),
		with(unitAt.to(0)), with(targetAt.to(0)), with(targetAt.to(3_600_000_001)), with(emptyAt.to(6)),
		with(callsAt.to(1_000_000_001)), with(deployAt.to(1 << 52)), with(overcommitAt.to(1 << 52)),
		with(revisionAt.to(1 << 52)), with(stepAt.to(0)), with(stepAt.to(1 << 52)),
		with(codeAt.to(8), stepAt.to(999)), with(codeAt.to(8), stepAt.to(1_576_800_000_000_001)),
		with(codeAt.to(8), unitAt.to(1)), with(codeAt.to(8), burstAt.to(0), unitAt.to(0)),
		with(codeAt.to(16), unitAt.to(5000), stepAt.to(5000)),
		with(codeAt.to(9), unitAt.to(0), stepAt.to(5000)), with(codeAt.to(24), unitAt.to(0), stepAt.to(5000)),
		with(codeAt.to(8), unitAt.to(0), stepAt.to(5000), overcommitAt.to(1<<52-1))} {
		calls = append(calls, arguments{bad, "", good}, arguments{bad, "", draw})
	}
	for _, bad := range []string{"", good + good[:8], good + "\n", good[:len(good)-8], good[1:], draw + "\x00",
		draw[1:], number("need", 11), number("seq", 0), number("weight", 0), number("weight", 2_000_000),
		number("ttl", 199_999), number("ttl", 3_600_000_001), number("leaseMax", 7_200_000_001),
		number("draw", 1), number("draw", 2), number("kind", 4), number("late", 0), good + strings.Repeat(good[115:], lease.LateMax), requestAt["want"].set(draw, 0, 1<<52),
		requestAt["seq"].set(draw, 0, 0), requestAt["weight"].set(draw, 0, 0), requestAt["need"].set(draw, 0, 11),
		requestAt["weight"].set(draw, 0, 2_000_000), requestAt["ttl"].set(draw, 0, 199_999), headroom(math.NaN()),
		headroom(-0.1), headroom(1), headroom(math.Inf(1)), headroom(math.Inf(-1))} {
		calls = append(calls, arguments{config, "", bad})
	}
	for name, at := range requestAt {
		if at.size == 7 {
			calls = append(calls, arguments{config, "", number(name, 1<<52)},
				arguments{config, "", number(name, 1<<56-1)})
		}
	}
	for bad := range strings.SplitSeq("nan,-1,4503599627370496,1.5,1e3,0x5, 5,99999999999999999999", ",") {
		calls = append(calls, arguments{config, bad, good}, arguments{config, bad, draw})
	}
	configures := [][]any{{config, "", good, "nonsense"}, {"", "", good, "set"},
		{config, "", "", "set"}, {config, "x", good, "set"},
		{config, "", number("ttl", 0), "set"}, {config, "", number("ttl", 3_600_000_001), "set-if-absent"},
		{with(revisionAt.to(1<<52 - 1)), "", good, ""}, {config, "", good},
		{with(stepAt.to(0)), "", good, "set"}}
	onEach(t, func(t *testing.T, s *Store) {
		bucket := s.bucketKey("k")
		record := recordKey(bucket, "h")
		for _, exists := range []bool{false, true} {
			if exists {
				granted(t, s, "k", request(1))
				s.rdb.Persist(ctx, bucket)
				s.rdb.Persist(ctx, record)
			}
			before := contents(s)
			for _, c := range calls {
				v, err := invoke(ctx, s.rdb, []*invocation{{s.leaseScript, []any{bucket, record},
					[]any{c.config, c.now, c.request}}}, func() {})[0].Result()
				if err == nil {
					r := request(2)
					_, err = decodeGrant(v, &r)
				}
				testkit.Check(t, errors.Is(err, lease.ErrInvalidRequest), "%q: %v", c, err)
				testkit.Must(t, contents(s) == before, "%q wrote:\n%s\n%s", c, before, contents(s))
			}
			for _, args := range configures {
				v, err := invoke(ctx, s.rdb,
					[]*invocation{{s.configureScript, []any{bucket}, args}}, func() {})[0].Result()
				if err == nil {
					_, err = decodeState(v)
				}
				testkit.Check(t, errors.Is(err, lease.ErrInvalidConfig) && contents(s) == before, "%v: %v", args, err)
			}
		}
	})
}

// FuzzStored: whatever bytes stand where a bucket or a record should be, a call either calls it
// damaged and leaves it alone, or takes it, answers with a sound grant, and stores what the next
// call takes as well. The scripts never fail half way.
//
// (Numbers near the end of what is read may grow beyond it, as no call of this library can bring
// about: there, the next call may call the bucket damaged. It writes nothing then.)
//
//	go test ./redisbucket -run '^$' -fuzz FuzzStored
func FuzzStored(f *testing.F) {
	const now, seq = uint64(1_700_000_000_100_000), uint64(2)
	const born, last, top = 1_700_000_000_000_000, 1<<52 - 1, 1<<53 - 1
	config := textOf(f, request(1).Config)
	fields := [stateNumbers]float64{born, born, 1, 5, 7, born, born, 0, born, born + 2_000_000, born, 0, 400_000,
		400_000, born, 65_536, 0, born, 0,
		0.0001, 900_000, 0, 4 + heldAt: 10, 4 + weightAt: 1}
	good := doubles(fields[:]...) + config
	record := doubles(born, born, 1, 0, 29_749_925_612, born+400_000, 10, 1, 3, 10, 1, 1, born, 0)
	two := request(1).Config
	two.Limits = append(two.Limits, lease.Limit{Tokens: 7, Per: 24 * time.Hour, Burst: 9})
	two.Overcommit, two.StartEmpty = 5, true
	f.Add(good, record, now, seq)
	f.Add(good, "", now, uint64(1))
	ring := doubles(make([]float64, 16)...) // that is empty
	early := doubles(1, 1, 1, 0, 0, 5, 9, 0, 3, 20, 1, 1, 2, 2, 4, 1, 0, 0, 1, 0, 1e-10, 1, 0)
	f.Add(early+ring+textOf(f, two)+doubles(5, 0), record, now, seq)
	f.Add(doubles(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0, 1, 0, 0, 0, 0, top, 0, 0)+ring+config,
		record, uint64(0), seq)
	f.Add(doubles(last, last, last, last, last, top, last, last+7_200_000_000, last, top, last, last,
		3_600_000_000, 3_600_000_000, last, 3_600_000_000, top, last, last, top, 1.5e-300, 1_000_000,
		0, last)+ring[8:]+config, record, uint64(last), uint64(last))
	states, records := damages(false)
	for _, damage := range states {
		f.Add(damage(good), record, now, seq)
	}
	for _, damage := range records {
		f.Add(good, damage(record), now, seq)
	}
	f.Add(setNumber(good, levelAt, -5e14), record, now, seq)
	f.Add(setNumber(good, 4+heldAt, 1), record, now, seq)
	f.Add("", "", uint64(0), uint64(1))
	f.Add(good[:len(good)-1], record[:111], uint64(0), uint64(1))
	redistest.Require(f) // miniredis is another Lua; what it makes of odd numbers says nothing about Redis
	rdb := redis.NewClient(patient(redistest.Start(f).Addr))
	f.Cleanup(func() { rdb.Close() })
	for _, state := range formSeeds(f, storeOn(f, rdb)) {
		f.Add(state, record, now, seq)
	}
	f.Fuzz(func(t *testing.T, state, record string, now, seq uint64) {
		// given any texts in the places of one bucket
		ctx := context.Background()
		s := storeOn(t, rdb)
		s.now = func() string { return strconv.FormatUint(now%(1<<52), 10) }
		before := texts{state: state, records: map[string]string{"h": record}}
		bucket := s.bucketKey("k")
		testkit.NoErr(t, rdb.Del(ctx, recordKey(bucket, "h")).Err())
		before.put(t, s, "k")
		testkit.NoErr(t, rdb.Set(ctx, bucket, mark+state, 0).Err()) // be it empty

		// when it is inspected, and a holder calls
		_, inspectErr := s.Inspect(ctx, "k")
		_, lookErr := s.Look(ctx, "k")
		r := request(max(1, int64(seq%(1<<52))))
		r.Remaining, r.Epoch, r.Counter, r.LeaseMax = 3, 1_700_000_000_000_000, 1, 400*time.Millisecond
		g, err := exchange(s, "k", r)
		for _, e := range []error{inspectErr, lookErr, err} {
			// what the script took is checked once more in Go
			testkit.Must(t, e == nil || errors.Is(e, errDamaged) || errors.Is(e, lease.ErrStale) ||
				errors.Is(e, ErrReply), "neither taken nor called damaged: %v", e)
		}
		after := textsOf(t, s, "k", "h")
		if errors.Is(err, errDamaged) || errors.Is(err, lease.ErrStale) {
			// then nothing was touched,
			testkit.Must(t, after.state == state && after.records["h"] == record, "%v, and yet\n%q became\n%q",
				err, before, after)
			return
		}
		// or what was stored is taken by the next call, with a grant that can be.
		testkit.Must(t, err != nil || g.Granted >= 0 && g.Granted <= r.Want, "%+v", g)
		r.Seq++
		_, again := exchange(s, "k", r)
		testkit.Must(t, err != nil || again == nil || r.Validate() != nil || extreme(state) || extreme(record),
			"taken, and then %v:\n%q became\n%q", again, before, after)
	})
}

// extreme reports whether a number is so large that it may grow beyond 2^52.
func extreme(text string) bool {
	return slices.ContainsFunc(numbers(text), func(n float64) bool { return !(n < 1<<51) })
}
