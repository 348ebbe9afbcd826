package live

import (
	"context"
	"encoding/json"
	"math"
	"path/filepath"
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
			own.observe(decisions, time.Duration(process)*time.Millisecond+(us+1)*time.Microsecond)
		}
		// when each tells it as JSON,
		text, err := json.Marshal(own.told())
		testkit.NoErr(t, err)
		var heard []*hdrhistogram.Snapshot
		testkit.NoErr(t, json.Unmarshal(text, &heard))
		all.merge(heard)
	}
	all.merge(nil)
	// then the median and the slowest hundredth are those of all, within 1 %.
	got, trips := all.quantiles(decisions), all.quantiles(roundTrips)
	testkit.Check(t, math.Abs(float64(got.P50)/1e6-1) <= 0.01 && math.Abs(float64(got.P99)/1.98e6-1) <= 0.01 &&
		trips == (Quantiles{}), "%+v, %+v", got, trips)
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

// inAChild runs f on fake time, in a process of a fleet whose Redis answers once answer is called.
func inAChild(t *testing.T, o Options, f func(t *testing.T, c *child, answer func())) {
	t.Helper()
	file, err := stamps.Create(filepath.Join(t.TempDir(), "stamps"), o.capacity())
	testkit.NoErr(t, err)
	defer file.Close()
	denied, err := stamps.Create(filepath.Join(t.TempDir(), "denied"), o.denials())
	testkit.NoErr(t, err)
	defer denied.Close()
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		l, err := hybrid.New(held{memory.New(clock.System()), answers}, o.config())
		testkit.NoErr(t, err)
		f(t, &child{orders: orders{Options: o}, limit: o.limit(), file: file, denied: denied, took: newLatencies(),
			limiter: l, key: l.Key("k")}, sync.OnceFunc(func() { close(answers) }))
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // its timers end
	})
}

func TestAWaitingRequestBlocksNoOther(t *testing.T) {
	for _, c := range []struct{ users, waiting int64 }{{0, 0}, {1, 1}, {2, 2}, {300, 300},
		{askersMax + 700, askersMax}} {
		inAChild(t, fleet, func(t *testing.T, p *child, answer func()) {
			// Given requests that come at once while nothing is held and Redis does not answer,
			var wg sync.WaitGroup
			p.crowd(&wg, c.users)
			synctest.Wait()
			// then all of them wait, or as many as may;
			if got := p.askers.Load(); got != c.waiting || p.file.Offered().Load() != 0 {
				t.Errorf("of %d users %d wait, want %d; %d are answered", c.users, got, c.waiting,
					p.file.Offered().Load())
			}
			// and when it answers, each has asked once.
			answer()
			wg.Wait()
			if got := p.file.Offered().Load(); got != c.users || p.askers.Load() != 0 {
				t.Errorf("%d users have asked %d times; %d are left", c.users, got, p.askers.Load())
			}
		})
	}
}

func TestALoadIsOfferedWhole(t *testing.T) {
	// Given loads that end, or bursts that do, between two of the moments at which a process wakes,
	// and requests that are too few for one in each burst,
	steady, bursts, slow, drops := fleet, fleet, fleet, fleet
	bursts.Shape, bursts.Within = ShapeBursts, 50*time.Millisecond+step/2
	slow.Limit = "10/s burst 10000"
	drops.Limit, drops.Shape, drops.Within = slow.Limit, ShapeBursts, 20*time.Millisecond
	for name, o := range map[string]Options{"steady": steady, "bursts": bursts, "slow": slow, "drops": drops} {
		o.Duration = 3 * time.Second
		if o.Shape == ShapeSteady {
			o.Duration += step / 2
		}
		inAChild(t, o, func(t *testing.T, p *child, answer func()) {
			answer()
			testkit.NoErr(t, align(t.Context(), o.Shape))
			began := time.Now()
			p.offer()
			// then a process asks for its part, but for a request of each worker that may have been due.
			want := int64(o.Offered * o.limit().Rate() * o.Duration.Seconds() / float64(o.Processes))
			if got := p.file.Offered().Load(); got < want-workers || got > want+workers {
				t.Errorf("%s: %d requests in %v, want %d", name, got, time.Since(began), want)
			}
		})
	}
}

func TestAFleetWithBurstsStartsShortlyBeforeOne(t *testing.T) {
	for _, shape := range Shapes {
		for _, at := range []time.Duration{0, 1, period - period/8 - 1, period - period/8, period - period/8 + 1,
			period - 1} {
			synctest.Test(t, func(t *testing.T) {
				// Given any moment between two bursts,
				time.Sleep(at)
				o := fleet
				o.Shape = shape
				began := time.Now()
				testkit.NoErr(t, align(t.Context(), o.Shape))
				// then it starts an eighth of a period before the next that it can see whole, and
				// without bursts at once.
				waited := time.Since(began)
				left := time.Until(time.Now().Truncate(period).Add(period))
				if shape != ShapeBursts && waited != 0 || shape == ShapeBursts && (left != period/8 || waited >= period) {
					t.Errorf("%s: %v after a burst it waited for %v, until %v before one", shape, at, waited, left)
				}
			})
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := align(ctx, ShapeBursts)
	testkit.Check(t, err != nil, "it waits although it was interrupted")
}

func TestABurstIsSpreadOverItsTime(t *testing.T) {
	o := fleet
	o.Shape, o.Within, o.Duration = ShapeBursts, 100*time.Millisecond, period
	inAChild(t, o, func(t *testing.T, p *child, answer func()) {
		answer()
		// Given the only burst of a half second, 12,500 requests of one process, at a multiple of the period,
		burst := time.Now().Truncate(period).Add(period)
		time.Sleep(time.Until(burst.Add(-time.Millisecond)))
		done := make(chan struct{})
		go func() { p.offer(); close(done) }()
		for _, at := range []struct {
			after time.Duration
			want  int64
		}{{-time.Microsecond, 0}, {25*time.Millisecond + time.Microsecond, 3125},
			{75*time.Millisecond + time.Microsecond, 9375}, {101 * time.Millisecond, 12_500}} {
			time.Sleep(time.Until(burst.Add(at.after)))
			synctest.Wait()
			// then as much of it has been asked as time has passed.
			if got := p.file.Offered().Load(); got < at.want-workers || got > at.want+workers {
				t.Errorf("%d requests %v after the burst's beginning, want %d", got, at.after, at.want)
			}
		}
		<-done
	})
}
