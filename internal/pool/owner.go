package pool

import "github.com/yuzhi-go/yuzhi/clock"

// remarkLocked sets the mark from the count in the word and the state of the pool.
func (p *Pool) remarkLocked() {
	c := count(p.word.Load())
	if p.stripes != nil && (c < sampleEvery || !p.switches.contended) { // takes now use the word alone
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

// Deny sets whether takes from an empty pool are Denied.
func (p *Pool) Deny(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = yes
	if yes {
		p.stripeLocked() // the stripes count misses
	}
	p.remarkLocked()
}

// Denies reports whether takes are Denied now.
func (p *Pool) Denies() bool { return p.mark.Load() == MarkDenied }

// Held returns the number of tokens in the pool.
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

// Interval returns the present report interval (docs/protocol.md section 5.7).
func (p *Pool) Interval() Interval { return Interval(p.word.Load() >> countBits) }

// Drawn returns the Draw of a later take: call Drawn before taking tokens that may be given back.
func (p *Pool) Drawn() Draw {
	epoch := p.epoch.Load() // load the epoch first; see SetDrawn
	return Draw{Epoch: epoch, Running: p.running.Load(), Interval: p.Interval()}
}

// SetDrawn sets the running time in Drawn, and then the epoch: a reader of the new epoch must not read the
// running time of an earlier epoch.
func (p *Pool) SetDrawn(epoch, running int64) {
	p.running.Store(running)
	p.epoch.Store(epoch)
}

// Put puts back n tokens that were taken in the interval in, or returns false if a later interval has begun.
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
// the number of tokens before, and the number removed.
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

// Arm sets the watermark: the first take that leaves fewer than n tokens in the word returns TookLow.
func (p *Pool) Arm(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watermark = n
	p.remarkLocked()
}

// Draw dates tokens: by the epoch and running time at which they left the bucket, and by the report interval
// in which they left the pool. If the tokens return, the bucket credits those that it has not refilled since.
// The bucket credits no token for the zero Draw, or for one of another epoch.
type Draw struct {
	Epoch, Running int64
	Interval       Interval
}

// Capacity returns the largest n that the bucket can ever grant.
func (p *Pool) Capacity() int64 { return p.capacity.Load() }

// SetCapacity sets the result of Capacity.
func (p *Pool) SetCapacity(n int64) { p.capacity.Store(n) }

// Deadline returns when the tokens expire. TakeStrict takes no token from then on.
func (p *Pool) Deadline() clock.Instant { return clock.Instant(p.deadline.Load()) }

// SetDeadline sets the result of Deadline.
func (p *Pool) SetDeadline(at clock.Instant) { p.deadline.Store(int64(at)) }

// Late returns the number of tokens that TakeStrict has burnt so far.
func (p *Pool) Late() int64 { return p.late.Load() }
