//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// TestRow32AStarvedProcessServesEveryKeyAndDoesNotSpin: a process that has one CPU, and shares it
// with goroutines that never pause and a garbage collector that never rests, still serves every
// key, makes no more calls than an undisturbed one, is silent when it is idle, and ends when told
// to.
func TestRow32AStarvedProcessServesEveryKeyAndDoesNotSpin(t *testing.T) {
	t.Parallel()
	// Given a process with one CPU,
	f := newFamily(t)
	limit := hybrid.PerSecond(200).WithBurst(1000)
	p := f.child(orders{
		Role: "starved", Limit: limit, Offered: 2 * limit.Rate(),
		Policy:      hybrid.Policy{TTL: 2 * time.Second, StartEmpty: true, MaxBatch: 40},
		CallTimeout: 10 * time.Second,
	}, "GOMAXPROCS=1")
	// (a burst far above what a long stall lets pass, from which nothing is served at first: that
	// would even all out) when its keys are under load, which then ends, and it is told to shut down
	// under load,
	var busy starvedBusy
	p.hear("busy", &busy)
	var idle starvedIdle
	p.hear("idle", &idle)
	r := f.finish(p)[0]
	t.Logf("busy: %+v; idle: %+v; %+v", busy, idle, r)
	// then every key gets its share and none more than its limit,
	for k, n := range busy.Admitted {
		if n < enough {
			t.Errorf("key %d is starved, shares of %v", k, busy.Admitted)
		}
		if busy.ExceededBy[k] != 0 {
			t.Errorf("key %d exceeded its limit by %d", k, busy.ExceededBy[k])
		}
	}
	// it makes at most two calls in a Target and key,
	if bound := float64(len(busy.Admitted)) * (busy.Seconds*20 + 5); float64(busy.Calls) > bound {
		t.Errorf("%d calls in %.1f s, at most %.0f are due", busy.Calls, busy.Seconds, bound)
	}
	// it has its scheduler, its connections and the batches under way, and no pile of goroutines,
	if busy.Goroutines > 30 {
		t.Errorf("%d goroutines beside those of the load", busy.Goroutines)
	}
	// it does nothing where there is nothing to do,
	if idle.Calls != 0 || idle.CPUSeconds > 0.05*idle.Seconds {
		t.Errorf("idle for %.2f s it made %d calls and used %.3f s of CPU", idle.Seconds, idle.Calls,
			idle.CPUSeconds)
	}
	// and it leaves nothing behind.
	if r.Error != "" || r.Stats.Held != 0 {
		t.Errorf("after Shutdown: %+v", r)
	}
}
