package lease

import (
	"errors"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

func equalProducts(a, b []int64) bool {
	product := func(of []int64) *big.Int {
		p := big.NewInt(1)
		for _, n := range of {
			p.Mul(p, big.NewInt(n))
		}
		return p
	}
	return product(a).Cmp(product(b)) == 0
}

// bigBucket is one central token bucket in rationals: the reference that has no rounding at all.
type bigBucket struct {
	level, burst, rate *big.Rat // rate per microsecond
	at                 int64
}

func newBigBucket(l Limit, now int64) *bigBucket {
	burst := new(big.Rat).SetInt64(l.Capacity())
	return &bigBucket{
		level: new(big.Rat).Set(burst), burst: burst, at: now,
		rate: new(big.Rat).Quo(new(big.Rat).SetInt64(l.Tokens), new(big.Rat).SetFrac64(int64(l.Per), 1000)),
	}
}

func (b *bigBucket) advance(now int64) {
	b.level.Add(b.level, new(big.Rat).Mul(b.rate, new(big.Rat).SetInt64(now-b.at)))
	if b.level.Cmp(b.burst) > 0 {
		b.level.Set(b.burst)
	}
	b.at = now
}

func (b *bigBucket) draw(n int64) { b.level.Sub(b.level, new(big.Rat).SetInt64(n)) }

// TestRefillIsExact compares every level with rationals: the fraction of a token, and of a tick, is
// never lost and never credited twice.
func TestRefillIsExact(t *testing.T) {
	limits := []Limit{
		PerSecond(3), PerSecond(1_000_000_000), {Tokens: 1, Per: 30 * 24 * time.Hour},
		{Tokens: 7, Per: 13 * time.Millisecond, Burst: 2}, {Tokens: 999_983, Per: time.Second, Burst: 10},
		{Tokens: 1_000_000_007, Per: 1_000_033 * time.Millisecond, Burst: 5_000_000}, // ticks of 1 ms
		{Tokens: 1_000_000_007, Per: 1_000_033 * time.Second, Burst: 4_000_000_000},  // ticks of 1 s
		{Tokens: 1_000_000_007, Per: 1_000_033 * time.Millisecond, Burst: 4_503_000_000 /* at 2^52 */},
	}
	for _, l := range limits {
		sc, err := newScale(l, 0)
		if err != nil {
			t.Errorf("%v: %v", l, err)
			continue
		}
		rnd := rand.New(rand.NewPCG(1, uint64(l.Tokens)))
		now := int64(1_000_000_000_000_000)
		b, model := Bucket{}, newBigBucket(l, now)
		c := Config{Limits: []Limit{l}, TTL: time.Second, Target: time.Millisecond}
		for i := range int64(3000) {
			now += randomPause(rnd, sc)
			model.advance(now)
			want := rnd.Int64N(l.Capacity()) >> rnd.IntN(40)
			r := Request{Holder: "a", Seq: i + 1, Config: c, Want: want, Waiting: want, Weight: 1}
			var g Grant
			if err := b.Call(now, &r, &g); err != nil {
				t.Fatal(err)
			}
			model.draw(g.Granted)
			// The level with its rest of a tick is the rational one.
			units := new(big.Rat).SetFrac64(b.state.level[0], sc.Unit)
			rest := new(big.Rat).Mul(model.rate, new(big.Rat).SetInt64(b.state.rest[0]))
			if got := units.Add(units, rest); got.Cmp(model.level) != 0 {
				t.Fatalf("%v (tick %d µs) after %d calls: %v, exactly %v", l, sc.Tick, i+1,
					got.FloatString(9), model.level.FloatString(9))
			}
			// Whole tokens are granted as soon as their tick has come.
			least := new(big.Rat).Mul(model.rate, new(big.Rat).SetInt64(sc.Tick))
			least.Add(least, new(big.Rat).SetInt64(1+want))
			if g.Granted < want && least.Cmp(model.level) < 0 {
				t.Fatalf("%v: granted %d of %d, but %v were left", l, g.Granted, want,
					model.level.FloatString(3))
			}
		}
	}
}

// randomPause is mostly short, sometimes about a tick, sometimes long enough to fill up.
func randomPause(rnd *rand.Rand, sc Scale) int64 {
	switch rnd.IntN(4) {
	case 0:
		return rnd.Int64N(3)
	case 1:
		return rnd.Int64N(3*sc.Tick + 1)
	case 2:
		return rnd.Int64N(micros(sc.timeToFull())/8 + 2)
	}
	return rnd.Int64N(5000)
}

func TestMulDivIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		c := 1 + rnd.Int64N(maxUnits-1)
		a, b := rnd.Int64N(c), rnd.Int64N(maxUnits)
		want := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		want.Quo(want, big.NewInt(c))
		if got := mulDiv(a, b, c); got != want.Int64() {
			t.Fatalf("mulDiv(%d, %d, %d) = %d, want %v", a, b, c, got, want)
		}
	}
}

// TestRingForgetsNothingEarly: whatever T does, an entry is in the ledger until its T has passed,
// and at most one of the widest slices longer than the longest T.
func TestRingForgetsNothingEarly(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 20_000 {
		now := 1_000_000 + rnd.Int64N(1000)
		ttl := 1 + rnd.Int64N(100)
		r := newRing(now, ttl)
		longest, until := ttl, now
		for range 1 + rnd.IntN(6) {
			now += rnd.Int64N(40)
			for r.ends() <= now {
				r.expire()
			}
			next := 1 + rnd.Int64N(100)
			r.fit(now, next, next > ttl)
			ttl, longest = next, max(longest, next)
			r.add(r.place(now, ttl).slice, 1, 1)
			until = max(until, now+ttl)
			held := r.ledger()
			probe := r
			for probe.ends() <= until {
				probe.expire()
			}
			if held > 0 && probe.ledger() == 0 {
				t.Fatalf("at %d every entry of %+v is forgotten before %d", now, r, until)
			}
		}
		end := until + 3*longest
		for r.ends() <= end {
			r.expire()
		}
		if r.ledger() != 0 || r.weightSum() != 0 {
			t.Fatalf("three T later %+v still remembers", r)
		}
	}
}

func TestRefusedCallLeavesNoTrace(t *testing.T) {
	// given a bucket with one holder
	s := newScene(t, PerSecond(10), time.Second)
	a := s.holder("a")
	s.calls(a, ask{Want: 3})
	old := Request{Holder: "a", Seq: 1, Config: s.config, Want: 5, Weight: 1}
	s.calls(a, ask{Want: 1})
	before := s.bucket.Dump()
	// when an older call arrives, or one that would mint tokens, much later
	negative := old
	negative.Seq, negative.Returned = 9, -5
	for _, c := range []struct {
		r    Request
		want error
	}{{old, ErrStale}, {negative, ErrInvalidRequest}} {
		var g Grant
		if err := s.bucket.Call(s.now+500_000, &c.r, &g); !errors.Is(err, c.want) {
			t.Errorf("%v, want %v", err, c.want)
		}
	}
	// then nothing has changed
	after := s.bucket.Dump()
	if before.Now != after.Now || before.Counter != after.Counter || before.Level != after.Level ||
		before.Held != after.Held {
		t.Errorf("before %+v\n after %+v", before, after)
	}
}
