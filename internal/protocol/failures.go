package protocol

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// failures counts the failed calls of a key: docs/protocol.md section 8.12.
type failures struct {
	*settings
	inARow  int
	stales  int           // number of calls in a row that failed with ErrStale
	probeAt clock.Instant // while degraded: when the next call may go out
	turn    clock.Instant // when the key may ask turnOf again, which has refused its call
	turnOf  *Breaker
}

// Degraded reports whether the fallback decides: the key's node is away or takes no call of this process yet,
// or the key's own last call failed.
func (f *failures) Degraded() bool {
	b := f.host.Breaker()
	if f.inARow == 0 && b.well() {
		return false
	}
	return f.inARow > 0 || b.Away() || !f.holder.calling && b.Holds(f.host.Now())
}

// Turn returns when the key may ask again after Breaker.Admit refused its call. A turn in the future is kept
// while the node is away: a key that asks earlier for another reason would otherwise lose its probe.
func (f *failures) Turn(now clock.Instant) clock.Instant {
	if b := f.host.Breaker(); f.turn <= now || f.turnOf != b || !b.Away() {
		f.turn, f.turnOf = b.Turn(now), b
	}
	return f.turn
}

// InARow returns how many calls of the key have failed in a row although its node was well.
func (f *failures) InARow() int { return f.inARow }

// add delays the next call of a key whose call failed although its node is well, with full jitter. If the
// node is away, its Breaker decides which key calls next.
func (f *failures) add(now clock.Instant) {
	if f.host.Breaker().Away() {
		f.inARow = 0
		return
	}
	f.inARow++
	most := backoff(f.inARow, f.config.Target, f.heard.ttl)
	f.probeAt = now.Add(time.Duration(f.next() % uint64(most)))
}
