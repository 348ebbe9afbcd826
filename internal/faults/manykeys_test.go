package faults

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// manyKeys is the number of keys that a process uses before an outage, and of the new ones during
// it.
var manyKeys = testkit.PlainOrRace(10_000, 2_000)

// crowdOfCallers is the number of goroutines that use the keys at one time. In an outage one
// goroutine asks alone, so that the logged time of a request is its own.
const crowdOfCallers = 64

// waits is a context that counts waits: only a request that enters a wait calls Done.
type waits struct {
	context.Context
	entered atomic.Int64
}

func (w *waits) Done() <-chan struct{} {
	w.entered.Add(1)
	return w.Context.Done()
}

// asked counts the decisions of one request for each of some keys.
type asked struct {
	admitted, fallback int
	took               []time.Duration // ascending
}

func (a asked) String() string {
	n := len(a.took)
	return fmt.Sprintf("%d admitted, %d decided by the fallback, in %v (half), %v (999 of 1000), %v (all)",
		a.admitted, a.fallback, a.took[n/2], a.took[n-1-n/1000], a.took[n-1])
}

// askEach asks l for a token of each of manyKeys keys, one after another.
func askEach(ctx context.Context, l *hybrid.Limiter, name string) (all asked) {
	for i := range manyKeys {
		from := time.Now()
		r, err := l.Take(ctx, fmt.Sprint(name, i+1), 1)
		all.took = append(all.took, time.Since(from))
		if err == nil && r.OK {
			all.admitted++
		}
		if err == nil && r.Source == hybrid.SourceFallback {
			all.fallback++
		}
	}
	slices.Sort(all.took)
	return all
}

