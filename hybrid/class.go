package hybrid

import (
	"math"
	"sync"
	"sync/atomic"
)

// classes are the Limiters behind a Limiter with Config.Priorities, one for each class but the
// first, which is the Limiter itself. Each has a table of its own, and is another process to the
// store. They are made when they are first used.
type classes struct {
	mu   sync.Mutex // of making one
	made []atomic.Pointer[Limiter]
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
	if p <= 0 {
		return l
	}
	made := &l.classes.made[p-1]
	if c := made.Load(); c != nil {
		return c
	}
	l.classes.mu.Lock()
	defer l.classes.mu.Unlock()
	if made.Load() == nil && l.state.Load() == stateOpen {
		made.Store(l.newClass(l.cfg.Priorities[p-1]))
	}
	if c := made.Load(); c != nil {
		return c
	}
	return l
}

// newClass is a Limiter of the same keys that leaves so much of every burst in the bucket.
func (l *Limiter) newClass(headroom float64) *Limiter {
	c := &Limiter{
		base: l, store: l.store, cfg: l.cfg, defaults: l.defaults,
		counters: l.counters, herald: l.herald, watched: l.watched,
	}
	c.cfg.Policy.Headroom = headroom
	c.warned.Do(func() {}) // l has logged it
	c.start()
	return c
}

// eachClass calls f for l and its other classes, as far as they are in use.
func (l *Limiter) eachClass(f func(*Limiter)) {
	l = l.base
	f(l)
	for _, c := range l.siblings() {
		f(c)
	}
}

// siblings are the classes of l in use but the first. Once l is not open there come no more.
func (l *Limiter) siblings() (made []*Limiter) {
	l.classes.mu.Lock()
	defer l.classes.mu.Unlock()
	for p := range l.classes.made {
		if c := l.classes.made[p].Load(); c != nil {
			made = append(made, c)
		}
	}
	return made
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
