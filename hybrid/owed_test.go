package hybrid_test

import (
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A refund that a failed call did not take is brought as soon as the store is back, and does not keep the key for ever.
func TestARefundSurvivesAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(10))})
		l.AllowN("k", 8)
		time.Sleep(time.Minute)
		s.every(verdict{err: lease.ErrUnavailable})
		l.Refund("k", 5)
		time.Sleep(2 * time.Second)
		s.setJudge(nil)
		time.Sleep(time.Hour)
		st := s.state(t, "k")
		check(t, st.Levels[0]+st.Ledger == 8,
			"an hour after the store came back: %d left, want 2 + 1 + 5; %+v", st.Levels[0], l.Stats())
		time.Sleep(100 * 24 * time.Hour)
		k := l.Stats().Keys
		check(t, k == 0, "%d keys in the table after 100 idle days", k)
	})
}

// A table of keys that have something to give back is not full once the store is back.
func TestPendingRefundsDoNotFillTheTable(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10)), KeysMax: 3})
		for _, k := range []string{"a", "b", "c"} {
			l.AllowN(k, 5)
		}
		time.Sleep(time.Second)
		s.every(verdict{err: lease.ErrUnavailable})
		for _, k := range []string{"a", "b", "c"} {
			l.Refund(k, 1)
		}
		time.Sleep(2 * time.Second)
		s.setJudge(nil)
		time.Sleep(100 * 24 * time.Hour)
		r, err := l.Take(t.Context(), "d", 1)
		check(t, err == nil, "%+v %v %+v", r, err, l.Stats())
	})
}

// A refund does not travel with the first call under a new id, which the bucket does not know.
func TestARefundSurvivesANewID(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(10))})
		l.AllowN("k", 8)
		s.setJudge(func(c *lease.Call) verdict { return verdict{err: lease.ErrStale} })
		l.AllowN("k", 2)
		s.setJudge(nil)
		l.Refund("k", 5)
		time.Sleep(5 * time.Second)
		st := l.Stats()
		check(t, st.Refunded == 5, "%+v", st)
	})
}

// What a wait had gathered when the store went away is lost with its lease, and not given back minutes later to a bucket
// that has refilled since.
func TestTokensOfAFailedWaitEndWithTheirLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		limit := hybrid.PerSecond(1).WithBurst(100)
		cfg := hybrid.Config{Limits: limits(limit), InstanceID: "a", Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny, MinBatch: 50}}
		a := start(t, s, cfg)
		cfg.InstanceID = "c"
		c := start(t, s, cfg)
		m := newMeter(limit)
		if a.Allow("k") { // leases 50
			m.admit(1)
		}
		cut := true
		s.setJudge(func(c *lease.Call) verdict {
			if cut && strings.HasPrefix(c.Request.Holder, "a-") {
				return verdict{err: lease.ErrUnavailable}
			}
			return verdict{}
		})
		// A waits for more than it holds, gathers 49, and is told that it has nothing.
		isErr(t, a.WaitN(t.Context(), "k", 100), hybrid.ErrUnavailable)
		time.Sleep(2 * time.Minute) // its lease is forgotten, the bucket full again
		for c.Allow("k") {
			m.admit(1)
		}
		cut = false
		for range 2000 {
			for _, l := range []*hybrid.Limiter{a, c} {
				if l.Allow("k") {
					m.admit(1)
				}
			}
			time.Sleep(time.Millisecond)
		}
		m.check(t)
	})
}
