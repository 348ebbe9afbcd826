package hybrid_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A refund that a failed call did not take is brought as soon as the store is back, and does not
// keep the key for ever.
func TestARefundSurvivesAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hourly))
		l.AllowN("k", 8)
		time.Sleep(time.Minute)
		s.every(away)
		l.Refund("k", 5)
		time.Sleep(2 * time.Second)
		s.setJudge(nil)
		time.Sleep(time.Hour)
		st := s.state(t, "k")
		check(t, st.Levels[0]+st.Ledger == 8,
			"an hour after the store came back: %d left, want 2 + 1 + 5; %+v", st.Levels[0], l.Stats())
		time.Sleep(100 * 24 * time.Hour)
		equal(t, l.Stats().Keys, 0, "keys in the table after 100 idle days")
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
		s.every(away)
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
		l := start(t, s, of(hourly))
		l.AllowN("k", 8)
		s.setJudge(func(c *lease.Call) verdict { return verdict{err: lease.ErrStale} })
		l.AllowN("k", 2)
		s.setJudge(nil)
		l.Refund("k", 5)
		time.Sleep(5 * time.Second)
		check(t, l.Stats().Refunded == 5, "%+v", l.Stats())
	})
}

// What a wait had gathered when the store went away is lost with its lease, and not given back
// minutes later to a bucket that has refilled since.
func TestTokensOfAFailedWaitEndWithTheirLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		limit := hybrid.PerSecond(1).WithBurst(100)
		cfg := by(hybrid.Policy{Fallback: hybrid.FallbackDeny, MinBatch: 50}, limit)
		cfg.InstanceID = "a"
		a := start(t, s, cfg)
		cfg.InstanceID = "c"
		c := start(t, s, cfg)
		m := newMeter(limit)
		m.admitIf(a.Allow("k"))
		cut := true
		s.setJudge(func(c *lease.Call) verdict {
			if cut && strings.HasPrefix(c.Request.Holder, "a-") {
				return away
			}
			return verdict{}
		})
		// A waits for more than it holds, gathers 49, and is told that it has nothing.
		isErr(t, a.WaitN(t.Context(), "k", 100), hybrid.ErrUnavailable)
		time.Sleep(2 * time.Minute) // its lease is forgotten, the bucket full again
		m.admit(drain(c, "k"))
		cut = false
		for range 2000 {
			for _, l := range []*hybrid.Limiter{a, c} {
				m.admitIf(l.Allow("k"))
			}
			time.Sleep(time.Millisecond)
		}
		m.check(t)
	})
}

// A process whose twin, restored from the same snapshot, calls under the same id goes on under
// another one.
func TestATwinLeadsToANewID(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		limit := hybrid.PerSecond(1000)
		l := warm(t, s, hybrid.Config{Limits: limits(limit), InstanceID: "pod-7", Policy: denying})
		// Given a twin that is ahead by a thousand calls,
		old := s.last()
		twin := lease.Call{Key: "k"}
		twin.Request = lease.Request{Holder: old.Holder, Seq: old.Seq + 1<<40, Config: old.Config, Weight: 1}
		s.inner.Exchange(t.Context(), []*lease.Call{&twin}, func([]*lease.Call) {})
		must(t, twin.Err == nil, "%v", twin.Err)
		bound := newMeter(limit)
		// when this process goes on,
		admitted := admits(1000, 2*time.Millisecond, func() bool { return bound.admitIf(l.TryAllow("k")) })
		// then it has a new id, and works.
		id := s.last().Holder
		check(t, id != old.Holder && id[:5] == "pod-7", "the id was %q and is %q", old.Holder, id)
		check(t, admitted >= 990, "%d of 1000 admitted", admitted)
		bound.check(t)
		// It keeps that id when the key has left and comes back, for the twin is still there.
		time.Sleep(time.Minute)
		l.Allow("k")
		got := s.last().Holder
		check(t, got == id, "the id was %q and is %q", id, got)
	})
}

// A reply that is not one to the call is no answer, and the key is not stuck with it.
func TestAForeignReplyIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &foreign{Store: lease.NewMemoryStore(nil)}
		l := start(t, s, by(denying, hybrid.PerSecond(100)))
		s.on.Store(true)
		check(t, !l.Allow("k"), "a foreign grant was spent")
		synctest.Wait()
		s.on.Store(false)
		// The breaker is open: a probe goes out within a T.
		d := until(time.Millisecond, func() bool { return l.Allow("k") })
		check(t, d <= ttl, "the key was stuck for %v: %+v", d, l.Stats())
	})
}

type foreign struct {
	lease.Store
	on atomic.Bool
}

// Exchange implements lease.Store.
func (f *foreign) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	f.Store.Exchange(ctx, calls, func([]*lease.Call) {})
	for _, c := range calls {
		if f.on.Load() {
			c.Grant.Seq++
		}
	}
	done(calls)
}

// That another process uses the id is no reason to tell those who wait that the store is away.
func TestAWaitGoesOnUnderANewID(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, by(denying, hybrid.PerSecond(10)))
		l.Allow("k")
		s.setJudge(func(c *lease.Call) verdict {
			s.judge = nil // the first call alone
			return verdict{err: lease.ErrStale}
		})
		noErr(t, l.Wait(t.Context(), "k"))
	})
}
