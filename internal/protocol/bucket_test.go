package protocol

import (
	"errors"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func rat(n int64) *big.Rat { return big.NewRat(n, 1) }

// bigBucket is one central token bucket in rationals: the reference that has no rounding at all.
type bigBucket struct {
	level, burst, rate *big.Rat // rate per microsecond
	at                 int64
}

func newBigBucket(l lease.Limit, now int64) *bigBucket {
	return &bigBucket{level: rat(l.Capacity()), burst: rat(l.Capacity()), at: now,
		rate: new(big.Rat).Quo(rat(l.Tokens), big.NewRat(int64(l.Per), 1000))}
}

// in is the refill of us microseconds.
func (b *bigBucket) in(us int64) *big.Rat { return new(big.Rat).Mul(b.rate, rat(us)) }

func (b *bigBucket) advance(now int64) {
	b.level.Add(b.level, b.in(now-b.at))
	if b.level.Cmp(b.burst) > 0 {
		b.level.Set(b.burst)
	}
	b.at = now
}

// TestRefillIsExact compares every level with rationals: the fraction of a token, and of a tick, is
// never lost and never credited twice.
func TestRefillIsExact(t *testing.T) {
	limits := []lease.Limit{
		lease.PerSecond(3), lease.PerSecond(1_000_000_000), {Tokens: 1, Per: 30 * 24 * time.Hour},
		{Tokens: 7, Per: 13 * time.Millisecond, Burst: 2}, {Tokens: 999_983, Per: time.Second, Burst: 10},
		{Tokens: 1_000_000_007, Per: 1_000_033 * time.Millisecond, Burst: 5_000_000}, // ticks of 1 ms
		{Tokens: 1_000_000_007, Per: 1_000_033 * time.Second, Burst: 4_000_000_000},  // ticks of 1 s
		{Tokens: 1_000_000_007, Per: 1_000_033 * time.Millisecond, Burst: 4_503_000_000 /* at 2^52 */},
	}
	for _, l := range limits {
		testkit.NoErr(t, l.Validate())
		sc := ScaleOf(l, 0)
		rnd := rand.New(rand.NewPCG(1, uint64(l.Tokens)))
		now := int64(1_000_000_000_000_000)
		b, model := Bucket{}, newBigBucket(l, now)
		c := lease.Config{Limits: []lease.Limit{l}, TTL: time.Second, Target: time.Millisecond}
		for i := range int64(3000) {
			now += randomPause(rnd, sc)
			model.advance(now)
			want := rnd.Int64N(l.Capacity()) >> rnd.IntN(40)
			r := lease.Request{Holder: "a", Seq: i + 1, Config: c, Want: want, Waiting: want, Weight: 1}
			var g lease.Grant
			testkit.NoErr(t, b.Call(now, &r, &g))
			model.level.Sub(model.level, rat(g.Granted))
			// The level with its rest of a tick is the rational one.
			got := big.NewRat(b.levelOf(0).units, sc.Unit)
			got.Add(got, model.in(b.levelOf(0).rest))
			testkit.Must(t, got.Cmp(model.level) == 0, "%v (tick %d µs) after %d calls: %v, exactly %v",
				l, sc.Tick, i+1, got, model.level)
			// Whole tokens are granted as soon as their tick has come.
			least := model.in(sc.Tick)
			least.Add(least, rat(1+want))
			testkit.Must(t, g.Granted == want || least.Cmp(model.level) >= 0,
				"%v: granted %d of %d, but %v were left", l, g.Granted, want, model.level)
		}
	}
}

// randomPause is mostly short, sometimes about a tick, sometimes long enough to fill up.
func randomPause(rnd *rand.Rand, sc exact.Scale) int64 {
	switch rnd.IntN(4) {
	case 0:
		return rnd.Int64N(3)
	case 1:
		return rnd.Int64N(3*sc.Tick + 1)
	case 2:
		return rnd.Int64N(exact.Micros(sc.TimeToFull())/8 + 2)
	}
	return rnd.Int64N(5000)
}

func TestMulDivIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		c := 1 + rnd.Int64N(exact.MaxUnits-1)
		a, b := rnd.Int64N(c), rnd.Int64N(exact.MaxUnits)
		want := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		want.Quo(want, big.NewInt(c))
		got := exact.MulDiv(a, b, c)
		testkit.Must(t, got == want.Int64(), "mulDiv(%d, %d, %d) = %d, want %v", a, b, c, got, want)
	}
}

