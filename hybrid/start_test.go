package hybrid_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// TestAFleetThatStartsOnAFullBucketLosesLittle: the first leases take the whole burst, and while the bucket counts
// them as held it cannot refill, so holders report what they have spent after one Target.
func TestAFleetThatStartsOnAFullBucketLosesLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// given four processes on one full bucket,
		store := lease.NewMemoryStore(nil)
		start := time.Now()
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			l, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(50000).WithBurst(10000)}})
			noErr(t, err)
			defer l.Close()
			// when each offers half the rate for ten seconds,
			wg.Go(func() {
				for ms := range 10000 {
					for range 25 {
						if l.Allow("k") {
							admitted.Add(1)
						}
					}
					time.Sleep(time.Until(start.Add(time.Duration(ms+1) * time.Millisecond)))
				}
			})
		}
		wg.Wait()
		// then they are admitted what one bucket gives, but for the last lease.
		share := float64(admitted.Load()) / (10000 + 50000*10)
		check(t, share >= 0.9875 && share <= 1,
			"admitted %d of 510000, %.2f %%", admitted.Load(), 100*share)
	})
}
