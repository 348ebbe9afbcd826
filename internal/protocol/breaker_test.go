package protocol

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

const (
	aTarget = 100 * time.Millisecond
	aTTL    = 4 * aTarget
	begin   = clock.Instant(time.Hour)
)

// ms is a number of milliseconds after the beginning.
func ms(n int) clock.Instant { return begin.Add(time.Duration(n) * time.Millisecond) }

func newBreaker() *Breaker { return NewBreaker(aTarget, aTTL, 1) }

// awayBreaker is that of a node that answered a call sent at 0 and has failed one sent at 10.
func awayBreaker(t *testing.T) *Breaker {
	b := newBreaker()
	b.Answered(ms(1), ms(0))
	testkit.Must(t, b.Failed(ms(100), ms(10)) && b.Away(), "one failed call does not open it")
	return b
}

// Which failures are the node's, and which answers show that it is back.
func TestANodeIsAwayFromAFailureUntilItAnswersALaterCall(t *testing.T) {
	for _, c := range []struct {
		name  string
		story func(b *Breaker)
		away  bool
	}{
		{"nothing was heard", func(b *Breaker) {}, false},
		{"the first call ever fails", func(b *Breaker) { b.Failed(ms(100), ms(0)) }, true},
		{"a giant pipeline is slow, and the node answers a call sent after it", func(b *Breaker) {
			b.Answered(ms(51), ms(50))
			b.Failed(ms(100), ms(0))
		}, false},
		{"a call fails that travelled with answered ones", func(b *Breaker) {
			b.Answered(ms(51), ms(50))
			b.Failed(ms(51), ms(50))
		}, false},
		{"a call fails that was sent after all that were answered", func(b *Breaker) {
			b.Answered(ms(51), ms(50))
			b.Failed(ms(160), ms(60))
		}, true},
		{"the failed call is answered late", func(b *Breaker) {
			b.Failed(ms(100), ms(0))
			b.Answered(ms(150), ms(0))
		}, false},
		{"the answer to a call from before the failed one comes late", func(b *Breaker) {
			b.Failed(ms(100), ms(10))
			b.Answered(ms(101), ms(5))
		}, true},
		{"a call that was under way when it opened is answered", func(b *Breaker) {
			b.Failed(ms(100), ms(10))
			b.Answered(ms(101), ms(90))
		}, false},
		{"it comes back and fails again", func(b *Breaker) {
			b.Failed(ms(100), ms(10))
			b.Answered(ms(200), ms(150))
			b.Failed(ms(400), ms(300))
		}, true},
		{"it comes back, and then a call fails from before that", func(b *Breaker) {
			b.Failed(ms(100), ms(10))
			b.Answered(ms(200), ms(150))
			b.Failed(ms(201), ms(120))
		}, false},
	} {
		b := newBreaker()
		c.story(b)
		away := b.Away()
		testkit.Check(t, away == c.away, "%s: away is %v", c.name, away)
	}
}

// An error of a key says nothing about the node; what an error does not say may be the node's.
func TestNodeFailed(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, lease.ErrUnavailable: true, lease.ErrRefused: true, lease.ErrPermanent: true,
		errors.New("anything"): true,
		lease.ErrStale:         false, lease.ErrInvalidRequest: false, lease.ErrInvalidConfig: false,
		fmt.Errorf("%w: %w: wrong type", lease.ErrPermanent, lease.ErrKey): false,
	} {
		testkit.Check(t, NodeFailed(err) == want, "%v: %v, want %v", err, !want, want)
	}
}

