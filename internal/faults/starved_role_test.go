//go:build unix

package faults

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

const (
	starvedKeys = 5
	// enough is how many tokens every key should get; when four times as many were admitted in all, a
	// key that has fewer is starved.
	enough = 200
	hogs   = 4
)

// starvedBusy is what a starved process says of the time in which it was under load.
type starvedBusy struct {
	Admitted   [starvedKeys]int64
	ExceededBy [starvedKeys]int64
	Calls      int64
	Seconds    float64
	Goroutines int // the most at any moment, beside those of the load and of the test
}

// starvedIdle is what it says of a while in which nobody asked for anything.
type starvedIdle struct {
	Calls               int64
	Seconds, CPUSeconds float64
}

// starvedRole is the role of a process that gets little CPU.
func starvedRole(c *child) error {
	l, err := hybrid.New(c.store, c.config())
	if err != nil {
		return err
	}
	defer l.Close()
	before := runtime.NumGoroutine()
	stopHogs := startHogs()
	var busy starvedBusy
	c.serveKeys(l, &busy)
	busy.Goroutines -= before + hogs + 1 + starvedKeys
	busy.Calls = l.Stats().Calls
	stopHogs()
	if err := c.say("busy", busy); err != nil {
		return err
	}

	for l.Stats().Held > 0 { // given back within a Target
		time.Sleep(time.Millisecond)
	}
	calls, cpu, began := l.Stats().Calls, cpuSeconds(), time.Now()
	time.Sleep(time.Second) // what is measured is a while of idleness
	idle := starvedIdle{Calls: l.Stats().Calls - calls, CPUSeconds: cpuSeconds() - cpu,
		Seconds: time.Since(began).Seconds()}
	if err := c.say("idle", idle); err != nil {
		return err
	}

	if err := c.hear("finish"); err != nil {
		return err
	}
	stopHogs = startHogs()
	defer stopHogs()
	for k := range starvedKeys {
		l.Allow(keyName(k))
	}
	return c.leave(l)
}

func keyName(k int) string { return fmt.Sprint("key-", k) }

// serveKeys offers every key the same load, each on a goroutine of its own, until enough was
// admitted of all.
func (c *child) serveKeys(l *hybrid.Limiter, busy *starvedBusy) {
	var admitted [starvedKeys]atomic.Int64
	done := func() bool {
		sum, least := int64(0), admitted[0].Load()
		for i := range admitted {
			n := admitted[i].Load()
			sum, least = sum+n, min(least, n)
		}
		return least >= enough || sum >= 4*enough*starvedKeys
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for i := range starvedKeys {
		wg.Go(func() {
			k := l.Key(keyName(i))
			var spans []audit.Span
			most := 0
			for offered := 0; !done(); {
				for due := int(time.Since(began).Seconds() * c.Offered); offered < due && !done(); offered++ {
					from := time.Since(began)
					if k.Allow() {
						admitted[i].Add(1)
						spans = append(spans, audit.Span{Before: int64(from), After: int64(time.Since(began)),
							N: 1})
					}
				}
				most = max(most, runtime.NumGoroutine())
				time.Sleep(time.Millisecond) // the pace of the load
			}
			w, err := audit.Worst(spans, audit.Bound{Tokens: c.Limit.Tokens, Per: c.Limit.Per,
				Burst: c.Limit.Capacity()})
			if err != nil {
				w.ExceededBy = -1
			}
			mu.Lock()
			defer mu.Unlock()
			busy.Admitted[i], busy.ExceededBy[i] = int64(len(spans)), w.ExceededBy
			busy.Goroutines = max(busy.Goroutines, most)
		})
	}
	wg.Wait()
	busy.Seconds = time.Since(began).Seconds()
}

// startHogs starts goroutines that never pause, and a collector that never rests over a heap that
// takes it a while.
func startHogs() (stop func()) {
	var stopped atomic.Bool
	var wg sync.WaitGroup
	for range hogs {
		wg.Go(func() {
			for sum := sha256.Sum256(nil); !stopped.Load(); {
				for range 1000 {
					sum = sha256.Sum256(sum[:])
				}
			}
		})
	}
	wg.Go(func() {
		type node struct{ next *node }
		var list *node
		for range 500_000 {
			list = &node{list}
		}
		for !stopped.Load() {
			runtime.GC()
		}
		runtime.KeepAlive(list)
	})
	return func() {
		stopped.Store(true)
		wg.Wait()
	}
}

// cpuSeconds is what this process has used so far.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
