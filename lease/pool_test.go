package lease

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func newPool(n int64) *Pool {
	p := new(Pool)
	p.init(0)
	p.add(n)
	return p
}

func TestPoolGivesWhatItHoldsAndNoMore(t *testing.T) {
	p := newPool(3)
	for i := range 5 {
		if ok := p.Take().Ok(); ok != (i < 3) {
			t.Errorf("take %d of a pool of 3: %v", i+1, ok)
		}
	}
	p.add(5)
	if p.TakeN(6).Ok() {
		t.Error("six of five were taken")
	}
	if !p.TakeN(5).Ok() {
		t.Error("a refused take of six took something")
	}
	if p.Held() != 0 || p.Missed() != 2+6 {
		t.Errorf("held %d, missed %d", p.Held(), p.Missed())
	}
}

func TestPoolReportsLowOnce(t *testing.T) {
	p := newPool(10)
	p.arm(4)
	lows := 0
	for i := range 10 {
		if p.Take() == TookLow {
			lows++
			if left := 9 - i; left != 3 {
				t.Errorf("low with %d left, the watermark is 4", left)
			}
		}
	}
	if lows != 1 {
		t.Errorf("low was reported %d times", lows)
	}
}

func TestTakeAllocatesNothing(t *testing.T) {
	p := newPool(1 << 20)
	empty := newPool(0)
	if n := testing.AllocsPerRun(1000, func() { p.Take(); p.TakeN(2); empty.Take(); empty.TakeN(3) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPutBackIsRefusedAfterAReport(t *testing.T) {
	p := newPool(5)
	e := p.Interval()
	p.TakeN(3)
	if !p.put(1, e) || p.Held() != 3 {
		t.Errorf("within the interval: held %d", p.Held())
	}
	p.report(func(int64) int64 { return 0 })
	if p.put(2, e) || p.Held() != 3 {
		t.Errorf("after a report a stray put forged tokens: held %d", p.Held())
	}
}

func TestStrictTakeRefusesWhatHasExpired(t *testing.T) {
	c := clock.NewManual(1000)
	p := newPool(10)
	p.deadline.Store(int64(c.Now().Add(time.Second)))
	if !p.TakeStrict(1, c).Ok() {
		t.Error("refused before the deadline")
	}
	c.Advance(time.Second)
	if p.TakeStrict(2, c).Ok() {
		t.Error("spent at the deadline")
	}
	if p.late.Load() != 2 {
		t.Errorf("%d tokens are burnt", p.late.Load())
	}
}

// TestPoolConserves runs everything at once: takers of one and of many, who put some back, while
// the owner adds, reports, returns and drains. No token is lost and none forged.
func TestPoolConserves(t *testing.T) {
	p := newPool(0)
	var admitted, putLate atomic.Int64
	var stop atomic.Bool
	var takers sync.WaitGroup
	for g := range 4 {
		takers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for !stop.Load() {
				n := int64(1)
				e := p.Interval() // before the take: a later one could forge
				var ok bool
				if rnd.IntN(2) == 0 {
					ok = p.Take().Ok()
				} else {
					n = 1 + rnd.Int64N(4)
					ok = p.TakeN(n).Ok()
				}
				if !ok {
					continue
				}
				admitted.Add(n)
				if rnd.IntN(4) == 0 {
					if p.put(n, e) {
						admitted.Add(-n)
					} else {
						putLate.Add(n)
					}
				}
			}
		})
	}
	rnd := rand.New(rand.NewPCG(9, 9))
	granted, returned, burnt := int64(0), int64(0), int64(0)
	for range 20_000 {
		switch rnd.IntN(4) {
		case 0, 1:
			n := rnd.Int64N(50)
			p.add(n)
			granted += n
			p.arm(rnd.Int64N(10))
		case 2:
			_, back := p.report(func(held int64) int64 { return held / 3 })
			returned += back
		case 3:
			burnt += p.drain()
		}
	}
	p.add(1)
	granted++
	stop.Store(true)
	takers.Wait()
	held := p.Held()
	if granted != admitted.Load()+returned+burnt+held {
		t.Errorf("granted %d, but admitted %d + returned %d + burnt %d + held %d", granted, admitted.Load(), returned, burnt, held)
	}
	if admitted.Load() == 0 || putLate.Load() == 0 {
		t.Logf("little happened: admitted %d, put back late %d", admitted.Load(), putLate.Load())
	}
}

// TestEmptyMarkNeverStays: once tokens were added and everybody is quiet, a take succeeds, whatever
// the takers that found the pool empty did at the same moment.
func TestEmptyMarkNeverStays(t *testing.T) {
	rounds := 3000
	if testkit.RaceEnabled {
		rounds = 500
	}
	for range rounds {
		p := newPool(1)
		var all sync.WaitGroup
		var taken atomic.Int64
		for range 3 {
			all.Go(func() {
				for range 3 {
					if p.Take().Ok() {
						taken.Add(1)
					}
				}
			})
		}
		all.Go(func() { p.add(12) })
		all.Wait()
		if !p.Take().Ok() {
			t.Fatalf("%d of 13 were taken, and the pool says it is empty", taken.Load())
		}
	}
}
