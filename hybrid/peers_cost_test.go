package hybrid_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
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
			if r, err := l.Take(t.Context(), "k", 11); !errors.Is(err, hybrid.ErrExceedsBurst) || r.OK {
				t.Errorf("Take: %+v, %v", r, err)
			}
			if err := l.WaitN(t.Context(), "k", 11); !errors.Is(err, hybrid.ErrExceedsBurst) {
				t.Errorf("WaitN: %v", err)
			}
			if l.AllowN("k", 11) {
				t.Error("AllowN: admitted")
			}
		}
		// When more than the burst is asked for on a key that nobody knows, then nothing is made of it;
		above()
		if p.remembers(t, "k") {
			t.Error("the store remembers it")
		}
		// on a key in use, then everything that is left is there, and it can be taken as one.
		if !l.AllowN("k", 3) {
			t.Fatal("denied")
		}
		above()
		if !l.AllowN("k", 7) {
			t.Errorf("7 of 7 were denied: %+v", l.Stats())
		}
	})
}

// redis_rate: AllowN of 0 costs nothing. x/time/rate: it is true also where nothing is left.
func TestPeerZeroCostsNothingAndCreatesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := p.process(t, hourly)
		nothing := func(key string) {
			t.Helper()
			if r, err := l.Take(t.Context(), key, 0); err != nil || !r.OK {
				t.Errorf("Take: %+v, %v", r, err)
			}
			if err := l.WaitN(t.Context(), key, 0); err != nil {
				t.Errorf("WaitN: %v", err)
			}
			if !l.AllowN(key, 0) || !l.Key(key).AllowN(0) {
				t.Error("AllowN: denied")
			}
		}
		// When none are asked for of a key that nobody knows, then nobody knows it afterwards;
		nothing("new")
		if st := l.Stats(); st.Keys != 0 || st.Calls != 0 || p.remembers(t, "new") {
			t.Errorf("%+v", st)
		}
		// of a key in use, then it costs none of them;
		if !l.AllowN("k", 4) {
			t.Fatal("denied")
		}
		nothing("k")
		if left := p.settled(t, "k"); left != 6 {
			t.Errorf("%d of 6 left", left)
		}
		// of an empty one, then they are had.
		drain(l, "k")
		nothing("k")
		if st := l.Stats(); st.Admitted != 10 {
			t.Errorf("%+v", st)
		}
	})
}

// x/time/rate and Bucket4j: what is turned down, by whichever verb, takes nothing with it.
func TestPeerARejectedCallNeverConsumes(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given 6 tokens of 10,
		l := p.process(t, hourly)
		if !l.AllowN("k", 4) {
			t.Fatal("denied")
		}
		// when 7 are asked for again and again,
		for range 10 {
			if l.AllowN("k", 7) {
				t.Fatal("7 of 6 were admitted")
			}
			if r, err := l.Take(t.Context(), "k", 7); err != nil || r.OK {
				t.Fatalf("%+v, %v", r, err)
			}
			soon, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := l.WaitN(soon, "k", 7); !errors.Is(err, hybrid.ErrWouldExceedDeadline) {
				t.Fatal(err)
			}
			cancel()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := l.Wait(ended, "k"); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		// then 6 are still there, to the token.
		if n := p.left(t, "k", hourly); n != 6 {
			t.Errorf("%d left", n)
		}
		if st := l.Stats(); st.Admitted != 4 {
			t.Errorf("%+v", st)
		}
	})
}

// Redisson's release and Bucket4j's addTokens stop at the capacity. (Redisson once counted a release twice, #7329.)
func TestPeerRefundIsCappedAtBurst(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given an empty bucket,
		l := p.process(t, hourly)
		if !l.AllowN("k", 10) {
			t.Fatal("denied")
		}
		// when 4 come back,
		l.Refund("k", 4)
		// then there are 4, and not more of them after another report.
		eventually(t, "4 in the bucket", func() bool { return p.state(t, "k").Levels[0] >= 4 })
		if !l.Allow("k") || p.settled(t, "k") != 3 {
			t.Errorf("after 4 came back and 1 was taken: %+v", p.state(t, "k"))
		}
		// When more come back than were ever taken,
		for range 5 {
			l.Refund("k", 1000)
		}
		eventually(t, "a full bucket", func() bool { return p.state(t, "k").Levels[0] >= 10 })
		// then there is one burst, to look at and to take.
		if n := p.settled(t, "k"); n != 10 {
			t.Errorf("%d in the bucket after a refund of 5000, the burst is 10", n)
		}
		if n := p.left(t, "k", hourly); n != 10 {
			t.Errorf("%d were taken after a refund of 5000, the burst is 10", n)
		}
	})
}