func TestRefusedCallLeavesNoTrace(t *testing.T) {
	// given a bucket with one holder
	s := newScene(t, lease.PerSecond(10), time.Second)
	a := s.holder("a")
	s.calls(a, ask{Want: 3})
	old := lease.Request{Holder: "a", Seq: 1, Config: s.config, Want: 5, Weight: 1}
	s.calls(a, ask{Want: 1})
	before := s.bucket.Dump()
	// when an older call arrives, or one that would mint tokens, much later
	negative := old
	negative.Seq, negative.Returned = 9, -5
	for _, c := range []struct {
		r    lease.Request
		want error
	}{{old, lease.ErrStale}, {negative, lease.ErrInvalidRequest}} {
		var g lease.Grant
		err := s.bucket.Call(s.now+500_000, &c.r, &g)
		testkit.Check(t, errors.Is(err, c.want), "%v, want %v", err, c.want)
	}
	// then nothing has changed
	after := s.bucket.Dump()
	testkit.Check(t, before.Now == after.Now && before.Counter == after.Counter &&
		before.Level == after.Level && before.Held == after.Held, "before %+v\n after %+v", before, after)
}

// TestAHolderIsInTheRingOnceWhateverTDoes: T grows and shrinks in small and in large steps while holders
// call seldom. Those that call before their leases end are found, so that no weight is counted twice; and
// none is found whose weight the ring has forgotten.
func TestAHolderIsInTheRingOnceWhateverTDoes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		now, ttl := 1_000_000+rnd.Int64N(1000), 1+rnd.Int64N(1000)
		r := newRing(now, ttl)
		var places [5]place
		step, punctual := max(1, ttl/(1+rnd.Int64N(50))), rnd.IntN(2) == 0
		for range 400 {
			// given holders, of which those call whose lease is about to end, and others now and then
			passes := 1 + rnd.Int64N(1+ttl/4)
			for i, p := range places {
				if (!punctual || p > now+passes) && rnd.IntN(10) > 0 {
					continue
				}
				at, live := r.locate(p)
				// then the ring knows each whose lease has not ended
				testkit.Must(t, live || p <= now, "at %d %+v is not in %+v", now, p, r)
				if live {
					r.add(r.slice(at), 0, -1)
				}
				if places[i] = r.place(now, ttl); live && places[i] < at {
					places[i] = at
				}
				r.add(r.slice(places[i]), 0, 1)
			}
			for _, n := range r.weight {
				testkit.Must(t, n >= 0, "at %d a weight is negative: %+v", now, r)
			}
			testkit.Must(t, !punctual || r.weightSum() == int64(len(places)), "at %d the ring has %d of %d: %+v",
				now, r.weightSum(),
				len(places), r)
			for now += passes; r.ends() <= now; {
				r.expire()
			}
			r.base = now / r.width
			switch rnd.IntN(4) {
			case 0:
				ttl = max(1, ttl+rnd.Int64N(2*step+1)-step)
			case 1:
				ttl = max(1, ttl+rnd.Int64N(step+1))
			case 2:
				if rnd.IntN(20) == 0 {
					ttl = 1 + rnd.Int64N(4*ttl)
				}
			}
			r.fit(now, ttl)
		}
	}
}

// newDraws is a bucket of 10 tokens a second with a burst of 10.
func newDraws(t *testing.T) *scene {
	s := newScene(t, lease.PerSecond(10), time.Second)
	s.config, s.fair = lease.Policy{}.ConfigFor(s.config.Limits, 0, 0), true
	return s
}

