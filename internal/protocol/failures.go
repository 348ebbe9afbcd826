package protocol

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// failures are the calls of a key that have failed: docs/protocol.md section 8.12.
type failures struct {
	*settings
	inARow  int
	stales  int           // the same, of calls that were ErrStale
	probeAt clock.Instant // while degraded: when the next call may go out
}

// Degraded reports whether no request waits for the store: the key's node is away, or takes no call
// of this process yet, or the key's own last call failed. A failure after which nothing has asked
// for the next call in time does not count any more.
func (f *failures) Degraded() bool {
	b := f.host.Breaker()
	if f.inARow == 0 && b.well() {
		return false
	}
	now := f.host.Now()
	return f.failing(now) || b.Away(now) || !f.holder.calling && b.Holds(now)
}

// InARow returns how many calls of the key have failed in a row though its node was well.
func (f *failures) InARow() int { return f.inARow }

// Suspect reports whether the last call failed, of the key or of its node, however long ago, or
// requests do not wait for the store for another reason.
func (f *failures) Suspect() bool {
	return f.inARow > 0 || f.host.Breaker().Suspect() || f.Degraded()
}

// failing reports whether the last call failed, and that still counts.
func (f *failures) failing(now clock.Instant) bool {
	counts := silence(f.config.Target, f.heard.ttl)
	return f.inARow > 0 && (f.holder.calling || now < f.probeAt.Add(counts))
}

// add puts off the next call of a key whose call failed though its node is well, with full jitter. Where
// the node is away its Breaker says which key calls next.
func (f *failures) add(now clock.Instant) {
	if f.host.Breaker().Away(now) {
		f.inARow = 0
		return
	}
	f.inARow++
	most := backoff(f.inARow, f.config.Target, f.heard.ttl)
	f.probeAt = now.Add(time.Duration(f.next() % uint64(most)))
}

// end forgets them: a call was answered.
func (f *failures) end() { f.inARow, f.stales = 0, 0 }
