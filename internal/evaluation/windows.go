package main

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/rival"
)

// volley is a number of requests, evenly spread over a duration that begins at a time.
type volley struct {
	at, over time.Duration
	requests int
}

// inStep returns bursts of requests around the ends of one-second windows, both for windows that begin with a
// second of the clock and for windows that begin with their first request. The third burst is for limiters
// that count a fraction of the previous window.
func inStep(cycles int) (all []volley) {
	const ms = time.Millisecond
	for i := range cycles {
		at := time.Duration(i) * 3 * time.Second
		all = append(all, volley{at, ms, 8}, volley{at + 900*ms, 80 * ms, 1600},
			volley{at + 1020*ms, 80 * ms, 1600}, volley{at + 1500*ms, 80 * ms, 1600})
	}
	return all
}

func windows(e *evaluation) {
	const instances = 8
	most := perSecond(1000, 1000)
	fmt.Printf(`## Excess in all windows

%d limiters with their own clients share a key with 1,000/s and a burst of 1,000. A clock is read before
and after each decision; an admission counts in the windows that contain both readings. A token bucket is
compared with burst + rate*w in any window w, and a limiter that counts per window with 1,000 in any
second. The last column compares all limiters with burst + rate*w. Loads: bursts around the ends of
seconds, and twice the limit all the time. Admitted is a percentage of the admissions of one exact bucket
for the same requests.

`, instances)
	safe := peer{name: ownSafe,
		open: yuzhi(hybrid.Policy{Fallback: hybrid.FallbackDeny, StrictExpiry: true})}
	var rows [][]string
	for _, p := range append([]peer{safe}, fleetwide...) {
		for _, load := range []struct {
			name    string
			begin   time.Duration // the load begins at a multiple of begin on the clock
			volleys []volley
		}{
			{"in step", time.Second, inStep(short(e, 2, 1))},
			{"steady", 1, []volley{{0, short(e, 5*time.Second, time.Second/2), short(e, 10_000, 1_000)}}},
		} {
			s := e.site()
			asks := make([]asker, instances)
			var connecting sync.WaitGroup
			for i := range asks {
				asks[i] = p.open(s, most, redis.Options{})
			}
			for range 20 { // open the connections
				for _, ask := range asks {
					connecting.Go(func() { _, _ = ask("another") })
				}
			}
			connecting.Wait()
			begin := time.Now().Truncate(load.begin).Add(load.begin)
			asked, admitted, failed := fire(asks, begin, load.volleys)
			s.close()

			central, err := rival.NewCentral([]lease.Limit{most.lease()})
			testkit.NoErr(e, err)
			exact := 0
			for _, at := range asked {
				if central.Take((at-asked[0])/1000, 1) {
					exact++
				}
			}
			bucket := audit.Of(most.lease(), 0)
			promise, text := bucket, "burst + rate*w"
			if p.kind == lease.KindSliding {
				promise, text = audit.Of(lease.Sliding(most.burst, most.window()), 0), "1,000 in any second"
			}
			beyond, err := audit.Worst(admitted, promise)
			testkit.NoErr(e, err)
			beyondBucket, err := audit.Worst(admitted, bucket)
			testkit.NoErr(e, err)
			testkit.Check(e, p.name != ownSafe || beyond.ExceededBy == 0, "%s, %s: %+v", p.name, load.name,
				beyond)
			share := number(100*float64(len(admitted))/float64(exact)) + " %"
			rows = append(rows, []string{p.name, load.name, share, fmt.Sprint(failed), text,
				fmt.Sprint(beyond.ExceededBy), fmt.Sprint(beyondBucket.ExceededBy)})
		}
	}
	e.table([]string{"limiter", "load", "admitted", "errors", "held to", "beyond it, worst window",
		"beyond burst + rate*w"}, rows)
}

// fire sends the requests of the volleys to the limiters in turn. The times of volleys count from begin.
// asked has the middle of each decision, and admitted the span of each admission.
func fire(asks []asker, begin time.Time, volleys []volley) (
	asked []int64, admitted []audit.Span, failed int,
) {
	var due []time.Duration
	for _, v := range volleys {
		for i := range v.requests {
			due = append(due, v.at+v.over*time.Duration(i)/time.Duration(v.requests))
		}
	}
	all := make([]struct {
		audit.Span
		failed bool
	}, len(due))
	var wg sync.WaitGroup
	for i := 0; i < len(due); time.Sleep(200 * time.Microsecond) {
		for spent := time.Since(begin); i < len(due) && due[i] <= spent; i++ {
			x, ask := &all[i], asks[i%len(asks)]
			wg.Go(func() {
				x.Before = stamps.Now()
				ok, err := ask("k")
				x.After = stamps.After()
				x.failed = err != nil
				if ok && err == nil {
					x.N = 1
				}
			})
		}
	}
	wg.Wait()
	for _, x := range all {
		asked = append(asked, x.Before+(x.After-x.Before)/2)
		switch {
		case x.failed:
			failed++
		case x.N > 0:
			admitted = append(admitted, x.Span)
		}
	}
	slices.SortFunc(asked, cmp.Compare)
	return asked, admitted, failed
}
