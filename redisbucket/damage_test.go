package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// place is the offset and the size of a number.
type place struct{ at, size int }

// Places in the text of a bucket with one limit that has all parts but the date, in its configuration, which begins
// at configAt, and in a record. Without a past the configuration is where that would be, and in the short form
// where the share is.
var (
	epochAt, nowAt, ttlAt, levelAt, restAt = place{1, 7}, place{14, 7}, place{21, 4}, place{37, 7}, place{44, 3}
	widthAt, keepAt, movedAt               = place{55, 4}, place{59, 7}, place{66, 7}
	contendedAt, idleAt, heldAt, weightAt  = place{73, 7}, place{80, 7}, place{94, 7}, place{150, 7}
	birthAt, clockAt, frozenAt, stoodAt    = place{199, 7}, place{206, 7}, place{213, 7}, place{220, 7}
	proposedAt, proposedAtAt, updatedAt    = place{227, 4}, place{231, 7}, place{238, 7}

	seqAt, endsAt, holdingAt, heavyAt  = place{15, 7}, place{22, 7}, place{29, 7}, place{36, 4}
	grantedAt, voidAt, sinceAt, lastAt = place{47, 7}, place{54, 1}, place{55, 7}, place{62, 7}
)

const shareAt, ringAt, pastAt, owedAt, allowanceAt = 47, 87, 199, 245, 69

var (
	deployAt, overcommitAt, callsAt, revisionAt = place{0, 7}, place{7, 7}, place{14, 4}, place{18, 7}
	emptyAt, targetAt, burstAt, unitAt          = place{25, 1}, place{26, 4}, place{30, 7}, place{37, 7}
	stepAt, codeAt                              = place{44, 7}, place{51, 1}
)

// requestAt has the places of the numbers of a request, except its headroom, which is a double.
var requestAt = map[string]place{"ttl": {0, 4}, "want": {4, 7}, "epoch": {11, 7}, "counter": {18, 7},
	"denied": {25, 7}, "seq": {32, 7}, "need": {39, 7}, "weight": {46, 4}, "leaseMax": {50, 7},
	"heardAt": {57, 7}, "heardAge": {64, 7}, "heardExpiry": {71, 7},
	"remaining": {78, 7}, "returned": {85, 7}, "waiting": {92, 7}, "draw": {107, 1},
	"kind": {108, 1}, "late": {109, 7}, "drawn": {116, 7}}

const headroomAt = 99

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

// double returns a way to damage a text: another double at an offset.
func double(at int, to float64) func(string) string {
	return func(s string) string { return s[:at] + doubles(to) + s[at+8:] }
}

// reformed returns a way to damage a text: another form.
func reformed(form func(was byte) byte) func(string) string {
	return func(s string) string { return string([]byte{form(s[0])}) + s[1:] }
}

// withPast returns the text of a bucket of one limit in use with the part for its past, which says nothing new.
func withPast(s string) string {
	r := reader{left: s[1:]}
	epoch, _, now, ttl := r.whole(7), r.whole(6), r.whole(7), r.whole(4)
	b := appendWholes([]byte(s[:pastAt]), 7, epoch, now, 0, now)
	b = appendWholes(appendWhole(b, 4, ttl), 7, now, now)
	b[0] += formPast
	return string(b) + doubles(0) + s[pastAt:]
}

