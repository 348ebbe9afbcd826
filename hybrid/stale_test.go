package hybrid_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A process whose twin, restored from the same snapshot, calls under the same id goes on under another one.
func TestATwinLeadsToANewID(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		limit := hybrid.PerSecond(1000)
		l := warm(t, s, hybrid.Config{Limits: limits(limit), InstanceID: "pod-7", Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny}})
		// Given a twin that is ahead by a thousand calls,
		old := s.last()
		twin := lease.Call{Key: "k", Request: lease.Request{Holder: old.Holder, Seq: old.Seq + 1<<40, Config: old.Config, Weight: 1}}
		s.inner.Exchange(t.Context(), []*lease.Call{&twin}, func([]*lease.Call) {})
		must(t, twin.Err == nil, "%v", twin.Err)
		bound := newMeter(limit)
		// when this process goes on,
		admitted := 0
		for range 1000 {
			if l.TryAllow("k") {
				bound.admit(1)
				admitted++
			}
			time.Sleep(2 * time.Millisecond)
		}
		// then it has a new id, and works.
		id := s.last().Holder
		check(t, id != old.Holder && id[:5] == "pod-7", "the id was %q and is %q", old.Holder, id)
		check(t, admitted >= 800, "%d of 1000 admitted", admitted)
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
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(100)), Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny}})
		s.on.Store(true)
		check(t, !l.Allow("k"), "a foreign grant was spent")
		synctest.Wait()
		s.on.Store(false)
		// The first one may find the breaker open and send the probe, another is served after it.
		for range 3 {
			time.Sleep(time.Second)
			if l.Allow("k") {
				return
			}
		}
		t.Errorf("the key is stuck: %+v", l.Stats())
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
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10)), Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny}})
		l.Allow("k")
		n := 0
		s.setJudge(func(c *lease.Call) verdict {
			n++
			if n == 1 {
				return verdict{err: lease.ErrStale}
			}
			return verdict{}
		})
		noErr(t, l.Wait(t.Context(), "k"))
	})
}
