package faults

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// manyKeys is the number of keys that a process uses before an outage, and of the new ones during it.
var manyKeys = testkit.PlainOrRace(10_000, 2_000)

// waits is a context that counts waits: only a request that enters a wait calls Done.
type waits struct {
	context.Context
	entered atomic.Int64
}

func (w *waits) Done() <-chan struct{} {
	w.entered.Add(1)
	return w.Context.Done()
}

// useManyKeys returns when the store has answered l for each of manyKeys keys. Requests that the
// fallback decided are repeated.
func useManyKeys(t *testing.T, l *hybrid.Limiter, name string) {
	t.Helper()
	var left []string
	for i := range manyKeys {
		left = append(left, fmt.Sprint(name, i+1))
	}
	testkit.Eventually(t, "service by the store for every key", func() bool {
		var mu sync.Mutex
		var wg sync.WaitGroup
		var again []string
		for part := range slices.Chunk(left, 1+len(left)/64) {
			wg.Go(func() {
				for _, k := range part {
					if r, err := l.Take(t.Context(), k, 1); err != nil || r.Source == hybrid.SourceFallback {
						mu.Lock()
						again = append(again, k)
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		left = again
		return len(left) == 0
	})
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

// TestManyKeysGetThroughAnOutage is rows 3 and 36 with ten thousand keys that a process has used and as
// many that it has never heard of. Once one call has failed, no request enters a wait, one call at a time
// goes out for all keys, and they come back in numbers that at most double with each Target.
func TestManyKeysGetThroughAnOutage(t *testing.T) {
	testkit.LongOnly(t)
	// given a process that has used many keys
	s := start(t)
	cfg := ordinary(hybrid.Policy{Target: target, TTL: 2 * time.Second})
	cfg.CallTimeout = 5 * time.Second // or a busy machine takes the node for away while all come back
	f := s.fleet(1, cfg)
	l, tap, ramp := f.limiters[0], f.taps[0], new(ramp)
	tap.onCall, tap.onAnswer = ramp.call, ramp.answer
	useManyKeys(t, l, "seen")

	// when the store hangs, then the fallback decides in the end,
	s.Hang(t)
	from := time.Now()
	testkit.Eventually(t, "the fallback", func() bool {
		r, err := l.Take(t.Context(), "unseen0", 1)
		return err == nil && r.Source == hybrid.SourceFallback
	})
	t.Logf("the first request that the fallback decided took %v", time.Since(from).Round(time.Millisecond))

	// and then no request enters a wait, whatever its key: it has its share.
	before := l.Stats()
	ctx := &waits{Context: t.Context()}
	var took []time.Duration
	for _, name := range []string{"seen", "unseen", "seen", "unseen"} {
		for i := range manyKeys {
			from := time.Now()
			r, err := l.Take(ctx, fmt.Sprint(name, i+1), 1)
			took = append(took, time.Since(from))
			testkit.Must(t, err == nil && r.OK, "%s%d: %+v, %v", name, i+1, r, err)
		}
	}
	entered := ctx.entered.Load()
	testkit.Check(t, entered == 0, "%d requests entered a wait after the node was known to be away", entered)
	// Of all calls at most one has neither been answered nor failed: one probe at a time. Each is
	// counted as a call before it is as an error.
	after := l.Stats()
	calls, failed := after.Calls-before.Calls, after.Errors-before.Errors
	testkit.Check(t, calls <= failed+1, "%d calls, of which %d failed", calls, failed)
	slices.Sort(took)
	n := len(took)
	t.Logf("%d calls for %d requests, in %v (half), %v (999 of 1000)", calls, n, took[n/2], took[n-1-n/1000])

	// When it is back, all keys come back, and not at once.
	ramp.arm()
	s.Resume(t)
	recovered := time.Now()
	useManyKeys(t, l, "seen")
	useManyKeys(t, l, "unseen")
	t.Logf("the store had served every key again after %v", time.Since(recovered).Round(time.Millisecond))
	ramp.check(t)
}
