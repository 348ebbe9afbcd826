//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// A process that was stopped until the bucket forgot its lease, and whose tokens others have spent meanwhile, spends
// nothing of it with StrictExpiry. Without it, it spends at most what it held.
func TestAStoppedProcessSpendsItsLeaseLateWithoutStrictExpiryOnly(t *testing.T) {
	t.Parallel()
	for name, strict := range map[string]bool{"strict": true, "not strict": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Given a process that holds a good part of the burst,
			server, rec := redistest.Start(t), newRecord(t)
			o := orders{
				Role: "hold", Redis: server.Addr, Record: rec.path, CallTimeout: 10 * time.Second,
				Limit:  hybrid.PerSecond(100),
				Policy: hybrid.Policy{MinBatch: 50, TTL: time.Second, StrictExpiry: strict},
			}
			stopped := launch(t, o)
			var h holding
			stopped.hear("holding", &h)
			// when it is stopped until its lease is forgotten and the bucket full again,
			stopped.stop()
			stopped.tell("spend") // when it goes on
			other := newFamily(t, server.Addr)
			testkit.EventuallyNil(t, func() error {
				s := other.inspect()
				return unless(!s.Exists || s.Ledger == 0 && s.Levels[0] == o.Limit.Capacity(), "the bucket: %+v", s)
			})
			// and goes on just after others have taken all there is,
			l := other.limiter(o.config())
			took := int64(0)
			for rec.ask(func() bool { return l.Allow("k") }) {
				took++
			}
			stopped.resume()
			var late int64
			stopped.hear("spent", &late)
			r := stopped.finish()
			// then it admits nothing of what it held, and all windows keep the bound;
			w := rec.worst(t, o.Limit)
			t.Logf("held %d, spent %d late; others took %d; a window exceeded the bound by %d; %+v", h.Held, late, took, w.ExceededBy, r.Stats)
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
			conserved(t, "the process", r.Stats)
		})
	}
}

// The same in a fleet under twice the load that the limit admits, again and again.
func TestAFleetKeepsTheBoundWhileOneOfItIsStopped(t *testing.T) {
	t.Parallel()
	const processes, stops = 4, 2
	for name, strict := range map[string]bool{"strict": true, "not strict": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Given a fleet under load,
			server, rec := redistest.Start(t), newRecord(t)
			limit := hybrid.PerSecond(2000).WithBurst(1000)
			o := orders{
				Role: "load", Redis: server.Addr, Record: rec.path, Limit: limit, Offered: 2 * limit.Rate() / processes,
				Policy: hybrid.Policy{StrictExpiry: strict},
			}
			f := newFamily(t, server.Addr)
			ps := f.launch(processes, o)
			f.admits(rec, limit.Tokens/2)
			for range stops {
				// when one of it is stopped until its lease has ended, and goes on,
				ps[0].stop()
				f.outlastLeases()
				ps[0].resume()
				f.admits(rec, limit.Tokens/2)
			}
			reports := f.finish(ps)
			// then no window exceeds the bound, without StrictExpiry none by more than what the one held.
			w, allowed := rec.worst(t, limit), int64(0)
			if !strict {
				allowed = reports[0].MostHeld
			}
			t.Logf("admitted %d; the worst window exceeds the bound by %d, the stopped process held %d at most and burnt %d; T is %v",
				sum(rec.file.AppendSpans(nil)), w.ExceededBy, reports[0].MostHeld, reports[0].Stats.Burnt, f.inspect().Config.TTL)
			if w.ExceededBy > allowed {
				t.Errorf("exceeded by more than %d: %+v", allowed, w)
			}
		})
	}
}