// useManyKeys returns when the store has answered l for each of manyKeys keys. Requests that the
// fallback decided, on a machine that stalls, are repeated.
func useManyKeys(t *testing.T, l *hybrid.Limiter, name string) {
	t.Helper()
	var left []string
	for i := range manyKeys {
		left = append(left, fmt.Sprint(name, i+1))
	}
	var mu sync.Mutex
	pass := func() (served bool) {
		var wg sync.WaitGroup
		var again []string
		for part := range slices.Chunk(left, 1+len(left)/crowdOfCallers) {
			wg.Go(func() {
				for _, k := range part {
					r, err := l.Take(t.Context(), k, 1)
					if err != nil || r.Source == hybrid.SourceFallback {
						mu.Lock()
						again = append(again, k)
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		served = len(again) < len(left)
		left = again
		return served
	}
	for len(left) > 0 {
		testkit.Eventually(t, "another key served by the store", pass)
	}
}

// ramp notes when calls go out after an outage.
type ramp struct {
	mu     sync.Mutex
	armed  bool
	backAt time.Time   // when the node first answered again
	calls  []time.Time // since then
}

// arm has the next answer begin the recovery.
func (r *ramp) arm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed, r.backAt, r.calls = true, time.Time{}, nil
}

func (r *ramp) call(*lease.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.backAt.IsZero() {
		r.calls = append(r.calls, time.Now())
	}
}

func (r *ramp) answer(c *lease.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.armed && r.backAt.IsZero() && !protocol.NodeFailed(c.Err) {
		r.backAt = time.Now()
	}
}

// check checks that no more calls went out within each number of Targets of the recovery than a
// process may make. The limiter hears of the recovery after the tap, so it may make fewer.
func (r *ramp) check(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	in := make([]int, 10)
	for i, at := range r.calls {
		targets := float64(at.Sub(r.backAt)) / float64(target)
		if targets < float64(len(in)) {
			in[int(targets)]++
			allowed := 2 + 100*(math.Exp2(targets)-1)
			testkit.Check(t, float64(i+1) <= allowed, "%d calls within %.2f Targets of the recovery, %.0f are allowed",
				i+1, targets, allowed)
		}
	}
	t.Logf("calls in each Target after the recovery: %v", in)
}

// TestManyKeysGetThroughAnOutage is rows 1, 3, 8, 24 and 36 with ten thousand keys that a process
// has used and as many that it has never heard of. Once one call has failed, no request enters a
// wait, one call at a time goes out for all keys, and they come back in numbers that at most double
// with each Target.
func TestManyKeysGetThroughAnOutage(t *testing.T) {
	testkit.LongOnly(t)
	for _, row := range []string{"Row01 Redis is down", "Row03 a hung server", "Row08 a black hole",
		"Row24 a busy server", "Row24 a paused server"} {
		t.Run(row, func(t *testing.T) {
			c := injections[row]
			s := start(t, c.args...)
			manyKeysSuffer(s, c.how(s))
		})
	}
}

func manyKeysSuffer(s *site, o outage) {
	t := s.t
	// given a process that has used many keys
	cfg := ordinary(hybrid.Policy{Target: target, TTL: 2 * time.Second})
	cfg.CallTimeout = 5 * time.Second // or a busy machine takes the node for away while all come back
	f := s.fleet(1, cfg)
	l, tap, ramp := f.limiters[0], f.taps[0], new(ramp)
	tap.onCall, tap.onAnswer = ramp.call, ramp.answer
	useManyKeys(t, l, "seen")

	// when the store goes away, then the fallback decides in the end,
	o.inject()
	from := time.Now()
	testkit.Eventually(t, "the fallback", func() bool {
		r, err := l.Take(t.Context(), "unseen0", 1)
		return err == nil && r.Source == hybrid.SourceFallback
	})
	t.Logf("the first request that the fallback decided took %v", time.Since(from).Round(time.Millisecond))

	// and then no request enters a wait, whatever its key: it has its share.
	before := l.Stats()
	ctx := &waits{Context: t.Context()}
	for _, name := range []string{"seen", "unseen", "seen", "unseen"} {
		all := askEach(ctx, l, name)
		testkit.Check(t, all.admitted == manyKeys, "%s: %v", name, all)
		t.Logf("%s keys: %v", name, all)
	}
	testkit.Check(t, ctx.entered.Load() == 0, "%d requests entered a wait after the node was known to be away",
		ctx.entered.Load())
	// Of all calls at most one has neither been answered nor failed: one probe at a time. Each is
	// counted as a call before it is as an error.
	after := l.Stats()
	testkit.Check(t, after.Calls-before.Calls <= after.Errors-before.Errors+1,
		"%d calls, of which %d failed", after.Calls-before.Calls, after.Errors-before.Errors)
	t.Logf("%d calls for %d requests", after.Calls-before.Calls, 4*manyKeys)

	// When it is back, all keys come back, and not at once.
	ramp.arm()
	o.cure()
	recovered := time.Now()
	useManyKeys(t, l, "seen")
	useManyKeys(t, l, "unseen")
	t.Logf("the store had served every key again after %v", time.Since(recovered).Round(time.Millisecond))
	ramp.check(t)
}

// TestANodeOfAClusterThatHangsDelaysOnlyItsOwnKeys is row 3 for one of three masters. (In virtual
// time: TestANodeThatHangsDegradesOnlyItsOwnKeys in hybrid.)
func TestANodeOfAClusterThatHangsDelaysOnlyItsOwnKeys(t *testing.T) {
	testkit.LongOnly(t)
	cluster := redistest.StartCluster(t, 3, false, "--cluster-node-timeout", "600000")
	client := clusterClient(cluster.Masters[0])
	store := storeOn(t, client)
	cfg := ordinary(hybrid.Policy{TTL: 2 * time.Second})
	cfg.CallTimeout = 5 * time.Second
	f := newFleet(t, cfg, store)
	l := f.limiters[0]
	useManyKeys(t, l, "seen")
	// keys of the hung node, and of the others
	hung := store.NodeOf("seen1")
	m, err := client.MasterForKey(t.Context(), "yuzhi:{seen1}")
	testkit.NoErr(t, err)
	for _, master := range cluster.Masters {
		if master.Addr == m.Options().Addr {
			hang := hang(siteOf(t, master))
			hang.inject()
			defer hang.cure()
		}
	}
	testkit.Eventually(t, "the fallback", func() bool {
		r, err := l.Take(t.Context(), "seen1", 1)
		return err == nil && r.Source == hybrid.SourceFallback
	})
	ctx := &waits{Context: t.Context()}
	ill, well := 0, 0
	for _, name := range []string{"seen", "unseen"} {
		for i := 1; i <= manyKeys; i++ {
			key := fmt.Sprint(name, i)
			if store.NodeOf(key) == hung {
				r, err := l.Take(ctx, key, 1)
				testkit.Must(t, err == nil && r.OK, "%s of the hung node: %+v, %v", key, r, err)
				ill++
			} else if i%10 == 0 {
				testkit.Eventually(t, "service by another node", func() bool {
					r, err := l.Take(t.Context(), key, 1)
					return err == nil && r.OK && r.Source != hybrid.SourceFallback
				})
				well++
			}
		}
	}
	testkit.Check(t, ctx.entered.Load() == 0 && ill > 0 && well > 0,
		"%d of %d requests for the hung node's keys entered a wait", ctx.entered.Load(), ill)
}

// TestAFloodOfNewKeysWhileRedisHangs is row 3 with 40,000 requests a second for keys that are new,
// beside some that are in use, with Redis up for a minute and then hung for one.
func TestAFloodOfNewKeysWhileRedisHangs(t *testing.T) {
	testkit.LongOnly(t)
	s := start(t)
	s.client = func(o *redis.Options) {
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 500*time.Millisecond, 500*time.Millisecond,
			500*time.Millisecond
	}
	l := s.fleet(1, with(hybrid.PerMinute(100), hybrid.Policy{})).limiters[0]
	// flood asks for new keys, and returns how many there were and the most memory that was resident.
	flood := func(name string) (keys, most int64) {
		var wg sync.WaitGroup
		var n atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range crowdOfCallers {
			wg.Go(func() {
				for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; <-tick.C {
					for range 4000 / crowdOfCallers {
						l.Take(ctx, fmt.Sprint(name, n.Add(1)), 1)
					}
				}
			})
		}
		for ctx.Err() == nil {
			time.Sleep(time.Second)
			most = max(most, resident(t))
		}
		wg.Wait()
		return n.Load(), most
	}
	// given keys that are asked for all the time, and new ones while Redis is up
	honest := s.fleet(1, with(hybrid.PerSecond(1000), denying))
	load := honest.load(key, 500)
	keys, up := flood("up")
	t.Logf("up: %d new keys, %d MB resident", keys, up>>20)
	// when Redis hangs while as many new ones come
	o := hang(s)
	o.inject()
	keys, down := flood("down")
	t.Logf("hung: %d new keys, %d MB resident", keys, down>>20)
	o.cure()
	cured := time.Now()
	// then the others are served again at once,
	honest.awaitLeased(500)
	testkit.Eventually(t, "a new key served by Redis", func() bool {
		r, err := l.Take(t.Context(), "last", 1)
		return err == nil && r.Source != hybrid.SourceFallback
	})
	t.Logf("back %v after the cure", time.Since(cured).Round(time.Millisecond))
	load.stop()
	// and memory was no more than twice what it is with Redis up.
	testkit.Check(t, down <= 2*up, "%d MB resident while Redis hung, %d before", down>>20, up>>20)
}

// resident returns the resident memory of this process, in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("the resident memory is read from /proc")
	}
	var size, pages int64
	_, err = fmt.Sscan(string(text), &size, &pages)
	testkit.NoErr(t, err)
	return pages * int64(os.Getpagesize())
}
