package hybrid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// What a bucket has, and a request waits for, is granted within a stated time: docs/protocol.md, section
// 7.10.

// waitingFleet is processes whose callers wait for tokens of one key, one request after the other.
type waitingFleet struct {
	t      *world
	stop   func()
	mu     sync.Mutex
	got    int64                 // tokens
	last   time.Time             // when any request was served
	queued map[int][]queuedAsker // by process, in order
}

type queuedAsker struct {
	n     int64
	since time.Time
}

// waits starts processes that ask so with that number of callers each, a random n up to most.
func (t *world) waits(seed uint64, processes, callers int, most int64, weights bool, l ...hybrid.Limit) *waitingFleet {
	f := &waitingFleet{t: t, queued: map[int][]queuedAsker{}, last: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	rnd := rand.New(rand.NewPCG(seed, 11))
	var ended []func()
	for p := range processes {
		policy := denying
		if weights {
			policy.Weight = []int64{1, 1, 2, 8, 320}[rnd.IntN(5)]
		}
		own := t.start(by(policy, l...))
		for range callers {
			mine := rand.New(rand.NewPCG(rnd.Uint64(), 12))
			ended = append(ended, background(func() {
				for ctx.Err() == nil {
					time.Sleep(time.Duration(mine.IntN(1000)) * time.Microsecond)
					n := 1 + mine.Int64N(most)
					f.mu.Lock()
					f.queued[p] = append(f.queued[p], queuedAsker{n, time.Now()})
					f.mu.Unlock()
					err := own.Key("k").WaitN(ctx, n)
					f.mu.Lock()
					for i, q := range f.queued[p] {
						if q.n == n {
							f.queued[p] = append(f.queued[p][:i:i], f.queued[p][i+1:]...)
							break
						}
					}
					if err == nil {
						f.got, f.last = f.got+n, time.Now()
					}
					f.mu.Unlock()
				}
			}))
		}
	}
	f.stop = func() {
		cancel()
		for _, wait := range ended {
			wait()
		}
	}
	return f
}

// served returns the tokens that were granted so far.
func (f *waitingFleet) served() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got
}

func TestTheLastTokenIsGranted(t *testing.T) {
	for _, n := range []int64{30, 60, 119, 121, 200} {
		for _, quota := range limits(hybrid.Sliding(n, time.Hour), hybrid.Calendar(n, 24*time.Hour, 0),
			hybrid.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: n}) {
			for _, callers := range []int{1, 8} {
				bubbleOf(t, fmt.Sprint(quota, " ", callers), func(t *world) {
					// given two processes whose callers ask for all of a quota, beside a limit of a second
					f := t.waits(1, 2, callers, 1, false, hybrid.Sliding(50, time.Second), quota)
					// when it could have been used up
					time.Sleep(time.Duration(n/50+2) * time.Second)
					// then it has been
					equal(t, f.served(), n, "tokens granted")
					f.stop()
				})
			}
		}
	}
}

// A limit of an hour that is far from used up costs a limit of a second nothing.
func TestASlowLimitBesideAFastOneCostsNoRate(t *testing.T) {
	for _, burst := range []int64{1, 5, 10}[:testkit.ShortOrLong(t, 1, 3, "bursts")] {
		for _, slow := range limits(hybrid.Sliding(1000, time.Hour), hybrid.PerHour(1000),
			hybrid.Calendar(1000, 24*time.Hour, 0)) {
			for _, processes := range []int{3, 10} {
				bubbleOf(t, fmt.Sprint(burst, " ", slow, " ", processes), func(t *world) {
					f := t.waits(1, processes, 8, 1, false, hybrid.PerSecond(45).WithBurst(burst), slow)
					time.Sleep(15 * time.Second)
					n := f.served()
					check(t, n >= 45*15*98/100, "%d of %d tokens granted", n, 45*15)
					f.stop()
				})
			}
		}
	}
}

