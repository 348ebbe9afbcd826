package hybrid_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// TestNothingIsLostOrForgedWhateverHappens has several limiters do everything at random - every
// verb, changes of limits, restarts - on a network that loses, delays, doubles and refuses, with an
// outage. Every token stays accounted for, every call returns, and in the end everybody can be
// served.
func TestNothingIsLostOrForgedWhateverHappens(t *testing.T) {
	seeds(t, testkit.PlainOrRace(150, 50), func(t *testing.T, seed uint64) { newStress(t, seed).run() })
}

type stress struct {
	t      *testing.T
	rnd    *rand.Rand
	store  *faultyStore
	cfg    hybrid.Config
	limits []hybrid.Limit

	mu   sync.Mutex
	live []*hybrid.Limiter
	all  []*hybrid.Limiter
}

func newStress(t *testing.T, seed uint64) *stress {
	s := &stress{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), store: newFaulty()}
	s.store.setJudge(badNetwork(rand.New(rand.NewPCG(seed, 2))))
	s.limits = limits(hybrid.PerHour(1).WithBurst(20+s.rnd.Int64N(100)), hybrid.PerSecond(20+s.rnd.Int64N(100)),
		hybrid.PerSecond(5).WithBurst(1+s.rnd.Int64N(20)), hybrid.PerSecond(1000).WithBurst(50+s.rnd.Int64N(500)))
	s.cfg = hybrid.Config{Limits: limits(s.limits[s.rnd.IntN(4)]), Policy: hybrid.Policy{
		Fallback: hybrid.Fallback(s.rnd.IntN(3)), StrictExpiry: s.rnd.IntN(2) == 0, MinBatch: s.rnd.Int64N(8),
		ColdStart: hybrid.ColdStart(s.rnd.IntN(2)),
	}}
	if s.rnd.IntN(2) == 0 {
		s.cfg.Limits = append(s.cfg.Limits, hybrid.PerSecond(50).WithBurst(30))
		s.cfg.KeysMax = 2 // of three
	}
	for range 1 + s.rnd.IntN(5) {
		l := start(t, s.store, s.cfg)
		s.live, s.all = append(s.live, l), append(s.all, l)
	}
	return s
}

// badNetwork has a spell of outage somewhere within ten seconds, and faults all the time.
func badNetwork(rnd *rand.Rand) func(*lease.Call) verdict {
	began := time.Now()
	within := func(d time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(d))) }
	from := within(5 * time.Second)
	to := from + within(4*time.Second)
	return func(*lease.Call) verdict {
		kinds := 20
		if at := time.Since(began); at >= from && at < to {
			kinds = 4
		}
		switch rnd.IntN(kinds) {
		case 0:
			return away
		case 1:
			return verdict{lost: true}
		case 2:
			return verdict{delay: within(900 * time.Millisecond)}
		case 3:
			return verdict{delay: within(20 * time.Millisecond), twice: true}
		case 4:
			return verdict{err: lease.ErrStale}
		}
		return verdict{delay: within(20 * time.Millisecond)}
	}
}

func (s *stress) run() {
	keys := []string{"k", "a", "b"}
	var wg sync.WaitGroup
	for range 300 {
		key, who := keys[s.rnd.IntN(3)], s.rnd.IntN(len(s.live))
		at := time.Duration(s.rnd.Int64N(int64(8 * time.Second)))
		act := s.act(key, who)
		wg.Go(func() {
			time.Sleep(at)
			act()
		})
	}
	wg.Wait()
	// When the network is well again and everybody has been idle for a while, each of them is
	// served.
	s.store.setJudge(nil)
	time.Sleep(10 * time.Second)
	for _, key := range keys {
		noErr(s.t, s.live[0].SetLimits(s.t.Context(), key, hybrid.PerSecond(1000)))
		for _, l := range s.live {
			err := l.WaitN(s.t.Context(), key, 5)
			again := func() bool {
				return errors.Is(err, hybrid.ErrUnavailable) ||
					errors.Is(err, hybrid.ErrExceedsBurst)
			}
			for tries := 0; again() && tries < 20; tries++ {
				// It did not know yet, and probes now. New limits are followed within T, which may have grown.
				time.Sleep(ttl)
				err = l.WaitN(s.t.Context(), key, 5)
			}
			if err != nil {
				s.t.Errorf("key %s: %v; %+v", key, err, l.Stats())
			}
		}
		time.Sleep(2 * time.Second) // they give back, and make room in a small table
	}
	for _, l := range s.all {
		l.Close()
		conserved(s.t, l)
	}
}

// act is something to do for limiter number who.
func (s *stress) act(key string, who int) func() {
	n := 1 + s.rnd.Int64N(3)
	if s.rnd.IntN(4) == 0 {
		n = 1 + s.rnd.Int64N(s.cfg.Limits[0].Capacity())
	}
	times, other := 1+s.rnd.IntN(20), s.limits[s.rnd.IntN(4)]
	patience, byDeadline := time.Duration(s.rnd.Int64N(int64(2*time.Second))), s.rnd.IntN(2) == 0
	verb := s.rnd.IntN(20)
	return func() {
		s.mu.Lock()
		l := s.live[who]
		s.mu.Unlock()
		ctx, cancel := context.WithCancel(s.t.Context())
		if byDeadline {
			ctx, cancel = context.WithTimeout(s.t.Context(), patience)
		} else {
			defer time.AfterFunc(patience, cancel).Stop()
		}
		defer cancel()
		switch {
		case verb < 4:
			for range times {
				l.Allow(key)
			}
		case verb < 6:
			l.TryAllow(key)
			l.AllowN(key, n)
		case verb < 9:
			_, _ = l.Take(ctx, key, n)
		case verb < 15:
			if err := l.WaitN(ctx, key, n); err != nil && !errors.Is(err, context.Canceled) &&
				!errors.Is(err, context.DeadlineExceeded) &&
				!errors.Is(err, hybrid.ErrWouldExceedDeadline) && !errors.Is(err, hybrid.ErrUnavailable) &&
				!errors.Is(err, hybrid.ErrClosed) && !errors.Is(err, hybrid.ErrExceedsBurst) {
				s.t.Error(err)
			}
		case verb == 15:
			l.Refund(key, n)
		case verb == 16:
			_ = l.SetLimits(ctx, key, other)
		case verb == 17:
			_ = l.Reset(ctx, key)
		case verb == 18 && times < 4:
			s.restart(ctx, who, byDeadline)
		}
		conserved(s.t, l)
	}
}

func (s *stress) restart(ctx context.Context, who int, atOnce bool) {
	fresh, err := hybrid.New(s.store, s.cfg)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.mu.Lock()
	old := s.live[who]
	s.live[who] = fresh
	s.all = append(s.all, fresh)
	s.mu.Unlock()
	if atOnce {
		old.Close()
	} else {
		_ = old.Shutdown(ctx)
	}
}
