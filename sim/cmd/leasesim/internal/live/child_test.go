package live

import (
	"context"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestTheProcessesRecordsAreMerged(t *testing.T) {
	// Given a process that observes 1 to 1000 us, one that observes 1001 to 2000 us, and one that was killed,
	all := newLatencies()
	for process := range 2 {
		own := newLatencies()
		for us := range time.Duration(1000) {
			own.observe(roundTrips, time.Duration(process)*time.Millisecond+(us+1)*time.Microsecond)
		}
		// when each tells it as JSON,
		text, err := json.Marshal(own.snapshots())
		testkit.NoErr(t, err)
		var heard []*hdrhistogram.Snapshot
		testkit.NoErr(t, json.Unmarshal(text, &heard))
		all.merge(heard)
	}
	all.merge(nil)
	// then the median and the slowest hundredth are those of all, within 1 %.
	got, lag := all.quantiles(roundTrips), all.quantiles(lags)
	testkit.Check(t, math.Abs(float64(got.P50)/1e6-1) <= 0.01 && math.Abs(float64(got.P99)/1.98e6-1) <= 0.01 &&
		lag == (Quantiles{}), "%+v, %+v", got, lag)
}

// held is a store that answers no call before it is told to.
type held struct {
	lease.Store
	answers chan struct{}
}

func (h held) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	select {
	case <-h.answers:
		h.Store.Exchange(ctx, calls, done)
	case <-ctx.Done():
		for _, c := range calls {
			c.Err = lease.ErrUnavailable
		}
		done(calls)
	}
}

// inAChild runs f on fake time, in process i of a fleet whose Redis answers once answer is called.
func inAChild(t *testing.T, o Options, i int, f func(t *testing.T, c *child, answer func())) {
	t.Helper()
	o.Scenario = o.Scenario.Defaults()
	capacity, err := o.capacity(i)
	testkit.NoErr(t, err)
	file, err := stamps.Create(filepath.Join(t.TempDir(), "stamps"), capacity)
	testkit.NoErr(t, err)
	defer file.Close()
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		c := &child{orders: orders{Options: o, Index: i}, file: file, took: newLatencies(), ended: make(chan struct{})}
		l, err := hybrid.New(held{memory.New(clock.System()), answers}, c.config())
		testkit.NoErr(t, err)
		c.limiter = l
		f(t, c, sync.OnceFunc(func() { close(answers) }))
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // its timers end
	})
}

func TestAWaitingRequestBlocksNoOther(t *testing.T) {
	for _, c := range []struct{ users, waiting int64 }{{0, 0}, {1, 1}, {2, 2}, {300, 300},
		{activeMost + 700, activeMost}} {
		inAChild(t, fleet, 0, func(t *testing.T, p *child, answer func()) {
			// Given requests that come at once while nothing is held and Redis does not answer,
			var wg sync.WaitGroup
			p.makeAll(&wg, slices.Repeat([]request{{0, p.limiter.Key("k"), 1}}, int(c.users)), (*hybrid.Key).AllowN)
			synctest.Wait()
			// then all of them wait, or as many as may;
			if got := p.active.Load(); got != c.waiting || p.file.Offered().Load() != 0 {
				t.Errorf("of %d users %d wait, want %d; %d are answered", c.users, got, c.waiting,
					p.file.Offered().Load())
			}
			// and when it answers, each has asked once.
			answer()
			wg.Wait()
			if got := p.file.Offered().Load(); got != c.users || p.active.Load() != 0 {
				t.Errorf("%d users have asked %d times; %d are left", c.users, got, p.active.Load())
			}
		})
	}
}