// A lease that was spent to the last token leaves none in the ledger when no request comes for a while, or
// with Shutdown.
func TestALeaseThatWasSpentIsReported(t *testing.T) {
	for _, how := range []string{"rest", "shutdown"} {
		bubbleOf(t, how, func(t *world) {
			l := t.process(hybrid.PerHour(1000))
			for range 20 {
				l.Allow("k")
				time.Sleep(time.Millisecond)
			}
			must(t, l.Stats().Held > 0, "nothing is leased: %+v", l.Stats())
			drain := l.Stats().Held
			for range drain {
				must(t, l.Key("k").TryAllow(), "denied")
			}
			if how == "shutdown" {
				noErr(t, l.Shutdown(t.Context()))
			} else {
				time.Sleep(ttl/2 + 110*time.Millisecond) // when a lease would still be counted for a while
			}
			st := t.state("k")
			check(t, st.Ledger == 0 && st.Spent == 20+drain, "%d in the ledger, %d of %d spent", st.Ledger, st.Spent, 20+drain)
		})
	}
}

// TestAvailableTokensAreGrantedSoon looks, in random fleets of all kinds of limits, for a request that the bucket
// could have served, but did not, while it served nobody at all for a second.
func TestAvailableTokensAreGrantedSoon(t *testing.T) {
	kinds := []func(r *rand.Rand) hybrid.Limit{
		func(r *rand.Rand) hybrid.Limit {
			return hybrid.PerSecond(1 + r.Int64N(200)).WithBurst(1 + r.Int64N(50))
		},
		func(r *rand.Rand) hybrid.Limit { return hybrid.Sliding(1+r.Int64N(100), time.Second) },
		func(r *rand.Rand) hybrid.Limit { return hybrid.Sliding(1+r.Int64N(300), time.Hour) },
		func(r *rand.Rand) hybrid.Limit { return hybrid.Calendar(1+r.Int64N(300), time.Minute, 0) },
		func(r *rand.Rand) hybrid.Limit { return hybrid.PerHour(1 + r.Int64N(1000)) },
	}
	seeds(t, 12, func(t *world, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 10))
		var l []hybrid.Limit
		for range 1 + r.IntN(3) {
			l = append(l, kinds[r.IntN(len(kinds))](r))
		}
		burst := l[0].Capacity()
		for _, own := range l {
			burst = min(burst, own.Capacity())
		}
		most := []int64{1, 1, min(3, burst), burst}[r.IntN(4)]
		processes := []int{2, 2, 3, 10, 50}[r.IntN(5)]
		f := t.waits(seed, processes, 1+r.IntN(4), most, r.IntN(2) == 0, l...)
		defer f.stop()
		f.looks(20*time.Second, fmt.Sprintf("%d processes, n up to %d, %v", processes, most, l))
	})
}

// Tokens that come one in some seconds are granted soon, too, though the process that is to have the next one
// asks again only when that is there by what it was told.
func TestASlowTokenDoesNotLieIdle(t *testing.T) {
	for _, processes := range []int{2, 3, 10} {
		for seed := range uint64(4) {
			bubbleOf(t, fmt.Sprint(processes, " ", seed), func(t *world) {
				f := t.waits(seed, processes, 1+int(seed), 1, false, hybrid.PerHour(400))
				defer f.stop()
				f.looks(40*time.Second, fmt.Sprint(processes, " processes"))
			})
		}
	}
}

// looks looks for such a request, for as long as d.
func (f *waitingFleet) looks(d time.Duration, what string) {
	f.t.Helper()
	// Leases end and are given back within a T and a Target; 4 Targets and some round trips follow.
	const target, most = 100 * time.Millisecond, 1200 * time.Millisecond
	var since time.Time
	for begun := time.Now(); time.Since(begun) < d; time.Sleep(target) {
		st := f.t.state("k")
		left := st.Levels[0]
		for k := range st.Config.Limits {
			left = min(left, st.Levels[k])
		}
		f.mu.Lock()
		waits, last := false, f.last
		for _, q := range f.queued {
			waits = waits || len(q) > 0 && q[0].n <= left
		}
		f.mu.Unlock()
		switch {
		case !waits || !st.Exists:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > most && time.Since(last) > most:
			f.t.Fatalf("%s: %d tokens have been there for %v, and those in line are %v", what, left,
				time.Since(since), f.queued)
		}
	}
}
