package main

import (
	"context"
	"errors"
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
	mu    sync.Mutex
	calls []time.Time
	say   func(call int, w http.ResponseWriter)
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
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

// start starts one worker of the fleet that shares buckets, and checks that its books balance in
// the end.
func start(t *testing.T, buckets lease.Store, queue chan job, a *api, calls, customers hybrid.Limit) *worker {
	t.Helper()
	limiter := func(name string, limit hybrid.Limit) *hybrid.Limiter {
		// Each worker has another value of the store, as separate processes have.
		l, err := hybrid.New(&struct{ lease.Store }{buckets}, hybrid.Config{
			Name: name, Limits: []hybrid.Limit{limit},
		})
		testkit.NoErr(t, err)
		t.Cleanup(func() {
			l.Close()
			s := l.Stats()
			testkit.Check(t, s.Conserved() && s.Waiting == 0, "the books do not balance: %+v", s)
		})
		return l
	}
	return newWorker(queue, "http://api", a, limiter("calls", calls), limiter("customers", customers))
}

// jobs returns a queue of n jobs, of ten customers.
func jobs(n int) chan job {
	queue := make(chan job, n)
	for i := range n {
		queue <- job{i, string(rune('a' + i%10))}
	}
	return queue
}

// hourly is a burst of n, with no refill during a test.
func hourly(n int64) hybrid.Limit { return hybrid.PerHour(1).WithBurst(n) }

// TestWorkersShareALimit: with any number of workers, the API gets as many calls in any window as
// the limit allows, no more and no fewer.
func TestWorkersShareALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		buckets, queue, a := memory.New(nil), jobs(600), &api{}
		ctx, stop := context.WithCancel(context.Background())
		from := time.Now()
		var fleet sync.WaitGroup
		var workers []*worker
		for range 3 {
			w := start(t, buckets, queue, a, hybrid.PerSecond(20), hybrid.PerSecond(100))
			workers = append(workers, w)
			fleet.Go(func() { w.run(ctx, 8) })
		}
		done := func() (n int64) {
			for _, w := range workers {
				n += w.done.Load()
			}
			return n
		}
		for done() < 600 {
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(from)
		stop()
		fleet.Wait()
		// 20 at once, and the other 580 at 20 a second.
		testkit.Check(t, took >= 29*time.Second && took <= 30*time.Second, "600 calls took %v, want 29 s", took)
		for i := range a.calls {
			for k := i; k < len(a.calls); k++ {
				n, within := k-i+1, a.calls[k].Sub(a.calls[i])
				testkit.Must(t, float64(n) <= 20+20*within.Seconds()+1, "%d calls within %v", n, within)
			}
		}
	})
}

// TestAJobThatWaitsIsPutBack: when the worker ends, the jobs that wait for their customer's turn
// are in the queue again, begun jobs are done, and the worker's leased tokens are available to
// another worker at once.
func TestAJobThatWaitsIsPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{})
		a := &api{say: func(int, http.ResponseWriter) { <-begun }}
		buckets, queue := memory.New(nil), make(chan job, 8)
		for i := range cap(queue) {
			queue <- job{i, "a"}
		}
		first := start(t, buckets, queue, a, hourly(100), hourly(5))
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { first.run(ctx, 7) })
		time.Sleep(time.Minute / 10)
		waiting := first.customers.Stats().Waiting
		testkit.Check(t, a.called() == 5 && waiting == 2, "%d have begun, %d wait", a.called(), waiting)
		stop()
		synctest.Wait()
		testkit.Check(t, len(queue) == 3, "%d jobs are in the queue, want the 2 that waited and 1", len(queue))
		close(begun)
		running.Wait()
		testkit.Check(t, first.done.Load() == 5, "%d jobs are done, want the 5 that had begun", first.done.Load())
		testkit.NoErr(t, first.shutdown(context.Background()))
		for _, l := range []*hybrid.Limiter{first.calls, first.customers} {
			_, err := l.Take(context.Background(), "a", 1)
			held := l.Stats().Held
			testkit.Check(t, held == 0 && errors.Is(err, hybrid.ErrClosed), "%d were not given back, %v", held, err)
		}
		left, err := start(t, buckets, queue, a, hourly(100), hourly(5)).calls.Peek(context.Background(), "all")
		testkit.NoErr(t, err)
		testkit.Check(t, left.Remaining == 95, "%d calls are left for the next worker, want 95", left.Remaining)
	})
}

// TestAJobThatFailsCostsItsCustomerNothing: it is put back and done later, after a pause, and its
// customer's token is refunded. The call of the API has happened, and counts.
func TestAJobThatFailsCostsItsCustomerNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{say: func(call int, w http.ResponseWriter) {
			if call <= 3 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}}
		queue := jobs(1)
		w := start(t, memory.New(nil), queue, a, hourly(100), hourly(10))
		ctx, stop := context.WithCancel(context.Background())
		go w.run(ctx, 1)
		time.Sleep(10 * time.Second)
		stop()
		synctest.Wait()
		calls, err1 := w.calls.Peek(context.Background(), "all")
		customer, err2 := w.customers.Peek(context.Background(), "a")
		testkit.Must(t, err1 == nil && err2 == nil, "%v, %v", err1, err2)
		testkit.Check(t, w.done.Load() == 1 && len(queue) == 0 && len(a.calls) == 4, "%d calls", len(a.calls))
		testkit.Check(t, a.calls[3].Sub(a.calls[0]) == 3*pauseAfterFailure, "it fails without a pause")
		testkit.Check(t, calls.Remaining == 96 && customer.Remaining == 9, "%d calls and %d jobs are left",
			calls.Remaining, customer.Remaining)
	})
}
