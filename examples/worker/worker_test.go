package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	log.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// api is the API that jobs call, in memory. It records the times of its calls, and answers with
// say, which gets the number of the call, from 1.
type api struct {
	mu     sync.Mutex
	calls  []time.Time
	travel func() time.Duration // the time that a call takes to arrive
	say    func(call int, w http.ResponseWriter)
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	if a.travel != nil {
		takes := a.travel()
		a.mu.Unlock()
		time.Sleep(takes)
		a.mu.Lock()
	}
	a.calls = append(a.calls, time.Now())
	n := len(a.calls)
	a.mu.Unlock()
	w := httptest.NewRecorder()
	if a.say != nil {
		a.say(n, w)
	}
	return w.Result(), r.Context().Err()
}

// called returns the number of calls.
func (a *api) called() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.calls)
}

// start starts one worker of the fleet that shares buckets, and checks that its books balance in the end.
func start(t *testing.T, buckets lease.Store, queue chan int, a *api, limit hybrid.Limit) *worker {
	t.Helper()
	// Each worker has another value of the store, as separate processes have.
	cfg := config
	cfg.Limits = []hybrid.Limit{limit}
	l, err := hybrid.New(&struct{ lease.Store }{buckets}, cfg)
	testkit.NoErr(t, err)
	t.Cleanup(func() {
		l.Close()
		s := l.Stats()
		testkit.Check(t, s.Conserved() && s.Waiting == 0, "the books do not balance: %+v", s)
	})
	return &worker{queue: queue, api: "http://api", client: http.Client{Transport: a}, calls: l}
}

// jobs returns a queue of n jobs.
func jobs(n int) chan int {
	queue := make(chan int, n)
	for i := range n {
		queue <- i
	}
	return queue
}

// hourly is a burst of n, with no refill during a test.
func hourly(n int64) hybrid.Limit { return hybrid.PerHour(1).WithBurst(n) }

// worst returns the most calls that arrived in any second.
func (a *api) worst() (most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, from := range a.calls {
		n := 0
		for _, at := range a.calls[i:] {
			if at.Sub(from) < time.Second {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// TestTheAPICountsAtMost20CallsInAnySecond: three workers keep to the limit of the API, as the API counts it
// where the calls arrive, and use nine tenths of it. PerSecond(20) would admit up to 40 in its first second.
func TestTheAPICountsAtMost20CallsInAnySecond(t *testing.T) {
	for _, c := range []struct {
		limit       hybrid.Limit
		least, most int           // calls in the worst second
		takes       time.Duration // for 600 calls
	}{
		{config.Limits[0], 18, 20, 34 * time.Second},
		{hybrid.PerSecond(20), 36, 42, 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			// given calls that take up to 50 ms to arrive, after a rest,
			rng := testkit.Rand(t)
			buckets, queue, a := memory.New(nil), jobs(600), &api{}
			a.travel = func() time.Duration { return time.Duration(rng.Int64N(int64(50 * time.Millisecond))) }
			ctx, stop := context.WithCancel(context.Background())
			from := time.Now()
			var fleet sync.WaitGroup
			for range 3 {
				w := start(t, buckets, queue, a, c.limit)
				fleet.Go(func() { _ = w.run(ctx, 8) })
			}
			// when three workers do 600 jobs,
			for a.called() < 600 {
				time.Sleep(10 * time.Millisecond)
			}
			took := time.Since(from)
			stop()
			fleet.Wait()
			// then no second has more calls than the limit of the API.
			worst := a.worst()
			t.Logf("%v: %d calls in the worst second, 600 took %v", c.limit, worst, took)
			testkit.Check(t, c.least <= worst && worst <= c.most, "%v: %d calls in a second", c.limit, worst)
			testkit.Check(t, took <= c.takes, "%v: 600 calls took %v, at most %v", c.limit, took, c.takes)
		})
	}
}

// TestWorkersShareALimitInRedis: the second worker has the calls that the first one has left.
func TestWorkersShareALimitInRedis(t *testing.T) {
	testnet.OnRedis(t, func(open func() lease.Store) error {
		a := &api{}
		for range 2 {
			w := start(t, open(), jobs(3), a, hourly(5))
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			for len(w.queue) > 0 && w.do(ctx, <-w.queue) == nil {
			}
			if err := w.calls.Shutdown(t.Context()); err != nil {
				return err
			}
		}
		if a.called() != 5 {
			return fmt.Errorf("%d calls, want 5", a.called())
		}
		return nil
	})
}

// TestAJobThatWaitsIsPutBack: when the worker ends, the jobs that wait for their turn are in the queue
// again, begun jobs are done, and the worker's leased tokens are available to another worker at once.
func TestAJobThatWaitsIsPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{})
		a := &api{say: func(int, http.ResponseWriter) { <-begun }}
		buckets, queue := memory.New(nil), jobs(8)
		every := hybrid.Every(2 * time.Second).WithBurst(5)
		first := start(t, buckets, queue, a, every)
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = first.run(ctx, 7) })
		time.Sleep(time.Second)
		waiting := first.calls.Stats().Waiting
		testkit.Check(t, a.called() == 5 && waiting == 2, "%d have begun, %d wait", a.called(), waiting)
		stop()
		synctest.Wait()
		testkit.Check(t, len(queue) == 3, "%d jobs are in the queue, want the 2 that waited and 1", len(queue))
		close(begun)
		running.Wait()
		testkit.Check(t, a.called() == 5 && len(queue) == 3, "%d calls, %d jobs are left", a.called(), len(queue))
		held := first.calls.Stats().Held
		testkit.Check(t, held == 0, "%d tokens were not given back", held)
		left, err := start(t, buckets, queue, a, every).calls.Peek(context.Background(), "all")
		testkit.NoErr(t, err)
		testkit.Check(t, left.Remaining <= 1, "%d calls are left for the next worker, want 0 or 1", left.Remaining)
	})
}

// TestAJobThatCannotBeDoneIsPutBack: as the API fails, or as its turn would come too late, which
// costs no time.
func TestAJobThatCannotBeDoneIsPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{say: func(call int, w http.ResponseWriter) {
			if call <= 3 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}}
		w := start(t, memory.New(nil), jobs(1), a, hybrid.Every(4*time.Second))
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- w.run(ctx, 1) }()
		time.Sleep(13 * time.Second)
		stop()
		testkit.NoErr(t, <-ended)
		testkit.Check(t, len(w.queue) == 0 && a.called() == 4, "%d calls, want 3 that fail and 1", a.called())

		w = start(t, memory.New(nil), jobs(1), a, hourly(1))
		testkit.NoErr(t, w.do(t.Context(), 1))
		from := time.Now()
		err := w.do(t.Context(), 2)
		testkit.Check(t, errors.Is(err, hybrid.ErrWouldExceedDeadline) && time.Since(from) < time.Second,
			"%v after %v", err, time.Since(from))
	})
}
