package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
)

// job is what is to be done for a customer.
type job struct {
	id       int
	customer string
}

// worker does jobs: at most so many a second for each customer, and with at most so many calls of
// the API a second, together with all workers on the same store.
type worker struct {
	queue     chan job // yours is a message broker: to receive, and to put back
	api       string
	client    *http.Client // waits before each call, and where the API says so
	calls     *hybrid.Limiter
	customers *hybrid.Limiter
	done      atomic.Int64
}

func newWorker(queue chan job, api string, next http.RoundTripper, calls, customers *hybrid.Limiter) *worker {
	return &worker{
		queue: queue, api: api, calls: calls, customers: customers,
		client: &http.Client{Transport: httplimit.RoundTripper(calls, httplimit.All, next)},
	}
}

// run does so many jobs at a time until ctx ends, and returns when those that had begun are done.
func (w *worker) run(ctx context.Context, parallel int) {
	var all sync.WaitGroup
	for range parallel {
		all.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case j := <-w.queue:
					w.take(ctx, j)
				}
			}
		})
	}
	all.Wait()
}

// take does j, or puts it back.
func (w *worker) take(ctx context.Context, j job) {
	// Those that wait for their customer's turn need not wait when the worker ends; nobody has done
	// anything for them. Where a worker has code for golang.org/x/time/rate, package xtime has its
	// methods for such a key.
	if err := w.customers.Wait(ctx, j.customer); err != nil {
		w.putBack(ctx, j, err)
		return
	}
	if err := w.do(ctx, j); err != nil {
		w.customers.Refund(j.customer, 1) // it did not happen
		w.putBack(ctx, j, err)
		return
	}
	w.done.Add(1)
}

const (
	doMax             = 20 * time.Second // for a job that has begun, also when the worker ends meanwhile
	pauseAfterFailure = time.Second
)

func (w *worker) do(ctx context.Context, j job) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), doMax)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("%s/jobs/%d", w.api, j.id), nil)
	if err != nil {
		return err
	}
	answer, err := w.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		return errors.New(answer.Status)
	}
	return nil
}

// putBack leaves j to who takes it next. After a failure it pauses, or else a worker whose API is
// away would do nothing but fail.
func (w *worker) putBack(ctx context.Context, j job, why error) {
	w.queue <- j
	if ctx.Err() != nil {
		return
	}
	log.Printf("job %d is put back: %v", j.id, why)
	select {
	case <-time.After(pauseAfterFailure):
	case <-ctx.Done():
	}
}

// report says each second how far the work is, and calls end when all jobs are done.
func (w *worker) report(ctx context.Context, jobs int, end func()) {
	for second := time.NewTicker(time.Second); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-second.C:
			done := w.done.Load()
			log.Printf("%d jobs are done, %d wait for the API", done, w.calls.Stats().Waiting)
			if int(done) >= jobs {
				end()
			}
		}
	}
}

// shutdown gives back what was leased, so that the other workers have it at once.
func (w *worker) shutdown(ctx context.Context) error {
	return errors.Join(w.calls.Shutdown(ctx), w.customers.Shutdown(ctx))
}
