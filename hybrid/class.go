package hybrid

import (
	"math"
	"sync"
	"sync/atomic"
)

// siblings are Limiters behind a Limiter, which is the first of them itself: one for each class of
// Config.Priorities. Each has a table of its own, and is another process to the store. They are made
// when they are first used, and none once the first one is not open.
type siblings struct {
	mu   sync.Mutex // of making one
	made []atomic.Pointer[Limiter]
}

// at is the i-th of l's siblings, which make makes; l itself where i is 0, or l is not open.
func (s *siblings) at(i int, l *Limiter, make func() *Limiter) *Limiter {
	if i <= 0 {
		return l
	}
	made := &s.made[i-1]
	if c := made.Load(); c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if made.Load() == nil && l.state.Load() == stateOpen {
		made.Store(make())
	}
	if c := made.Load(); c != nil {
		return c
	}
	return l
}

// all are those that have been made.
func (s *siblings) all() (made []*Limiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.made {
		if c := s.made[i].Load(); c != nil {
			made = append(made, c)
		}
	}
	return made
}

// Class returns a handle for the same key and limits in class p of Config.Priorities: a request of
// that class is granted tokens only while the bucket has more than that share of its burst. Class 0
// is granted them always. A p below 0 means 0, and one above the last class means the last. Keep
// the handle, as that of a key: a Class for each request would look the key up by name each time.
func (k *Key) Class(p int) *Key {
	c := k.l.base.class(p).Key(k.name)
	c.own = k.own
	return c
}

// class is the Limiter of class p; the one that is closed, for a Limiter that is.
func (l *Limiter) class(p int) *Limiter {
	p = min(p, len(l.classes.made))
	return l.classes.at(p, l, func() *Limiter {
		c := l.sibling()
		c.cfg.Policy.Headroom = l.cfg.Priorities[p-1]
		c.start()
		return c
	})
}

// sibling is a Limiter of the same keys, with the same settings, that does not go yet.
func (l *Limiter) sibling() *Limiter {
	c := &Limiter{
		base: l.base, store: l.store, cfg: l.cfg, defaults: l.defaults,
		counters: l.counters, herald: l.herald, watched: l.watched,
	}
	c.warned.Do(func() {}) // l has logged it
	return c
}

// eachSibling calls f for l's base, and for its classes, as far as they are in use.
func (l *Limiter) eachSibling(f func(*Limiter)) {
	f(l.base)
	for _, c := range l.base.classes.all() {
		f(c)
	}
}

// keptOf is how many tokens of l's burst a process with this Policy.Headroom leaves in the bucket.
func keptOf(l Limit, headroom float64) int64 {
	return int64(math.Ceil(float64(l.Capacity()) * headroom))
}

// checkPriorities reports what is wrong with c.Priorities.
func (c Config) checkPriorities(bad func(format string, args ...any)) {
	least := c.Policy.Headroom
	for i, share := range c.Priorities {
		if !(share >= least && share < 1) || i > 0 && share == least {
			bad("Priorities[%d] is %v, must be below 1 and above the one before it (%v)", i, share, least)
			return
		}
		for _, l := range c.Limits {
			if kept := keptOf(l, share); kept >= l.Capacity() {
				bad("Priorities[%d] is %v, which of %v leaves nothing to class %d: the burst must be above %d",
					i, share, l, i+1, kept)
			}
		}
		least = share
	}
}
