// Command worker does jobs that call a foreign API. The API allows all workers together 20 calls in any
// second. Run worker in the folder examples, any number of times in parallel, with a Redis. The API is a fake
// in the same program:
//
//	go run ./worker
//
// After an interrupt, worker finishes the calls in progress, and puts the other jobs back into the queue.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

func main() {
	url := flag.String("redis", "redis://localhost:6379?dial_timeout=500ms&read_timeout=500ms", "URL of Redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client := redis.NewClient(must(redis.ParseURL(*url)))
	buckets := must(redisbucket.New(client, redisbucket.Config{Prefix: "worker-example:"}))
	log.Print("ping: ", buckets.Ping(ctx)) // Without a ping, the first jobs may have to wait.
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	calls := must(hybrid.New(buckets, config))
	w := &worker{make(chan int, 200), api.URL, http.Client{Timeout: 20 * time.Second}, calls}
	for job := range cap(w.queue) {
		w.queue <- job
	}
	log.Print("shutdown: ", w.run(ctx, 8))
	log.Printf("%d jobs are left", len(w.queue))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// config limits all workers to 20 calls in any second. The burst is 1, because a limiter admits its burst in
// addition to the rate. The rate is below 20, because calls arrive at the API less evenly than workers send
// them. While Redis does not answer, no worker calls the API.
var config = hybrid.Config{
	Name:   "calls",
	Limits: []hybrid.Limit{hybrid.PerSecond(18).WithBurst(1)},
	Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny},
}

type worker struct {
	queue  chan int // a real service has a message broker
	api    string
	client http.Client
	calls  *hybrid.Limiter
}

// run executes jobs until ctx ends, at most parallel at a time. run then finishes the calls in progress, and
// gives back the leased tokens, so other workers can use the tokens at once.
func (w *worker) run(ctx context.Context, parallel int) error {
	var all sync.WaitGroup
	for range parallel {
		all.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case job := <-w.queue:
					if err := w.do(ctx, job); err != nil {
						log.Printf("job %d put back: %v", job, err)
						w.queue <- job
					}
				}
			}
		})
	}
	all.Wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return w.calls.Shutdown(ending)
}

// patience is the longest wait of a job for its token. Wait fails at once if the token would come later.
const patience = 5 * time.Second

// do waits for a token and calls the API. The end of ctx ends the wait, but not the call.
func (w *worker) do(ctx context.Context, job int) error {
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if err := w.calls.Wait(waiting, "all"); err != nil {
		return err
	}
	answer, err := w.client.Post(fmt.Sprintf("%s/jobs/%d", w.api, job), "", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		return errors.New(answer.Status)
	}
	log.Printf("job %d done", job)
	return nil
}
