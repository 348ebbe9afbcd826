package pool

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// newStriped is a pool of n tokens that looks contended, and stays so whatever happens.
func newStriped(t testing.TB, n int64) *Pool {
	if runtime.GOMAXPROCS(0) < 2 {
		before := runtime.GOMAXPROCS(2)
		t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	}
	p := new(Pool)
	p.Init(runtime.GOMAXPROCS(0))
	p.switches = switches{contended: true, history: 0xffff}
	p.Add(n)
	return p
}

// contend keeps the pool looking contended.
func (p *Pool) contend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.switches.contended, p.switches.history = true, 0xffff
	p.remarkLocked()
}

// Goroutines on two Ps that take from one pool turn the stripes on, one alone does not.
func TestStripesServeWhereTakersContend(t *testing.T) {
	var s switches
	for range 100 {
		s.see(1)
	}
	testkit.Check(t, !s.contended, "one taker counts as contention")
	for i := range 16 {
		s.see(i / 2 % 2)
	}
	testkit.Check(t, s.contended, "two takers in turns do not")
	for range 17 {
		s.see(0)
	}
	testkit.Check(t, !s.contended, "one taker still does after 16 looks")
	p := newStriped(t, 1e6)
	for range 3 * chunk {
		p.Take()
	}
	if p.mark.Load() != MarkStriped || p.heldLocked() != 1e6-3*chunk || count(p.word.Load()) == p.heldLocked() {
		t.Errorf("mark %d, held %d, of it %d in the word", p.mark.Load(), p.heldLocked(), count(p.word.Load()))
	}
}

// However the tokens lie in the stripes, takers get all of them, and not one more.
func TestNothingIsDeniedWhileAStripeHoldsAToken(t *testing.T) {
	for _, n := range []int64{1, 5, chunk, sampleEvery - 1, sampleEvery, 5*sampleEvery + 7, 100_000} {
		p := newStriped(t, n)
		var takers sync.WaitGroup
		var taken atomic.Int64
		for range 4 { // when some take from their Ps' stripes at once, until each is denied
			takers.Go(func() {
				for p.Take().OK() {
					taken.Add(1)
				}
				// then nothing is left: no take is denied while a token is there, and none is added.
				held := p.Held()
				testkit.Check(t, held == 0, "denied while %d of %d are held", held, n)
			})
		}
		takers.Wait()
		testkit.Check(t, taken.Load() == n, "%d of %d were taken", taken.Load(), n)
	}
}

// The same for tokens that lie in a stripe whose P has nothing to do.
func TestAStripeThatNobodyUsesIsHarvested(t *testing.T) {
	// given all tokens in the stripes
	p := newStriped(t, 1e5)
	p.stripeLocked()
	each := 1e5 / int64(len(p.stripes))
	p.takeWord(1e5)
	for i := range p.stripes {
		p.stripes[i].count.Store(each)
	}
	all := each * int64(len(p.stripes))
	// when one goroutine asks for nearly all of them at once, and then for the last
	most, last := p.TakeN(all-1).OK(), p.Take().OK()
	// then it has them
	testkit.Check(t, most && last && p.Held() == 0, "%v, %v, held %d", most, last, p.Held())
}

// A pool of stripes still says, once, that it is low, no later than the watermark.
func TestAStripedPoolReportsLowOnce(t *testing.T) {
	const n, watermark = 100_000, 20_000
	p := newStriped(t, n)
	p.Arm(watermark)
	var takers sync.WaitGroup
	var lows, at atomic.Int64
	for range 2 {
		takers.Go(func() {
			for {
				switch p.Take() {
				case Refused, Denied:
					return
				case TookLow:
					lows.Add(1)
					at.Store(p.Held())
				}
			}
		})
	}
	takers.Wait()
	testkit.Check(t, lows.Load() == 1,
		"low was reported %d times, the last with %d of %d left", lows.Load(), at.Load(), n)
}

// Each denial is counted, by whichever P.
func TestDenialsAreCounted(t *testing.T) {
	p := newStriped(t, 0)
	p.Deny(true)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10_000 {
				testkit.Check(t, p.Take() == Denied, "not denied")
				p.Miss()
			}
		})
	}
	all.Wait()
	testkit.Check(t, p.Missed() == 40_000, "%d of 40,000 counted", p.Missed())
	// Once there are tokens again they are taken, and without the bucket's word a take is only Refused.
	p.Add(1)
	testkit.Check(t, p.Take() == Took && p.Take() == Denied, "one token was added")
	p.Deny(false)
	testkit.Check(t, p.Take() == Refused, "denied without the bucket's word")
}

// Once one goroutine is alone again the word has all, so that what is held, and with it what was
// admitted, never jumps.
func TestLeavingTheStripesBringsTheirTokensBack(t *testing.T) {
	p := newStriped(t, 1e6)
	for range 3*chunk + 5 {
		p.Take()
	}
	p.mu.Lock()
	p.switches = switches{}
	p.remarkLocked()
	held := p.heldLocked()
	p.mu.Unlock()
	testkit.Check(t, p.Held() == held && held == 1e6-3*chunk-5, "Held is %d, there are %d", p.Held(), held)
}
