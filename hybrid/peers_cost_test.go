package hybrid_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// asked is the key of every lease call so far.
func (p *place) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.keys...)
}

// Redisson: more permits than the rate are an exception and not a wait. x/time/rate: AllowN above the burst fails, and
// the tokens are still there.
func TestPeerAboveBurstIsAnErrorAndTakesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := p.process(t, hourly)
		above := func() {
			t.Helper()
			r, err := l.Take(t.Context(), "k", 11)
			check(t, errors.Is(err, hybrid.ErrExceedsBurst) && !r.OK, "Take: %+v, %v", r, err)
			err = l.WaitN(t.Context(), "k", 11)
			check(t, errors.Is(err, hybrid.ErrExceedsBurst), "WaitN: %v", err)
			check(t, !l.AllowN("k", 11), "AllowN: admitted")
		}
		// When more than the burst is asked for on a key that nobody knows, then nothing is made of it;
		above()
		check(t, !p.remembers(t, "k"), "the store remembers it")
		// on a key in use, then everything that is left is there, and it can be taken as one.
		must(t, l.AllowN("k", 3), "denied")
		above()
		check(t, l.AllowN("k", 7), "7 of 7 were denied: %+v", l.Stats())
	})
}

// redis_rate: AllowN of 0 costs nothing. x/time/rate: it is true also where nothing is left.
func TestPeerZeroCostsNothingAndCreatesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := p.process(t, hourly)
		nothing := func(key string) {
			t.Helper()
			r, err := l.Take(t.Context(), key, 0)
			check(t, err == nil && r.OK, "Take: %+v, %v", r, err)
			err = l.WaitN(t.Context(), key, 0)
			check(t, err == nil, "WaitN: %v", err)
			check(t, l.AllowN(key, 0) && l.Key(key).AllowN(0), "AllowN: denied")
		}
		// When none are asked for of a key that nobody knows, then nobody knows it afterwards;
		nothing("new")
		st := l.Stats()
		check(t, st.Keys == 0 && st.Calls == 0 && !p.remembers(t, "new"), "%+v", st)
		// of a key in use, then it costs none of them;
		must(t, l.AllowN("k", 4), "denied")
		nothing("k")
		left := p.settled(t, "k")
		check(t, left == 6, "%d of 6 left", left)
		// of an empty one, then they are had.
		drain(l, "k")
		nothing("k")
		st = l.Stats()
		check(t, st.Admitted == 10, "%+v", st)
	})
}

// x/time/rate and Bucket4j: what is turned down, by whichever verb, takes nothing with it.
func TestPeerARejectedCallNeverConsumes(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given 6 tokens of 10,
		l := p.process(t, hourly)
		must(t, l.AllowN("k", 4), "denied")
		// when 7 are asked for again and again,
		for range 10 {
			must(t, !l.AllowN("k", 7), "7 of 6 were admitted")
			r, err := l.Take(t.Context(), "k", 7)
			must(t, err == nil && !r.OK, "%+v, %v", r, err)
			soon, cancel := context.WithTimeout(t.Context(), time.Minute)
			isErr(t, l.WaitN(soon, "k", 7), hybrid.ErrWouldExceedDeadline)
			cancel()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			isErr(t, l.Wait(ended, "k"), context.Canceled)
		}
		// then 6 are still there, to the token.
		n := p.left(t, "k", hourly)
		check(t, n == 6, "%d left", n)
		st := l.Stats()
		check(t, st.Admitted == 4, "%+v", st)
	})
}

// Redisson's release and Bucket4j's addTokens stop at the capacity. (Redisson once counted a release twice, #7329.)
func TestPeerRefundIsCappedAtBurst(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given an empty bucket,
		l := p.process(t, hourly)
		must(t, l.AllowN("k", 10), "denied")
		// when 4 come back,
		l.Refund("k", 4)
		// then there are 4, and not more of them after another report.
		testkit.Eventually(t, "4 in the bucket", func() bool { return p.state(t, "k").Levels[0] >= 4 })
		if !l.Allow("k") || p.settled(t, "k") != 3 {
			t.Errorf("after 4 came back and 1 was taken: %+v", p.state(t, "k"))
		}
		// When more come back than were ever taken,
		for range 5 {
			l.Refund("k", 1000)
		}
		testkit.Eventually(t, "a full bucket", func() bool { return p.state(t, "k").Levels[0] >= 10 })
		// then there is one burst, to look at and to take.
		n := p.settled(t, "k")
		check(t, n == 10, "%d in the bucket after a refund of 5000, the burst is 10", n)
		n = p.left(t, "k", hourly)
		check(t, n == 10, "%d were taken after a refund of 5000, the burst is 10", n)
	})
}
