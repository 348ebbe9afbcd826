package faults

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestAHealthyFleetPassesEveryOracle(t *testing.T) {
	// given three limiters on one server, asked for three times the limit (strict about the end of a
	// lease: otherwise a machine so slack that timers come late spends what has ended)
	limit := hybrid.PerSecond(1000).WithBurst(500)
	f := NewFleet(t, Options{Size: 3, Addr: redistest.Start(t).Addr, Config: hybrid.Config{
		Limits: []hybrid.Limit{limit}, Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny,
			StrictExpiry: true},
	}})
	load := f.Load("k", 1000)
	f.Warm()
	// when a second at the full rate has passed
	f.CheckRecovers("k", 1000)
	load.Stop()
	// then the bound holds over all windows, nothing was lost, and everybody was told both yes and no
	f.CheckBound("k", limit, 0)
	f.CheckConserved()
	f.CheckNobodyWaited("k", 0, f.Now())
	if s, st := f.Seen("k", 0, f.Now()), f.Stats(); s.Admitted != st.Admitted || s.Denied == 0 {
		t.Errorf("seen %+v, counted %+v", s, st)
	}
	// and the bucket counts no less as leased than is held
	if st := f.State("k"); !st.Exists || f.Balance("k") < f.Stats().Held {
		t.Errorf("%+v, held %d", st, f.Stats().Held)
	}
}

func TestTheAuditFindsAnAdmissionTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// given a fleet whose limit is 10 at once
		limit := hybrid.PerHour(10)
		f := NewFleetOn(t, hybrid.Config{Limits: []hybrid.Limit{limit}}, lease.NewMemoryStore(nil))
		for range 10 {
			f.Ask("k", func() bool { return true })
		}
		if w := f.Audit("k", limit, 0); w.ExceededBy != 0 || w.Admitted != 10 {
			t.Errorf("%+v", w)
		}
		// when an eleventh is admitted, half an hour later
		time.Sleep(30 * time.Minute)
		for range 6 {
			f.Ask("k", func() bool { return true })
		}
		// then the audit says so
		if w := f.Audit("k", limit, 0); w.ExceededBy != 1 {
			t.Errorf("%+v", w)
		}
	})
}
