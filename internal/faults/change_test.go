package faults

import (
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// phases keeps apart, in a fleet's record, the decisions of one phase from those of the next.
type phases struct {
	mu   sync.Mutex
	name string
}

func (p *phases) enter(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name = name
}

func (p *phases) current() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.name
}

// load asks every limiter of f for key, as often as half a millisecond allows.
func (p *phases) load(t *testing.T, f *Fleet) {
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
					f.Ask(p.current(), k.Allow)
				}
			}
		})
	}
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { close(stop) })
}

// enterWhenOldLeasesEnd enters a phase a T from now.
func (p *phases) enterWhenOldLeasesEnd(t *testing.T, f *Fleet, name string) {
	t.Helper()
	until := f.Now() + f.State(key).Config.TTL
	testkit.Eventually(t, "the end of the old leases", func() bool { return f.Now() > until })
	p.enter(name)
}

// TestRow33LimitsChangedWithLeasesOut: until a T after the change the larger of the two limits
// holds, from then on the new one, exactly: leases of the old one are not renewed, so they have
// ended.
func TestRow33LimitsChangedWithLeasesOut(t *testing.T) {
	t.Parallel()
	large, small := hybrid.PerSecond(1000), hybrid.PerSecond(50).WithBurst(20)
	for name, c := range map[string]struct{ from, to hybrid.Limit }{"lowered": {large, small},
		"raised": {small, large}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Given four processes with leases under the old limit,
			f := NewFleet(t, Options{Size: 4, Addr: redistest.Start(t).Addr,
				Config: hybrid.Config{Limits: []hybrid.Limit{c.from}, Policy: strict}})
			p := &phases{name: "old"}
			p.load(t, f)
			f.Warm()
			testkit.Eventually(t, "admissions", func() bool { return f.Stats().Admitted > c.from.Burst+100 })
			// when one of them sets the new one,
			must(t, f.Limiters[0].SetLimits(t.Context(), key, c.to))
			p.enterWhenOldLeasesEnd(t, f, "new")
			admitted := f.Stats().Admitted
			testkit.Eventually(t, "some admissions under the new limit",
				func() bool { return f.Stats().Admitted > admitted+50 })
			p.enter("end")
			// then each bound holds in its time.
			f.CheckBound("old", large, 0)
			f.CheckBound("new", c.to, 0)
			if st := f.State(key); st.Config.Limits[0] != c.to || st.Config.Version.Revision != 1 {
				t.Errorf("%+v", st.Config)
			}
		})
	}
}

// TestRow34RollingDeployWithTwoConfigurations: the higher version wins at every process that has
// called since, whichever of them called last, and stays when the old processes restart.
func TestRow34RollingDeployWithTwoConfigurations(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr
	record := &tape{}
	policy := strict
	policy.TTL = 400 * time.Millisecond
	fleet := func(version int64, limit hybrid.Limit) *Fleet {
		return NewFleet(t, Options{Size: 2, Addr: addr, Store: record.over, Config: hybrid.Config{
			Limits: []hybrid.Limit{limit}, Version: version, CallTimeout: time.Minute, Policy: policy,
		}})
	}
	before, after := hybrid.PerSecond(500), hybrid.PerSecond(100).WithBurst(50)
	// Given processes of the old version at work,
	old := fleet(1, before)
	p := &phases{name: "mixed"}
	p.load(t, old)
	testkit.Eventually(t, "admissions", func() bool { return old.Stats().Admitted > 600 })
	// when the first process of the new version calls, and both go on,
	next := fleet(2, after)
	p.load(t, next)
	testkit.Eventually(t, "the new version at the bucket",
		func() bool { return old.State(key).Config.Version.Deploy == 2 })
	p.enterWhenOldLeasesEnd(t, old, "new")
	admitted, too := old.Stats().Admitted, next.Stats().Admitted
	testkit.Eventually(t, "admissions under the new limits", func() bool {
		return old.Stats().Admitted > admitted+20 && next.Stats().Admitted > too+20
	})
	follows := func(l *hybrid.Limiter) bool {
		r, err := l.Take(t.Context(), key, 1)
		return err == nil && r.Limit == after
	}
	testkit.Eventually(t, "the new limits at every process", func() bool {
		for _, l := range append(old.Limiters[:2:2], next.Limiters...) {
			if !follows(l) {
				return false
			}
		}
		return true
	})
	// and an old process starts once more,
	again := fleet(1, before)
	testkit.Eventually(t, "an answer for it", func() bool { return follows(again.Limiters[0]) })
	// then nothing goes back to the old version.
	if st := old.State(key); st.Config.Version.Deploy != 2 || st.Config.Limits[0] != after {
		t.Errorf("%+v", st.Config)
	}
	// Each fleet alone is within the larger bound before and the smaller one after.
	old.CheckBound("mixed", before, 0)
	old.CheckBound("new", after, 0)
	// And Redis did with every call what the reference does.
	old.Shutdown()
	next.Shutdown()
	again.Shutdown()
	record.replay(t)
	if s := again.Stats(); s.Conflicts != 0 {
		t.Errorf("an older version is not a conflict: %+v", s)
	}
}
