package pool

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func newPool(n int64) *Pool {
	p := new(Pool)
	p.Init(0)
	p.Add(n)
	return p
}

func TestPoolGivesWhatItHoldsAndNoMore(t *testing.T) {
	p := newPool(3)
	for i := range 5 {
		ok := p.Take().OK()
		testkit.Check(t, ok == (i < 3), "take %d of a pool of 3: %v", i+1, ok)
	}
	p.Add(5)
	testkit.Check(t, !p.TakeN(6).OK(), "six of five were taken")
	testkit.Check(t, p.TakeN(5).OK(), "a refused take of six took something")
	testkit.Check(t, p.Held() == 0, "%d held", p.Held())
}

func TestPoolReportsLowOnce(t *testing.T) {
	p := newPool(10)
	p.Arm(4)
	lows := 0
	for i := range 10 {
		if p.Take() == TookLow {
			lows++
			left := 9 - i
			testkit.Check(t, left == 3, "low with %d left, the watermark is 4", left)
		}
	}
	testkit.Check(t, lows == 1, "low was reported %d times", lows)
}

func TestTakeAllocatesNothing(t *testing.T) {
	p := newPool(1 << 20)
	empty := newPool(0)
	n := testing.AllocsPerRun(1000, func() { p.Take(); p.TakeN(2); empty.Take(); empty.TakeN(3) })
	testkit.Check(t, n == 0, "%v allocations", n)
}

func TestPutBackIsRefusedAfterAReport(t *testing.T) {
	p := newPool(5)
	e := p.Interval()
	p.TakeN(3)
	testkit.Check(t, p.Put(1, e) && p.Held() == 3, "within the interval: held %d", p.Held())
	p.Report(func(int64) int64 { return 0 })
	testkit.Check(t, !p.Put(2, e) && p.Held() == 3,
		"after a report a stray put forged tokens: held %d", p.Held())
}

// A reader of the draw must not see the epoch of a new bucket with the time of the one before.
func TestADrawIsOfOneEpoch(t *testing.T) {
	p := newPool(0)
	const last = 100_000
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for d := (Draw{}); d.Epoch < last; {
				d = p.Drawn()
				if d.Running < d.Epoch {
					t.Errorf("a draw of epoch %d at the time of epoch %d", d.Epoch, d.Running)
					return
				}
			}
		})
	}
	for epoch := range int64(last + 1) {
		p.SetDrawn(epoch, epoch)
	}
	readers.Wait()
}

func TestStrictTakeRefusesWhatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := clock.System(), newPool(10)
		p.deadline.Store(int64(c.Now().Add(time.Second)))
		testkit.Check(t, p.TakeStrict(1, c).OK(), "refused before the deadline")
		time.Sleep(time.Second)
		testkit.Check(t, !p.TakeStrict(2, c).OK(), "spent at the deadline")
		testkit.Check(t, p.late.Load() == 2, "%d tokens are burnt", p.late.Load())
	})
}

func TestPoolConserves(t *testing.T) {
	conserves(t, newPool(0), mixture{takesMax: 4, addsMax: 50, ofOne: 2, putsBack: 4}, func() {})
}

func TestStripedPoolConserves(t *testing.T) {
	p, striped := newStriped(t, 0), false
	conserves(t, p, mixture{takesMax: 100, addsMax: 10 * sampleEvery, ofOne: 8, putsBack: 100}, func() {
		p.contend()
		striped = striped || p.mark.Load() == MarkStriped
	})
	testkit.Check(t, striped, "the stripes never served: nothing was tested")
}

// mixture holds the actions of takers and of the owner in conserves.
type mixture struct {
	takesMax, addsMax int64
	ofOne, putsBack   int // one take in ofOne is of many; one in putsBack is put back
}

// conserves runs everything at once: takers of one and of many, who put some back, while the owner
// adds, reports, returns, denies and drains, and calls each every time. No token is lost and none
// forged, and every miss is counted.
func conserves(t *testing.T, p *Pool, m mixture, each func()) {
	var admitted, denied atomic.Int64
	var stop atomic.Bool
	var takers sync.WaitGroup
	for g := range 4 {
		takers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for !stop.Load() {
				e := p.Interval() // before the take: a later one could forge
				n, take := int64(1), p.Take
				if rnd.IntN(m.ofOne) == 0 {
					n = 1 + rnd.Int64N(m.takesMax)
					take = func() Taken { return p.TakeN(n) }
				}
				switch t := take(); {
				case t == Denied: // so there are stripes to count it in
					p.Miss()
					denied.Add(1)
				case !t.OK():
				case rnd.IntN(m.putsBack) != 0 || !p.Put(n, e):
					admitted.Add(n)
				}
			}
		})
	}
	rnd := rand.New(rand.NewPCG(9, 9))
	granted, returned, burnt := m.addsMax, int64(0), int64(0)
	p.Add(m.addsMax)
	for admitted.Load() == 0 {
		runtime.Gosched()
	}
	for range testkit.ShortOrLong(t, 2000, 20_000, "turns of the owner") {
		each()
		switch rnd.IntN(6) {
		case 0, 1, 2:
			n := rnd.Int64N(m.addsMax)
			p.Add(n)
			granted += n
			p.Arm(rnd.Int64N(1 + m.addsMax/8))
		case 3:
			_, back := p.Report(func(held int64) int64 { return held / 3 })
			returned += back
		case 4:
			p.Deny(rnd.IntN(2) == 0)
		case 5:
			burnt += p.Drain()
		}
		if rnd.IntN(100) == 0 {
			runtime.Gosched()
		}
	}
	stop.Store(true)
	takers.Wait()
	held := p.Held()
	took := admitted.Load()
	testkit.Check(t, granted == took+returned+burnt+held,
		"granted %d, but admitted %d + returned %d + burnt %d + held %d", granted, took, returned, burnt, held)
	testkit.Check(t, p.Missed() == denied.Load(), "%d counted as missed, %d were", p.Missed(), denied.Load())
}

// TestEmptyMarkNeverStays: once tokens were added and everybody is quiet, a take succeeds, whatever
// the takers that found the pool empty did at the same moment.
func TestEmptyMarkNeverStays(t *testing.T) {
	for range testkit.PlainOrRace(3000, 500) {
		p := newPool(1)
		var all sync.WaitGroup
		var taken atomic.Int64
		for range 3 {
			all.Go(func() {
				for range 3 {
					if p.Take().OK() {
						taken.Add(1)
					}
				}
			})
		}
		all.Go(func() { p.Add(12) })
		all.Wait()
		testkit.Must(t, p.Take().OK(), "%d of 13 were taken, and the pool says it is empty", taken.Load())
	}
}
