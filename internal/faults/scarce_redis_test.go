package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// The same on Redis, where time is what it is: nobody starves, and the bound holds.
func TestABurstSmallerThanTheFleetStarvesNobodyOnRedis(t *testing.T) {
	t.Parallel()
	// Given sixteen limiters on a burst of two,
	const processes, each = 16, 60
	limit := hybrid.PerSecond(300).WithBurst(2)
	f := NewFleet(t, Options{
		Size: processes, Addr: redistest.Start(t).Addr,
		Config: hybrid.Config{Limits: []hybrid.Limit{limit}, CallTimeout: 10 * time.Second, Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny, TTL: time.Second}},
	})
	// when all of them ask for twice their share until they have admitted a good number,
	var stopped atomic.Bool
	var wg sync.WaitGroup
	for _, l := range f.Limiters {
		wg.Go(func() {
			for gap := processes / (2 * limit.Rate()) * float64(time.Second); !stopped.Load(); {
				time.Sleep(time.Duration(rand.ExpFloat64() * gap)) // the load
				f.Ask("k", func() bool { return l.Allow("k") })
			}
		})
	}
	testkit.Eventually(t, fmt.Sprintf("%d tokens", processes*each), func() bool { return f.Stats().Admitted >= processes*each })
	stopped.Store(true)
	wg.Wait()
	took := f.Now()
	// then everybody has a good part of an equal share,
	shares := make([]float64, processes)
	sum := 0.0
	for i, l := range f.Limiters {
		shares[i] = float64(l.Stats().Admitted)
		sum += shares[i]
	}
	worst := slices.Min(shares) / sum * processes
	t.Logf("%.0f admitted in %v, %.2f of the rate; Jain %.4f, the worst has %.2f of its share; %d calls", sum, took, sum/limit.Rate()/took.Seconds(), testkit.Jain(shares), worst, f.Stats().Calls)
	if worst < 0.4 {
		t.Errorf("shares of %v", shares)
	}
	// and the bound holds over all windows.
	f.CheckBound("k", limit, 0)
	f.CheckConserved()
}