// damages returns ways to damage the texts of a bucket of one limit in use, and of a record, so that the
// scripts cannot trust them.
func damages() (states, records map[string]func(string) string) {
	states = map[string]func(string) string{
		"one byte more": func(s string) string { return s + "\x00" },
		"one byte less": func(s string) string { return s[:len(s)-1] },
		"ledger without holder": func(s string) string {
			return s[:ringAt] + strings.Repeat("\x00", 7*16) + s[pastAt:]
		},
		"cut in half":           func(s string) string { return s[:len(s)/2] },
		"empty":                 func(string) string { return "" },
		"text":                  func(string) string { return "\x00x" },
		"text as long":          func(s string) string { return s[:1] + strings.Repeat("x", len(s)-1) },
		"zeros as long":         func(s string) string { return s[:1] + strings.Repeat("\x00", len(s)-1) },
		"configuration missing": func(s string) string { return s[:pastAt] },
		"another limit":         reformed(func(was byte) byte { return was + 1 }),
		"a date":                reformed(func(was byte) byte { return was + formDated }),
		"not in use":            reformed(func(was byte) byte { return was - formUsed }),
		"a past":                reformed(func(was byte) byte { return was + formPast }),
		"a past without use":    reformed(func(was byte) byte { return was + formPast - formUsed }),
	}
	placed(states, 0, map[place][]int64{
		epochAt: {0, 1<<52 - 1, 1 << 52}, nowAt: {1 << 52}, ttlAt: {0, 1, 3_600_000_001},
		levelAt: {1_000_001, 1 << 53}, restAt: {1}, widthAt: {0, 1<<29 + 1}, keepAt: {1 << 53},
		movedAt: {1<<52 - 1}, contendedAt: {1 << 53}, idleAt: {1<<52 - 1}, heldAt: {1 << 52}, weightAt: {1 << 52},
	})
	placed(states, pastAt, map[place][]int64{deployAt: {1 << 52}, overcommitAt: {1<<52 - 1},
		callsAt: {1_000_000_001}, revisionAt: {1 << 52}, emptyAt: {6}, targetAt: {0, 3_600_000_001}, burstAt: {0},
		unitAt: {0, 99_999_999_999_999}, stepAt: {0, 1 << 52}, codeAt: {3, 7, 8}})
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1), 1 << 53} {
		states[fmt.Sprint("share ", bad)] = double(shareAt, bad)
	}
	past := make(map[string]func(string) string)
	placed(past, 0, map[place][]int64{birthAt: {1<<52 - 1}, clockAt: {1 << 52}, frozenAt: {4e15},
		stoodAt: {1<<52 - 1}, proposedAt: {0, 3_600_000_001}, proposedAtAt: {1<<52 - 1}, updatedAt: {1<<52 - 1}})
	for _, bad := range append(notWhole, 1, -1, -3_153_600_000_000_000) {
		past[fmt.Sprint("owed ", bad)] = double(owedAt, bad) // beside a level
	}
	for name, damage := range past {
		states["past: "+name] = func(s string) string { return damage(withPast(s)) }
	}
	states["an owed level below all"] = func(s string) string {
		return double(owedAt, -3_153_600_000_000_000)(levelAt.set(withPast(s), 0, 0))
	}
	records = map[string]func(string) string{
		"empty": func(string) string { return "" }, "text": func(string) string { return "\x00x" },
		"cut off": func(s string) string { return s[:len(s)-1] },
		"longer":  func(s string) string { return s + s },
	}
	placed(records, 0, map[place][]int64{seqAt: {1 << 52}, endsAt: {1 << 53}, holdingAt: {11, 1 << 52}, heavyAt: {2},
		grantedAt: {1 << 52}, voidAt: {2}, sinceAt: {1 << 52}, lastAt: {1 << 52}})
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -1e300, 1 << 53} {
		records[fmt.Sprint("allowance ", bad)] = double(allowanceAt, bad)
	}
	return states, records
}

