// Command worker does jobs that call a foreign API, which allows 20 calls a second to all workers
// together. Run it in the folder examples, any number of times in parallel. The API is a fake in
// the same program:
//
//	go run ./worker                                       # the limit of this process alone
//	go run ./worker -redis redis://localhost:6379         # the limit of all workers
//
// After an interrupt it takes no more jobs, finishes the begun ones, puts back the waiting ones,
// and gives its leased tokens back to the other workers. worker.go is the worker.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

func main() {
	jobs := flag.Int("jobs", 200, "how many jobs there are")
	parallel := flag.Int("parallel", 8, "how many jobs are done at a time")
	store.Main("worker-example", func(ctx context.Context, buckets lease.Store) error {
		return run(ctx, buckets, *jobs, *parallel)
	})
}

// run does all jobs, or as many as possible until ctx ends.
func run(ctx context.Context, buckets lease.Store, jobs, parallel int) error {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	limiter := func(name string, limit hybrid.Limit) (*hybrid.Limiter, error) {
		return hybrid.New(buckets, hybrid.Config{Name: name, Limits: []hybrid.Limit{limit}})
	}
	calls, err1 := limiter("calls", hybrid.PerSecond(20))
	customers, err2 := limiter("customers", hybrid.PerSecond(5))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}

	queue := make(chan job, jobs)
	for i := range jobs {
		queue <- job{id: i, customer: string(rune('a' + i%10))}
	}
	w := newWorker(queue, api.URL, nil, calls, customers)
	working, end := context.WithCancel(ctx)
	defer end()
	go func() {
		for ; w.done.Load() < int64(jobs); time.Sleep(time.Second) {
			log.Printf("%d jobs are done, %d wait for the API", w.done.Load(), calls.Stats().Waiting)
		}
		end()
	}()
	w.run(working, parallel)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := w.shutdown(ending)
	log.Printf("%d jobs are done, %d are left", w.done.Load(), len(queue))
	return err
}
