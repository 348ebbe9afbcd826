package faults

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

func TestRow07PrefetchingHidesASlowNetwork(t *testing.T) {
	for name, trip := range map[string]func() time.Duration{
		"50 ms":        always(50 * time.Millisecond),
		"150 ms":       always(150 * time.Millisecond),
		"500 ms":       always(500 * time.Millisecond),
		"50 to 500 ms": func() time.Duration { return 50*time.Millisecond + rand.N(450*time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// given three processes that are asked for half of the rate, over a network that is slow, and a burst that
				// covers its round trips
				slow := hybrid.PerSecond(1000).WithBurst(4000)
				w := newWire(trip)
				f := NewFleetOn(t, hybrid.Config{Limits: []hybrid.Limit{slow}, Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny}}, w, w, w)
				load := f.Load("k", 167)
				// when they have learnt how slow it is
				time.Sleep(10 * time.Second)
				learnt := f.Now()
				time.Sleep(20 * time.Second)
				// then nobody is denied, and nobody waits
				calls, _ := w.most(time.Now().Add(-20*time.Second), time.Second)
				learning, then := f.Seen("k", 0, learnt), f.Seen("k", learnt, f.Now())
				t.Logf("the first 10 s: %+v; the next 20 s: %+v; at most %d calls/s", learning, then, calls)
				if then.Denied > 0 || then.Slowest > 0 {
					t.Errorf("%d of %d denied, slowest %v", then.Denied, then.Admitted+then.Denied, then.Slowest)
				}
				load.Stop()
				time.Sleep(5 * time.Second) // for the last reports
				f.CheckBound("k", slow, 0)
			})
		})
	}
}
