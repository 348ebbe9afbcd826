package lease

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// breaker spaces the calls of one holder after failures. It backs off exponentially with full
// jitter, so that a fleet that lost its store at one moment does not come back at one moment.
// Between two probes there is at most longest, which is T, so a fleet is back at its rate two T
// after the store is.
type breaker struct {
	failures int
	at       clock.Instant
	longest  time.Duration
}

func (b *breaker) fail(now clock.Instant, base time.Duration, random uint64) {
	b.failures++
	span := b.longest
	if b.failures < 30 {
		span = min(base<<b.failures, span)
	}
	b.at = now.Add(time.Duration(random % uint64(max(span, 1))))
}

func (b *breaker) succeed() { b.failures = 0 }

// until is when the next probe may go out. open is false while calls succeed.
func (b *breaker) until() (at clock.Instant, open bool) { return b.at, b.failures > 0 }
