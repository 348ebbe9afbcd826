package pool

import "github.com/yuzhi-go/yuzhi/clock"

// remarkLocked sets the mark from the count in the word and the state of the pool.
func (p *Pool) remarkLocked() {
	c := count(p.word.Load())
	if p.stripes != nil && (c < sampleEvery || !p.switches.contended) { // takes then use the word alone
		p.emptyStripesLocked()
		c = count(p.word.Load())
	}
	mark := p.watermark
	switch {
	case c <= 0 && p.denied:
		mark = MarkDenied
	case c <= 0:
		mark = MarkEmpty
	case p.switches.contended && c >= sampleEvery && p.stripeLocked():
		mark = MarkStriped
	case p.stripesMax > 0:
		mark = max(mark, c-sampleEvery)
	}
	if p.mark.Load() != mark { // store only a change: every P reads the mark all the time
		p.mark.Store(mark)
	}
}

// Deny sets whether takes from an empty pool are Denied, because the bucket has no tokens for now.
func (p *Pool) Deny(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = yes
	if yes {
		p.stripeLocked() // misses are counted in the stripes
	}
	p.remarkLocked()
}

// Denies reports whether takes are Denied now. Any number of goroutines may call Denies.
func (p *Pool) Denies() bool { return p.mark.Load() == MarkDenied }

// Held returns the number of tokens in the pool. Any number of goroutines may call Held.
func (p *Pool) Held() int64 {
	if p.mark.Load() <= markMost {
		return max(0, count(p.word.Load()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heldLocked()
}

// heldLocked is Held under the lock: without the lock, Held would miss tokens that move to a stripe.
func (p *Pool) heldLocked() int64 {
	n := max(0, count(p.word.Load()))
	for i := range p.stripes {
		n += max(0, p.stripes[i].count.Load())
	}
	return n
}

// Missed returns the number of tokens that Miss has counted so far.
func (p *Pool) Missed() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.missed.Load()
	for i := range p.stripes {
		n += p.stripes[i].missed.load()
	}
	return n
}

// Interval returns the present report interval.
func (p *Pool) Interval() Interval { return Interval(p.word.Load() >> countBits) }

// Drawn returns the Draw of tokens taken after this call. A caller that may give tokens back calls Drawn
// before the take. If the Draw is older than the take, the tokens are worth less. Any number of goroutines
// may call Drawn, which costs three loads.
func (p *Pool) Drawn() Draw {
	epoch := p.epoch.Load() // load the epoch first; see SetDrawn
	return Draw{Epoch: epoch, Running: p.running.Load(), Interval: p.Interval()}
}

// SetDrawn sets the epoch and the running time in Drawn, the time first. A reader of the new epoch then reads
// no time of an earlier epoch, which may be later if the server's clock has stepped back.
func (p *Pool) SetDrawn(epoch, running int64) {
	p.running.Store(running)
	p.epoch.Store(epoch)
}

// Put puts back n tokens that were taken in the interval in. Put returns false if a report built since has
// counted these tokens as spent.
func (p *Pool) Put(n int64, in Interval) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Interval() != in {
		return false
	}
	p.addWord(n)
	p.remarkLocked()
	return true
}

// Report starts a new interval and removes giveBack(held) tokens, or none if giveBack is nil. Report returns
// the number of tokens held before, and the number removed.
func (p *Pool) Report(giveBack func(held int64) int64) (held, returned int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.emptyStripesLocked()
	for {
		w := p.word.Load()
		held = max(0, count(w))
		if giveBack != nil {
			returned = giveBack(held)
		}
		if p.word.CompareAndSwap(w, w+intervalOne-uint64(count(w))+uint64(held-returned)) {
			p.remarkLocked()
			return held, returned
		}
	}
}

// Drain empties the pool, starts a new interval, and returns the number of tokens removed.
func (p *Pool) Drain() int64 {
	held, _ := p.Report(func(held int64) int64 { return held })
	return held
}

// Add puts n new tokens into the pool.
func (p *Pool) Add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addWord(n)
	p.remarkLocked()
}

func (p *Pool) addWord(n int64) {
	for n > 0 {
		w := p.word.Load()
		if p.word.CompareAndSwap(w, w-uint64(count(w))+uint64(max(0, count(w))+n)) {
			return
		}
	}
}

// Arm sets the watermark: the first take that leaves fewer than n tokens reports low. While the pool uses
// stripes, the tokens in the stripes are not counted.
func (p *Pool) Arm(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watermark = n
	p.remarkLocked()
}

// Draw says when tokens left the bucket, in the bucket's running time, and in which report interval they were
// taken from the pool. The bucket credits returned unused tokens as far as it has not refilled them since.
// The bucket credits no token for the zero Draw, or in another epoch.
type Draw struct {
	Epoch, Running int64
	Interval       Interval
}

// Capacity returns the largest n that can ever be granted. A take of more is no demand.
func (p *Pool) Capacity() int64 { return p.capacity.Load() }

// SetCapacity sets the result of Capacity.
func (p *Pool) SetCapacity(n int64) { p.capacity.Store(n) }

// Deadline returns when all of the tokens expire. TakeStrict takes none from then on.
func (p *Pool) Deadline() clock.Instant { return clock.Instant(p.deadline.Load()) }

// SetDeadline sets the result of Deadline.
func (p *Pool) SetDeadline(at clock.Instant) { p.deadline.Store(int64(at)) }

// Late returns how many tokens TakeStrict has taken past the deadline so far, and so has burnt.
func (p *Pool) Late() int64 { return p.late.Load() }