// drawsAtRest has a process draw n tokens.
func (s *scene) drawsAtRest(holder string, n int64) lease.Grant {
	s.t.Helper()
	return s.sends(lease.Request{Holder: holder, Draw: true, Want: n, Waiting: n})
}

// atRest fails the test unless a store may keep the bucket in the short form, or may not.
func (s *scene) atRest(want bool) {
	s.t.Helper()
	dump := s.bucket.Dump()
	rest := dump.AtRest()
	is := len(dump.Records) == 0 && dump.Held == rest.Held && dump.Weight == rest.Weight &&
		dump.MovedAt == rest.MovedAt && dump.Keep == rest.Keep && dump.ProposedAt == rest.ProposedAt &&
		dump.Share == rest.Share && dump.Created == rest.Created && dump.Frozen == 0
	testkit.Check(s.t, is == want, "at rest: %v, want %v: %+v", is, want, dump)
}

func TestADrawOfABucketAtRestLeavesNoRecord(t *testing.T) {
	// given a bucket without leases
	d := newDraws(t)
	for i := range int64(10) {
		// when its tokens are drawn, one by one
		g := d.drawsAtRest("a", 1)
		// then each is admitted at once, nothing is held, and there is one less
		testkit.Check(t, g.Granted == 1 && g.Waited == 1 && !g.Void && g.Ledger == 0 &&
			g.ActiveWeight == 1 &&
			g.Levels[0] == 9-i && g.Counter == i+1, "draw %d: %+v", i, g)
		d.atRest(true)
	}
	// and one that falls short is a call like any other, so that it is shared
	g := d.drawsAtRest("a", 1)
	testkit.Check(t, g.Granted == 0 && g.Delay > 0 && g.RetryAfter > 0, "%+v", g)
	d.atRest(false)
	st, err := d.bucket.Configure(d.now, lease.OpInspect, lease.Config{})
	testkit.Check(t, err == nil && st.Spent == 10 && st.ActiveWeight == 1, "%+v, %v", st, err)
}

func TestADrawBesideLeasesHasARecord(t *testing.T) {
	// given A, which has leased 3 tokens
	d := newDraws(t)
	g := d.sends(lease.Request{Holder: "a", Want: 3})
	testkit.Must(t, g.Granted == 3, "%+v", g)
	// when B draws
	g = d.drawsAtRest("b", 1)
	// then the bucket remembers both
	testkit.Check(t, g.Granted == 1 && g.Ledger == 3 && g.ActiveWeight == 2, "%+v", g)
	testkit.Check(t, len(d.bucket.Dump().Records) == 2, "%+v", d.bucket.Dump().Records)
	d.atRest(false)
	// and once the leases have ended, a draw brings it back to rest
	d.now += 2_000_000
	testkit.Check(t, d.drawsAtRest("b", 1).Granted == 1, "the second draw")
	d.atRest(true)
}

func TestADrawIsMadeAsItPromises(t *testing.T) {
	d := newDraws(t)
	good := lease.Request{Holder: "a", Seq: 1, Config: d.config, Weight: 1, Draw: true, Want: 2, Waiting: 2}
	testkit.NoErr(t, good.Validate())
	for _, change := range []func(*lease.Request){
		func(r *lease.Request) { r.Remaining = 1 }, func(r *lease.Request) { r.Returned = 1 },
		func(r *lease.Request) { r.Late = oneLate(lease.LateUnused, 1) },
		func(r *lease.Request) { r.Late = oneLate(lease.LateRefund, 1) },
		func(r *lease.Request) { r.Waiting = 1 }, func(r *lease.Request) { r.Want = 1 },
	} {
		bad := good
		change(&bad)
		testkit.Check(t, errors.Is(bad.Validate(), lease.ErrInvalidRequest), "taken: %+v", bad)
	}
}
