// Command regions has one limit for two regions. The buckets are in region a, and a round trip from region b
// takes 80 ms. Both regions together admit no more than the limit. Below the limit, only the first requests
// wait for a call, because a process leases tokens for half a second. Run regions in the folder examples,
// with a Redis. Both regions are in the same program, which delays their calls:
//
//	go run ./regions
//
// The following settings matter for a distant region:
//
//   - Burst: with a burst of 4 x rate x round trip (320), many requests in b wait for a call. With twice that
//     burst, only the first requests wait.
//   - Policy.Target: longer leases need fewer calls, and a burst of 4 x rate x Target (2000).
//   - CallTimeout: a timeout below the slowest round trip would make calls fail.
//   - Fallback: with FallbackDeny, a loss of the connection stops b when its leases end. With
//     FallbackLocalShare, the default, b would admit its share of the rate, which a may admit too.
//   - Above the limit, Allow waits for a call when the process has no tokens. TryAllow never waits.
//
// The simulator plans the settings for scenario.yaml, and shows how long requests wait with a burst of 320:
//
//	go run -C .. ./sim/cmd/leasesim plan -f examples/regions/scenario.yaml
//	go run -C .. ./sim/cmd/leasesim run -f examples/regions/scenario.yaml --set 'limits=[1000/s burst 320]'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

const (
	rate, burst = 1000, 2000 // rate per second and burst of both regions together
	length      = 4 * time.Second
	clients     = 100 // number of clients in each region
)

// far is a store with an additional round trip.
type far struct {
	lease.Store
	roundTrip time.Duration
}

func (f far) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	time.Sleep(f.roundTrip / 2)
	f.Store.Exchange(ctx, calls, func(answered []*lease.Call) {
		time.Sleep(f.roundTrip / 2)
		done(answered)
	})
}

// region is one process and its decisions.
type region struct {
	name     string
	limiter  *hybrid.Limiter
	start    time.Time
	mu       sync.Mutex
	asked    int
	admitted []time.Time
	waited   int           // decisions that took a millisecond or more
	last     time.Duration // time from the start to the last waiting decision
	longest  time.Duration // longest wait of a decision
}

// ask makes each client send a request every interval until ctx ends.
func (r *region) ask(ctx context.Context, interval time.Duration) {
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				begin := time.Now()
				ok := r.limiter.Allow("all")
				r.note(ok, begin, time.Now())
				time.Sleep(time.Until(begin.Add(interval)))
			}
		})
		time.Sleep(interval / clients)
	}
	all.Wait()
}

func (r *region) note(ok bool, begin, end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if ok {
		r.admitted = append(r.admitted, end)
	}
	if took := end.Sub(begin); took >= time.Millisecond {
		r.waited, r.last, r.longest = r.waited+1, end.Sub(r.start), max(r.longest, took)
	}
}

// run makes two regions together send load times as many requests as the limit admits.
func run(ctx context.Context, buckets lease.Store, load float64) (a, b *region, err error) {
	open := func(name string, roundTrip time.Duration) *region {
		limiter, failed := hybrid.New(&far{buckets, roundTrip}, hybrid.Config{
			Name:        fmt.Sprint("load-", load),
			Limits:      []hybrid.Limit{hybrid.PerSecond(rate).WithBurst(burst)},
			Policy:      hybrid.Policy{Target: 500 * time.Millisecond, Fallback: hybrid.FallbackDeny},
			CallTimeout: 500 * time.Millisecond,
		})
		err = errors.Join(err, failed)
		return &region{name: name, limiter: limiter, start: time.Now()}
	}
	if a, b = open("a", time.Millisecond), open("b", 80*time.Millisecond); err != nil {
		return nil, nil, err
	}
	asking, stop := context.WithTimeout(ctx, length)
	defer stop()
	interval := time.Duration(2 * clients * float64(time.Second) / (load * rate))
	var all sync.WaitGroup
	all.Go(func() { a.ask(asking, interval) })
	all.Go(func() { b.ask(asking, interval) })
	all.Wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return a, b, errors.Join(a.limiter.Shutdown(ending), b.limiter.Shutdown(ending))
}

// needed returns the smallest burst with which one central bucket would admit requests at these times.
func needed(times []time.Time) (most float64) {
	slices.SortFunc(times, time.Time.Compare)
	level, before := 0.0, time.Time{}
	for _, at := range times {
		level = max(0, level-rate*at.Sub(before).Seconds()) + 1
		most, before = max(most, level), at
	}
	return most
}

func main() {
	url := flag.String("redis", "redis://localhost:6379?dial_timeout=500ms&read_timeout=500ms", "URL of Redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client := redis.NewClient(must(redis.ParseURL(*url)))
	buckets := must(redisbucket.New(client, redisbucket.Config{Prefix: "regions-example:"}))
	log.Print("ping: ", buckets.Ping(ctx)) // Without a ping, the first requests may be denied.
	for _, load := range []float64{0.9, 2} {
		a, b, err := run(ctx, buckets, load)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("requests for %v times the limit, for %v\n", load, length)
		for _, r := range []*region{a, b} {
			fmt.Printf("  %s: %d of %d admitted, %d round trips; %d waited up to %v, the last after %v\n",
				r.name, len(r.admitted), r.asked, r.limiter.Stats().RoundTrips, r.waited,
				r.longest.Round(time.Millisecond), r.last.Round(time.Millisecond))
		}
		needs := needed(slices.Concat(a.admitted, b.admitted))
		fmt.Printf("  one central bucket needs a burst of %.0f for it, of %d\n", needs, burst)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
