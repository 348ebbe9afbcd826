package lease

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// newStriped is a pool of n tokens that looks contended, and stays so whatever happens.
func newStriped(t testing.TB, n int64) *Pool {
	if runtime.GOMAXPROCS(0) < 2 {
		before := runtime.GOMAXPROCS(2)
		t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	}
	p := new(Pool)
	p.init(runtime.GOMAXPROCS(0))
	p.switches = switches{on: true, history: 0xffff}
	p.add(n)
	return p
}

// contend keeps the pool looking contended.
func (p *Pool) contend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.switches.on, p.switches.history = true, 0xffff
	p.remarkLocked()
}

// Goroutines on two Ps that take from one pool turn the stripes on, one alone does not.
func TestStripesServeWhereTakersContend(t *testing.T) {
	var s switches
	for range 100 {
		s.see(1)
	}
	if s.contended() {
		t.Error("one taker counts as contention")
	}
	for i := range 16 {
		s.see(i / 2 % 2)
	}
	if !s.contended() {
		t.Error("two takers in turns do not")
	}
	for range 17 {
		s.see(0)
	}
	if s.contended() {
		t.Error("one taker still does after 16 looks")
	}
	p := newStriped(t, 1e6)
	for range 3 * chunk {
		p.Take()
	}
	if p.mark.Load() != MarkStriped || p.heldLocked() != 1e6-3*chunk || count(p.word.Load()) == p.heldLocked() {
		t.Errorf("mark %d, held %d, of it %d in the word", p.mark.Load(), p.heldLocked(), count(p.word.Load()))
	}
}

// However the tokens lie in the stripes, whoever asks gets them all, and not one more.
func TestNothingIsDeniedWhileAStripeHoldsAToken(t *testing.T) {
	for _, n := range []int64{1, 5, chunk, sampleEvery - 1, sampleEvery, 5*sampleEvery + 7, 100_000} {
		p := newStriped(t, n)
		var takers sync.WaitGroup
		var taken atomic.Int64
		for range 4 { // when some take from their Ps' stripes at once, until each is denied
			takers.Go(func() {
				for p.Take().Ok() {
					taken.Add(1)
				}
				// then nothing is left, for a token that is there denies nobody and nobody adds.
				if held := p.Held(); held != 0 {
					t.Errorf("denied while %d of %d are held", held, n)
				}
			})
		}
		takers.Wait()
		if taken.Load() != n {
			t.Errorf("%d of %d were taken", taken.Load(), n)
		}
	}
}

// The same for tokens that lie in a stripe whose P has nothing to do.
func TestAStripeThatNobodyUsesIsHarvested(t *testing.T) {
	p := newStriped(t, 1e5)
	p.stripeLocked()
	p.mu.Lock()
	n := int64(0)
	for i := range p.stripes { // Given all in the stripes,
		_, ok := p.takeWord(1e5 / int64(len(p.stripes)))
		if ok {
			p.stripes[i].count.Store(1e5 / int64(len(p.stripes)))
			n += 1e5 / int64(len(p.stripes))
		}
	}
	p.mu.Unlock()
	// when one goroutine asks for all of them at once, and then for the rest,
	if !p.TakeN(n - 10).Ok() {
		t.Errorf("%d of %d refused", n-10, p.Held())
	}
	rest := 0
	for p.Take().Ok() {
		rest++
	}
	// then it has them.
	if int64(rest) != 1e5-n+10 || p.Held() != 0 {
		t.Errorf("%d left, held %d", rest, p.Held())
	}
}

// TestStripedPoolConserves is TestPoolConserves for a pool that hands out from stripes most of the
// time.
func TestStripedPoolConserves(t *testing.T) {
	p := newStriped(t, 0)
	var admitted, denied atomic.Int64
	var stop atomic.Bool
	var takers sync.WaitGroup
	for g := range 4 {
		takers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for !stop.Load() {
				n := int64(1)
				e := p.Interval() // before the take: a later one could forge
				var got Taken
				if rnd.IntN(8) != 0 {
					got = p.Take()
				} else {
					n = 1 + rnd.Int64N(100)
					got = p.TakeN(n)
				}
				if !got.Ok() {
					denied.Add(n)
					continue
				}
				admitted.Add(n)
				if rnd.IntN(100) == 0 && p.put(n, e) {
					admitted.Add(-n)
				}
			}
		})
	}
	p.add(sampleEvery)
	for admitted.Load() == 0 {
		runtime.Gosched()
	}
	rnd := rand.New(rand.NewPCG(9, 9))
	granted, returned, burnt, striped := int64(sampleEvery), int64(0), int64(0), 0
	for range 20_000 {
		p.contend()
		if p.mark.Load() == MarkStriped {
			striped++
		}
		switch rnd.IntN(6) {
		case 0, 1, 2:
			n := rnd.Int64N(10 * sampleEvery)
			p.add(n)
			granted += n
			p.arm(rnd.Int64N(sampleEvery))
		case 3:
			_, back := p.report(func(held int64) int64 { return held / 3 })
			returned += back
		case 4:
			p.deny(rnd.IntN(2) == 0)
		case 5:
			burnt += p.drain()
		}
		if rnd.IntN(100) == 0 {
			runtime.Gosched()
		}
	}
	stop.Store(true)
	takers.Wait()
	if held := p.Held(); granted != admitted.Load()+returned+burnt+held {
		t.Errorf("granted %d, but admitted %d + returned %d + burnt %d + held %d", granted, admitted.Load(), returned, burnt, held)
	}
	if p.Missed() != denied.Load() {
		t.Errorf("%d counted as missed, %d were", p.Missed(), denied.Load())
	}
	if striped == 0 || admitted.Load() == 0 {
		t.Errorf("stripes served in %d rounds, admitted %d: nothing was tested", striped, admitted.Load())
	}
}

// A pool of stripes still says, once, that it is low, no later than the watermark.
func TestAStripedPoolReportsLowOnce(t *testing.T) {
	const n, watermark = 100_000, 20_000
	p := newStriped(t, n)
	p.arm(watermark)
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
	if lows.Load() != 1 {
		t.Errorf("low was reported %d times, the last with %d of %d left", lows.Load(), at.Load(), n)
	}
}

// Each denial is counted, by whichever P.
func TestDenialsAreCounted(t *testing.T) {
	p := newStriped(t, 0)
	p.deny(true)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10_000 {
				if p.Take() != Denied {
					t.Error("not denied")
				}
			}
		})
	}
	all.Wait()
	if p.Missed() != 40_000 {
		t.Errorf("%d of 40,000 counted", p.Missed())
	}
	// Once there are tokens again they are taken, and without the bucket's word a take is only
	// Refused.
	p.add(1)
	if p.Take() != Took || p.Take() != Denied {
		t.Error("one token was added")
	}
	p.deny(false)
	if p.Take() != Refused {
		t.Error("denied without the bucket's word")
	}
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
	if p.Held() != held || held != 1e6-3*chunk-5 {
		t.Errorf("Held is %d, there are %d", p.Held(), held)
	}
}
