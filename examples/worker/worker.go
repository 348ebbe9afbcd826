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

// job is one task for a customer.
type job struct {
	id       int
	customer string
}

// worker does jobs within two limits that all workers on the same store share: jobs a second of
// each customer, and calls of the API a second.
type worker struct {
	queue     chan job // yours is a message broker: to receive, and to put back
	api       string
	client    *http.Client // waits before each call, and after a 429 of the API
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

// run does up to parallel jobs at a time until ctx ends, and returns when all begun jobs are done.
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
	// Jobs that wait for their customer's turn have not begun, so the end of the worker ends their
	// wait. For code written for golang.org/x/time/rate, package xtime gives such a key its methods.
	if err := w.customers.Wait(ctx, j.customer); err != nil {
		w.putBack(ctx, j, err)
		return
	}
	if err := w.do(ctx, j); err != nil {
		w.customers.Refund(j.customer, 1) // the job did not happen
		w.putBack(ctx, j, err)
		return
	}
	w.done.Add(1)
}

const (
	doMax             = 20 * time.Second // for a begun job, also when the worker ends meanwhile
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

// putBack returns j to the queue. After a failure it pauses, or a worker without its API would fail
// in a loop.
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

// shutdown gives back the leased tokens, so that the other workers have them at once.
func (w *worker) shutdown(ctx context.Context) error {
	return errors.Join(w.calls.Shutdown(ctx), w.customers.Shutdown(ctx))
}