func TestDamagedStateIsAnErrorAndIsNotTouched(t *testing.T) {
	ctx := context.Background()
	states, records := damages()
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
			return func() { s.rdb.Set(ctx, key, marked(change(unmarked(t, s.rdb.Get(ctx, key).Val()))), 0) }
		}
		for name, c := range states {
			check("state: "+name, name != "ledger without holder", change(bucket, c))
		}
		for name, c := range records {
			check("record: "+name, false, change(record, c))
		}
		for name, other := range map[string]string{"none": "", "another": "z\x02", "of layout 0": "y\x00"} {
			for key, apparent := range map[string]bool{bucket: true, record: false} {
				check("the mark of "+key+" is "+name, apparent, func() {
					s.rdb.Set(ctx, key, other+s.rdb.Get(ctx, key).Val()[layoutMark:], 0)
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
	testkit.NoErr(t, s.rdb.Set(ctx, bucket, marked(bad), 0).Err())
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
	for _, v := range []any{grantReply(replyEpoch.to(0)), grantReply(replyGranted.to(11)), "OK"} {
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
		number("draw", 1), number("draw", 2), number("kind", 4), number("late", 0), good + strings.Repeat(good[108:], lease.LateMax), requestAt["want"].set(draw, 0, 1<<52),
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
		{config, "", number("ttl", 0), "set"}, {config, "", number("ttl", 3_600_000_001), "replace"},
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
	const born, last = 1_700_000_000_000_000, 1<<52 - 1
	// seed adds a bucket that one call has made, and then a change.
	seed := func(first lease.Request, now uint64, change func(*protocol.BucketDump)) (state, record string) {
		var b protocol.Bucket
		var g lease.Grant
		testkit.NoErr(f, b.Call(born, &first, &g))
		d := b.Dump()
		if change != nil {
			change(&d)
		}
		x := dumped(f, d)
		record = "\x00" + string(appendWholes(nil, 7, d.Created, d.Epoch)) + x.records[first.Holder]
		f.Add(x.state, record, now, seq)
		return x.state, record
	}
	good, record := seed(request(1), now, nil)
	f.Add(good, "", now, uint64(1))
	two := request(1)
	two.Config.Limits = append(two.Config.Limits, lease.Limit{Tokens: 7, Per: 24 * time.Hour, Burst: 9})
	two.Config.Overcommit, two.Config.StartEmpty = 5, true
	seed(two, now, nil)
	seed(request(1), now, func(d *protocol.BucketDump) { d.Level[0], d.Frozen, d.SetAt = -5e11, d.Now+100_000, d.Now })
	seed(request(1), last, func(d *protocol.BucketDump) {
		d.Counter, d.Spent, d.Denied, d.Clock, d.Now, d.Epoch = 1<<48-1, 1<<48-1, 1<<48-1, last, last, last
		d.Frozen, d.Keep, d.StoodAt, d.Proposed = last+7_200_000_000, 1<<53-1, last, 3_600_000_000
	})
	seed(request(1), 0, func(d *protocol.BucketDump) { d.Share, d.Held[3], d.Width = 1.5e-300, last-100, 1 })
	states, records := damages()
	for _, damage := range states {
		f.Add(damage(good), record, now, seq)
	}
	for _, damage := range records {
		f.Add(good, damage(record), now, seq)
	}
	f.Add("", "", uint64(0), uint64(1))
	f.Add(good[:len(good)-1], record[:50], uint64(0), uint64(1))
	redistest.Require(f) // miniredis is another Lua; what it makes of odd numbers says nothing about Redis
	rdb := redis.NewClient(patient(redistest.Start(f).Addr))
	f.Cleanup(func() { rdb.Close() })
	for _, state := range formSeeds(f, storeOn(f, rdb)) {
		f.Add(state, record, now, seq)
	}
	f.Fuzz(func(t *testing.T, state, record string, now, seq uint64) {
		state += strings.Repeat("\x00", 1-min(1, len(state)))
		state = string([]byte{state[0] % 32}) + state[1:] // there is no other form
		if record != "" {
			record = "\x00" + record[1:]
		}
		// given any texts in the places of one bucket
		ctx := context.Background()
		s := storeOn(t, rdb)
		s.now = func() string { return strconv.FormatUint(now%(1<<52), 10) }
		before := texts{state: state, records: map[string]string{"h": record}}
		bucket := s.bucketKey("k")
		testkit.NoErr(t, rdb.Del(ctx, recordKey(bucket, "h")).Err())
		before.put(t, s, "k")
		testkit.NoErr(t, rdb.Set(ctx, bucket, marked(state), 0).Err()) // be it empty

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

// extreme reports whether a number of a bucket or a record is so large that it may grow beyond what can be stored.
func extreme(text string) bool {
	var d protocol.BucketDump
	if r, _, err := parseRecord(marked(text), &d); err == nil {
		return max(r.Seq, r.Ends, r.Held, r.Granted, r.Since, r.Last) > 1<<51
	}
	d, err := parseBucket(marked(text))
	n := max(d.Epoch, d.Now, d.Clock, d.Keep, d.ContendedUntil, d.Config.Version.Revision, d.Counter<<4, d.Spent<<4, d.Denied<<4)
	for i := range d.Held {
		n = max(n, d.Held[i]<<3, d.Weight[i]<<3)
	}
	return err != nil || n > 1<<51 || d.Share < 1e-200
}
