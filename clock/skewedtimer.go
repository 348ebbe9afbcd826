package clock

import "time"

// skewedTimer is a call that is due at a count of its clock's ticks, whatever
// the rate at which these come. A timer of the base stands for it and is moved
// when the rate changes. Its clock's lock guards everything but clock and f.
type skewedTimer struct {
	clock *Skewed
	f     func()
	timer Timer // the base's
	due   time.Duration
	seq   uint64
}

// schedule makes t due d from now and returns how long that is by the base. The
// lock is held.
func (t *skewedTimer) schedule(d time.Duration) time.Duration {
	c := t.clock
	c.tick()
	c.seq++
	t.due, t.seq = saturate(c.ticks, max(d, 0)), c.seq
	c.pending[t] = struct{}{}
	return c.baseTime(t.due - c.ticks)
}

// cancel reports whether t was pending, and makes it not so. The lock is held.
func (t *skewedTimer) cancel() bool {
	_, was := t.clock.pending[t]
	delete(t.clock.pending, t)
	return was
}

func (t *skewedTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.timer.Stop()
	return t.cancel()
}

func (t *skewedTimer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.cancel()
	t.timer.Reset(t.schedule(d))
	return was
}

// fire is what the base calls. By the time it has the lock, the timer may have
// been stopped, or put off by a Reset or a lower rate, so the base's call is
// only a reason to look, and the count of ticks decides.
func (t *skewedTimer) fire() {
	if t.ripe() {
		t.f()
	}
}

func (t *skewedTimer) ripe() bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, pending := c.pending[t]; !pending {
		return false
	}
	c.tick()
	if left := t.due - c.ticks; left > 0 {
		t.timer.Reset(c.baseTime(left))
		return false
	}
	return t.cancel()
}
