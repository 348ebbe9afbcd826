package hybrid

import (
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// hold is tokens of one key with which a request was admitted, and what it takes to give them back.
// The zero value holds none: so does a request that was admitted without the bucket's tokens.
type hold struct {
	entry  *entry // nil where the key was at rest
	n      int64
	pooled int64 // of n: taken from the entry's pool, where they may go back to
	draw   pool.Draw
}

// takeHold takes n tokens from the pool, as take does.
func (e *entry) takeHold(n int64) (hold, bool) {
	if e == nil || n <= 0 {
		return hold{}, false
	}
	draw := e.client.Pool.Drawn() // before the take: a later draw would be worth more than the tokens are
	return hold{e, n, n, draw}, e.take(n)
}

// holdOf is what a request holds that e's client has admitted by d.
func (e *entry) holdOf(d protocol.Decision) hold {
	if d.Source == SourceFallback || !d.OK() {
		return hold{}
	}
	return hold{e, d.Took, d.Pooled, d.Draw}
}

// giveBack gives n of the tokens back as if nobody had asked for them. name is the key's in l, as
// the user gave it, and k the handle by which the request came, if it came by one. They go to the
// pool they came from or travel with the key's next call, also where the key has gone to rest or
// been in use again since. They are burnt where the Limiter has closed or the key has left its
// table, which Stats then says.
func (h *hold) giveBack(l *Limiter, name string, k *Key, n int64) {
	if n <= 0 || h.n == 0 {
		return
	}
	pooled := min(n, h.pooled)
	h.n, h.pooled = h.n-n, h.pooled-pooled
	e := h.entry
	if e == nil {
		e, _ = l.entryOf(name, false, k)
	}
	for ; e != nil; e, _ = l.entryOf(name, false, k) {
		if e.giveBack(n, pooled, h.draw) {
			return
		}
		if pooled = 0; l.state.Load() != stateOpen { // another entry has another pool
			break
		}
	}
	l.counters.burn(h.entry, n)
}

// giveBack is false for an entry that has ended.
func (e *entry) giveBack(n, pooled int64, d pool.Draw) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.client.GiveBack(e.Now(), n, pooled, d) {
		return false
	}
	e.Wake(false)
	return true
}

// burn counts n tokens as lost that e had counted as admitted before it ended; nil stands for a
// draw of a key at rest.
func (c *counters) burn(e *entry, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := tally{Account: protocol.Account{Admitted: -n, Burnt: n}}
	c.retired.add(lost)
	if e == nil || e.counted != c.number { // a Stats that has seen e itself tells what was before
		c.sum.add(lost)
	}
}
