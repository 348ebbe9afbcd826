package hybrid

import "sync"

// idleList holds the entries that hold nothing and want nothing, longest idle first.
type idleList struct {
	mu          sync.Mutex
	first, last *entry
}

func (l *idleList) push(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.idleIn {
		return
	}
	e.idleIn = true
	e.idlePrev, e.idleNext = l.last, nil
	if l.last == nil {
		l.first = e
	} else {
		l.last.idleNext = e
	}
	l.last = e
}

func (l *idleList) remove(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(e)
}

func (l *idleList) unlink(e *entry) {
	if !e.idleIn {
		return
	}
	e.idleIn = false
	if e.idlePrev == nil {
		l.first = e.idleNext
	} else {
		e.idlePrev.idleNext = e.idleNext
	}
	if e.idleNext == nil {
		l.last = e.idlePrev
	} else {
		e.idleNext.idlePrev = e.idlePrev
	}
	e.idlePrev, e.idleNext = nil, nil
}

func (l *idleList) pop() *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.first
	if e != nil {
		l.unlink(e)
	}
	return e
}

// evictIdle makes room for one key by dropping the longest idle one; false where every key is in use.
func (l *Limiter) evictIdle() bool {
	for {
		e := l.idle.pop()
		if e == nil {
			return false
		}
		if e.evict() {
			return true
		}
	}
}

// evict takes an entry that nothing is lost with out of the table. A Key that points to it rejoins later.
func (e *entry) evict() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.unused() {
		return false
	}
	e.evictLocked()
	e.kick(false) // the scheduler forgets it too
	return true
}

func (e *entry) evictLocked() {
	e.gone = true
	e.setGate(gateOpen) // a Key that still points here must find out
	e.holder.Close()
	e.l.counters.retire(e)
	e.l.keys.Delete(e.name)
	if e.leaver != nil {
		e.leaver.done() // it had nothing to give back
	}
}
