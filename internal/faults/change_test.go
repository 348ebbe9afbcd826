package faults

import (
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// phase is a name for the decisions of a while, under which the rig keeps them apart.
type phase struct {
	mu   sync.Mutex
	name string
}

func (p *phase) set(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name = name
}

func (p *phase) get() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.name
}

// loadInPhases asks every limiter of f for key, as often as half a millisecond allows, and keeps the decisions under p.
func loadInPhases(t *testing.T, f *Fleet, p *phase, key string) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, l := range f.Limiters {
		k := l.Key(key)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(500 * time.Microsecond): // the pace of load
					f.Ask(p.get(), k.Allow)
				}
			}
		})
	}
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { close(stop) })
}

// Row 33: limits are changed with leases out. Until a T after the change the larger of the two limits holds, from then on
// the new one, exactly: leases of the old one are not renewed, so they have ended.
func TestRow33LimitsChangedWithLeasesOut(t *testing.T) {
	for name, c := range map[string]struct{ from, to hybrid.Limit }{
		"lowered": {hybrid.PerSecond(1000), hybrid.PerSecond(50).WithBurst(20)},
		"raised":  {hybrid.PerSecond(50).WithBurst(20), hybrid.PerSecond(1000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Given four processes with leases under the old limit. (A machine that stalls must not spend an ended lease.)
			f := NewFleet(t, Options{Size: 4, Addr: redistest.Start(t).Addr, Config: hybrid.Config{
				Limits: []hybrid.Limit{c.from},
				Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny, StrictExpiry: true},
			}})
			p := &phase{name: "old"}
			loadInPhases(t, f, p, "k")
			testkit.Eventually(t, "leases everywhere", func() bool {
				for _, l := range f.Limiters {
					if l.Stats().Leased == 0 {
						return false
					}
				}
				return f.Stats().Admitted > c.from.Burst+100
			})
			// when one of them sets the new one,
			if err := f.Limiters[0].SetLimits(t.Context(), "k", c.to); err != nil {
				t.Fatal(err)
			}
			ttl := f.State("k").Config.TTL
			from := f.Now()
			testkit.Eventually(t, "the end of the old leases", func() bool { return f.Now() > from+ttl })
			p.set("new")
			admitted := f.Stats().Admitted
			testkit.Eventually(t, "some admissions under the new limit", func() bool { return f.Stats().Admitted > admitted+50 })
			p.set("end")
			// then each bound holds in its time.
			f.CheckBound("old", larger(c.from, c.to), 0)
			f.CheckBound("new", c.to, 0)
			if st := f.State("k"); st.Config.Limits[0] != c.to || st.Config.Version.Revision != 1 {
				t.Errorf("%+v", st.Config)
			}
		})
	}
}

func larger(a, b hybrid.Limit) hybrid.Limit {
	if a.Rate() > b.Rate() {
		return a
	}
	return b
}

// Row 34: during a rolling deploy two configurations are in use. The higher version wins at every process that has called
// since, whichever of them called last, and stays when the old processes restart.
func TestRow34RollingDeployWithTwoConfigurations(t *testing.T) {
	addr := redistest.Start(t).Addr
	record := &tape{}
	fleet := func(version int64, limit hybrid.Limit) *Fleet {
		return NewFleet(t, Options{Size: 2, Addr: addr, Store: record.over, Config: hybrid.Config{
			Limits: []hybrid.Limit{limit}, Version: version, CallTimeout: time.Minute,
			Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny, StrictExpiry: true, TTL: 400 * time.Millisecond},
		}})
	}
	before, after := hybrid.PerSecond(500), hybrid.PerSecond(100).WithBurst(50)
	// Given processes of the old version at work,
	old := fleet(1, before)
	p := &phase{name: "mixed"}
	loadInPhases(t, old, p, "k")
	testkit.Eventually(t, "admissions", func() bool { return old.Stats().Admitted > 600 })
	// when the first process of the new version calls, and both go on,
	next := fleet(2, after)
	both := &phase{name: "mixed"}
	loadInPhases(t, next, both, "k")
	testkit.Eventually(t, "the new version at the bucket", func() bool { return old.State("k").Config.Version.Deploy == 2 })
	ttl := old.State("k").Config.TTL
	from := old.Now()
	testkit.Eventually(t, "the end of the old leases", func() bool { return old.Now() > from+ttl })
	p.set("new")
	both.set("new")
	admitted, too := old.Stats().Admitted, next.Stats().Admitted
	testkit.Eventually(t, "admissions under the new limits", func() bool {
		return old.Stats().Admitted > admitted+20 && next.Stats().Admitted > too+20
	})
	testkit.Eventually(t, "the new limits at every process", func() bool {
		for _, f := range []*Fleet{old, next} {
			for _, l := range f.Limiters {
				if r, err := l.Take(t.Context(), "k", 1); err != nil || r.Limit != after {
					return false
				}
			}
		}
		return true
	})
	// and an old process starts once more,
	again := fleet(1, before)
	testkit.Eventually(t, "an answer for it", func() bool {
		r, err := again.Limiters[0].Take(t.Context(), "k", 1)
		return err == nil && r.Limit == after
	})
	// then nothing goes back to the old version.
	if st := old.State("k"); st.Config.Version.Deploy != 2 || st.Config.Limits[0] != after {
		t.Errorf("%+v", st.Config)
	}
	// Each fleet alone is within the larger bound before and the smaller one after.
	old.CheckBound("mixed", before, 0)
	old.CheckBound("new", after, 0)
	// And Redis did with every call what the reference does.
	for _, f := range []*Fleet{old, next, again} {
		for _, l := range f.Limiters {
			if err := l.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	record.replay(t)
	if s := again.Stats(); s.Conflicts != 0 {
		t.Errorf("an older version is not a conflict: %+v", s)
	}
}
