package lease

// This file is the owner's side of a Pool: what a Holding puts in, takes out and reads, and what the mark says after.

// settle sets the mark to what the word holds. Whoever leaves less than the mark said, or fails, comes here after. The
// caller holds the lock.
func (p *Pool) settle() {
	c := count(p.word.Load())
	if p.stripes != nil && (c < sampleEvery || !p.switches.contended()) { // then the word serves, and Held looks at it alone
		p.harvest()
		c = count(p.word.Load())
	}
	mark := p.watermark
	switch {
	case c <= 0 && p.denied:
		mark = MarkDenied
	case c <= 0:
		mark = MarkEmpty
	case p.switches.contended() && c >= sampleEvery && p.striped():
		mark = MarkStriped
	case p.stripesMax > 0:
		mark = max(mark, c-sampleEvery)
	}
	if p.mark.Load() != mark { // every P reads it all the time
		p.mark.Store(mark)
	}
}

// Deny says whether the bucket is known to have no more for now, so that takes from an empty pool are Denied.
func (p *Pool) Deny(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = yes
	if yes {
		p.striped() // to count in
	}
	p.settle()
}

// Held is the number of tokens in the pool now. For any number of goroutines.
func (p *Pool) Held() int64 {
	if p.mark.Load() <= markMost {
		return max(0, count(p.word.Load()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held()
}

// held is Held for whoever has the lock; while tokens move to a stripe nobody else sees them.
func (p *Pool) held() int64 {
	n := max(0, count(p.word.Load()))
	for i := range p.stripes {
		n += max(0, p.stripes[i].count.Load())
	}
	return n
}

// Missed is the number of tokens that failed takes asked for, so far.
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
func (p *Pool) Interval() Interval { return intervalOf(p.word.Load()) }

// put gives back n tokens that were taken in an interval; false if a report has been built since: they were
// reported as spent, so now they are refunds.
func (p *Pool) put(n int64, in Interval) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Interval() != in {
		return false
	}
	p.addWord(n)
	p.settle()
	return true
}

// report starts a new report interval and removes the part of the tokens that giveBack, given the count, says. It
// returns the count before and what was removed.
func (p *Pool) report(giveBack func(held int64) int64) (held, returned int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.harvest()
	for {
		w := p.word.Load()
		held = max(0, count(w))
		returned = giveBack(held)
		if p.word.CompareAndSwap(w, w+intervalOne-uint64(count(w))+uint64(held-returned)) {
			p.settle()
			return held, returned
		}
	}
}

// drain empties the pool, starts a new report interval, and returns what it held.
func (p *Pool) drain() int64 {
	held, _ := p.report(func(held int64) int64 { return held })
	return held
}

// add puts n new tokens into the pool.
func (p *Pool) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addWord(n)
	p.settle()
}

func (p *Pool) addWord(n int64) {
	for n > 0 {
		w := p.word.Load()
		if p.word.CompareAndSwap(w, w-uint64(count(w))+uint64(max(0, count(w))+n)) {
			return
		}
	}
}

// arm sets the watermark: the first take that leaves fewer than n tokens reports low; where stripes serve, those in
// other stripes than the taker's do not count. The pool must hold at least n tokens, or low is reported by the next take.
func (p *Pool) arm(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watermark = n
	p.settle()
}