// One probe at a time goes out for all keys of a node that is away, each after a random pause that
// grows from two Targets to a TTL, and one that is forgotten does not stop them for ever.
func TestOneProbeAtATimeForAllKeys(t *testing.T) {
	var sum time.Duration
	const outages = 200
	for seed := range uint64(outages) {
		b := NewBreaker(aTarget, aTTL, seed)
		b.Failed(begin, begin)
		now := begin
		for k := range 20 {
			// given a thousand keys that ask again whenever they are told to
			first, second := Never, Never
			for range 1000 {
				if b.Admit(now) {
					t.Fatal("a probe before its time")
				}
				turn := b.Turn(now)
				testkit.Must(t, turn > now, "to be asked again at once")
				first, second = min(first, turn), min(max(first, turn), second)
			}
			// then others come soon after the first, should that one have gone,
			testkit.Must(t, second > first && second.Sub(first) <= aTTL, "the next but one comes %v later",
				second.Sub(first))
			// and the first sends the next probe in time,
			span := min(aTarget<<(k+1), aTTL)
			testkit.Must(t, first.Sub(now) <= span, "the next key comes after %v", first.Sub(now))
			sum += first.Sub(now)
			now = first
			testkit.Must(t, b.Admit(now), "no probe at %v", now)
			// and nobody else while it is under way,
			for _, after := range []time.Duration{0, 1, aTTL, 4 * aTTL} {
				testkit.Must(t, b.Holds(now.Add(after)) && !b.Admit(now.Add(after)), "two probes at a time")
			}
			// whatever else fails meanwhile
			b.Failed(now, now-1)
			testkit.Must(t, !b.Admit(now.Add(aTTL)), "a failure from before the probe ended it")
			if k == 10 {
				now = now.Add(5 * aTTL)
				testkit.Must(t, b.Admit(now), "a forgotten probe stops all others")
			}
			b.Failed(now, now)
		}
	}
	mean := sum / (outages * 20)
	testkit.Check(t, mean > aTTL/2-aTTL/10 && mean < aTTL/2+aTTL/10,
		"%v between probes on average, want half a TTL", mean)
}

// After an outage ten thousand keys of a process come back in numbers that double with each Target,
// and none is left out.
func TestRecoveryIsSpreadOverTheKeys(t *testing.T) {
	b := awayBreaker(t)
	testkit.Must(t, b.Answered(ms(500), ms(400)) && !b.Away(), "an answer does not end the outage")
	const keys = 10_000
	turn := make([]clock.Instant, keys) // when a key asks again; Never once it has called
	for i := range turn {
		turn[i] = ms(500)
	}
	calls, left := 0, keys
	for now := 500; left > 0; now++ {
		for i := range turn {
			switch {
			case turn[i] > ms(now):
			case b.Admit(ms(now)):
				calls++
				left--
				turn[i] = Never
			default:
				testkit.Must(t, b.Holds(ms(now)), "refused, though it does not hold calls back")
				turn[i] = b.Turn(ms(now))
			}
		}
		targets := float64(now-500) / 100
		allowed := 1 + 100*(math.Exp2(targets)-1)
		testkit.Must(t, float64(calls) <= allowed+1, "%d calls in %.2f Targets, want %.0f", calls, targets, allowed)
		testkit.Must(t, now < 1600, "%d keys have not called after %.1f Targets", left, targets)
	}
	// After ten Targets everybody calls as often as need be.
	for range 1_000_000 {
		testkit.Must(t, b.Admit(ms(1500)), "held back after the recovery")
	}
	// A node that fails in its recovery is away, and then it recovers as slowly.
	b.Failed(ms(2000), ms(1600))
	b.Answered(ms(2100), ms(2050))
	n := 0
	for b.Admit(ms(2100)) {
		n++
	}
	testkit.Check(t, n == 1, "%d calls in the instant of the second recovery", n)
}

func TestANodeHasTheMeanPartOfItsKeys(t *testing.T) {
	b := newBreaker()
	hears := func(what string, now clock.Instant, named, byCalls, want int64) {
		t.Helper()
		b.heardCalls(now, 2, named, byCalls)
		testkit.Check(t, b.Active() == want, "%s: the node has %d, want %d", what, b.Active(), want)
	}
	later := ms(0).Add(activeFor*aTTL + 1)
	hears("nothing is known", ms(0), 2, 0, 2)
	for range partsMost {
		hears("five processes", ms(0), 2, 10, 10)
	}
	for range 3 {
		hears("a key that others use more", ms(0), 2, 2000, 10)
	}
	hears("nothing is known of another", ms(0), 2, 0, 10)
	hears("seven are named", ms(0), 14, 10, 14)
	hears("a while later", later, 2, 10, 10)
}
