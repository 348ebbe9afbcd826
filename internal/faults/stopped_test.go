//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestRow29AStoppedProcessSpendsItsLeaseLateWithoutStrictExpiryOnly: a process was stopped until
// the bucket forgot its lease, and others have spent its tokens meanwhile. With StrictExpiry it
// spends nothing of it, without it at most what it held.
func TestRow29AStoppedProcessSpendsItsLeaseLateWithoutStrictExpiryOnly(t *testing.T) {
	t.Parallel()
	for name, strict := range map[string]bool{"strict": true, "not strict": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Given a process that holds a good part of the burst,
			f := newFamily(t)
			o := orders{
				Role: "hold", CallTimeout: 10 * time.Second, Limit: hybrid.PerSecond(100),
				Policy: hybrid.Policy{MinBatch: 50, TTL: time.Second, StrictExpiry: strict},
			}
			stopped := f.child(o)
			var h holding
			stopped.hear("holding", &h)
			// when it is stopped until its lease is forgotten and the bucket full again,
			stopped.stop()
			stopped.tell("spend") // when it goes on
			testkit.Eventually(t, "a full bucket", func() bool {
				s := f.State(key)
				return !s.Exists || s.Ledger == 0 && s.Levels[0] == o.Limit.Capacity()
			})
			// and goes on just after others have taken all there is,
			l := f.limiter(o)
			took := int64(0)
			for f.stamp(func() bool { return l.Allow(key) }) {
				took++
			}
			stopped.resume()
			var late int64
			stopped.hear("spent", &late)
			r := f.finish(stopped)[0]
			// then it admits nothing of what it held, and all windows keep the bound;
			w := f.worst(t, o.Limit)
			t.Logf("held %d, spent %d late; others took %d; a window exceeded the bound by %d; %+v",
				h.Held, late, took, w.ExceededBy, r.Stats)
			if strict && (late != 0 || w.ExceededBy != 0) {
				t.Errorf("%d tokens spent after their deadline, %+v", late, w)
			}
			// without StrictExpiry it is late with some, at most with what it held.
			if !strict && (late == 0 || late > h.Held || w.ExceededBy > h.Held) {
				t.Errorf("%d tokens of %d spent late, %+v", late, h.Held, w)
			}
			if took < o.Limit.Capacity() || h.Held+h.Admitted > r.Stats.Leased || r.Error != "" {
				t.Errorf("others took %d of a full bucket; %+v", took, r)
			}
		})
	}
}

// TestRow29AFleetKeepsTheBoundWhileOneOfItIsStopped: the same under load, again and again.
func TestRow29AFleetKeepsTheBoundWhileOneOfItIsStopped(t *testing.T) {
	t.Parallel()
	const stops = 2
	for name, strict := range map[string]bool{"strict": true, "not strict": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Given a fleet under load,
			f := newFamily(t)
			limit, _, ps := f.underLoad(hybrid.Policy{StrictExpiry: strict})
			f.awaitAdmitted(limit.Tokens / 2)
			for range stops {
				// when one of it is stopped until its lease has ended, and goes on,
				ps[0].stop()
				f.outlastLeases()
				ps[0].resume()
				f.awaitAdmitted(limit.Tokens / 2)
			}
			stopped := f.finish(ps...)[0]
			// then no window exceeds the bound, without StrictExpiry none by more than what the one held.
			w, allowed := f.worst(t, limit), int64(0)
			if !strict {
				allowed = stopped.MostHeld
			}
			t.Logf("admitted %d; the worst window exceeds the bound by %d, the stopped process held %d at most and burnt %d; T is %v",
				f.admitted(), w.ExceededBy, stopped.MostHeld, stopped.Stats.Burnt, f.State(key).Config.TTL)
			if w.ExceededBy > allowed {
				t.Errorf("exceeded by more than %d: %+v", allowed, w)
			}
		})
	}
}
