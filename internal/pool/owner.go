package pool

import "github.com/yuzhi-go/yuzhi/clock"

// remarkLocked sets the mark by what the word holds.
func (p *Pool) remarkLocked() {
	c := count(p.word.Load())
	if p.stripes != nil && (c < sampleEvery || !p.switches.contended) { // then the word alone serves
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
	if p.mark.Load() != mark { // every P reads it all the time
		p.mark.Store(mark)
	}
}

// Deny says whether takes from an empty pool are Denied, as the bucket has no more for now.
func (p *Pool) Deny(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = yes
	if yes {
		p.stripeLocked() // misses are counted there
	}
	p.remarkLocked()
}

// Denies reports whether takes are Denied now. For any number of goroutines.
func (p *Pool) Denies() bool { return p.mark.Load() == MarkDenied }

// Held is the number of tokens in the pool now. For any number of goroutines.
func (p *Pool) Held() int64 {
	if p.mark.Load() <= markMost {
		return max(0, count(p.word.Load()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heldLocked()
}

// heldLocked is Held under the lock: without it, tokens that move to a stripe are not seen.
func (p *Pool) heldLocked() int64 {
	n := max(0, count(p.word.Load()))
	for i := range p.stripes {
		n += max(0, p.stripes[i].count.Load())
	}
	return n
}

// Missed is the number of tokens that Miss has counted so far.
func (p *Pool) Missed() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.missed.Load()
	for i := range p.stripes {
		n += p.stripes[i].missed.load()
	}
	return n
}

// Interval is the present report interval.
func (p *Pool) Interval() Interval { return Interval(p.word.Load() >> countBits) }

// Drawn is the draw of tokens that are taken after it was called: a caller that may give tokens back calls
// it before it takes them. All that it says may be older than the take, and is worth less then. For any
// number of goroutines; it costs three loads.
func (p *Pool) Drawn() Draw {
	epoch := p.epoch.Load() // first; see setDrawn
	return Draw{Epoch: epoch, Running: p.running.Load(), Interval: p.Interval()}
}

// SetDrawn sets what Drawn says of the bucket, the time first: a reader of an epoch then reads no
// time of an earlier one, which may be later if the server's clock has stepped back.
func (p *Pool) SetDrawn(epoch, running int64) {
	p.running.Store(running)
	p.epoch.Store(epoch)
}

// Put puts back n tokens that were taken in the interval in. It is false if a report has been built
// since, which counted them as spent.
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

// Report starts a new interval, and removes as many tokens as giveBack says when it is told how
// many there are; nil for none. It returns that number and how many were removed.
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

// Drain empties the pool, starts a new interval, and returns what it held.
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

// Arm sets the watermark: the first take that leaves fewer than n tokens reports low. Where stripes
// serve, the tokens in other stripes are not counted.
func (p *Pool) Arm(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watermark = n
	p.remarkLocked()
}

// Draw says when tokens left the bucket, in the bucket's running time, and in which report interval they
// were taken from the pool. Tokens that come back unused are worth the part that has not been refilled
// since. With the zero value, or in another epoch, they are worth nothing.
type Draw struct {
	Epoch, Running int64
	Interval       Interval
}

// Capacity is the largest n that can ever be granted: a take of more is no demand.
func (p *Pool) Capacity() int64 { return p.capacity.Load() }

// SetCapacity sets what Capacity returns.
func (p *Pool) SetCapacity(n int64) { p.capacity.Store(n) }

// Deadline is when all of the tokens expire. TakeStrict takes none from then on.
func (p *Pool) Deadline() clock.Instant { return clock.Instant(p.deadline.Load()) }

// SetDeadline sets what Deadline returns.
func (p *Pool) SetDeadline(at clock.Instant) { p.deadline.Store(int64(at)) }

// Late is how many tokens were taken after the deadline so far. They are gone, and admitted no request.
func (p *Pool) Late() int64 { return p.late.Load() }
