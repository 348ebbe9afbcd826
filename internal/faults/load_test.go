package faults

import (
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// pace is how often a goroutine of load looks whether requests are due, at most.
const pace = 2 * time.Millisecond

// Load is goroutines that ask a fleet until they are told to stop.
type Load struct {
	once sync.Once
	stop chan struct{}
	wg   sync.WaitGroup
}

// Stop ends the load and returns when its last request was decided. It may be called more than once.
func (l *Load) Stop() {
	l.once.Do(func() { close(l.stop) })
	l.wg.Wait()
}

// Load calls Allow(key) on every limiter, each `rate` times a second on a goroutine of its own, until Stop or the end of
// the test. A machine too slow for that asks less often.
func (f *Fleet) Load(key string, rate int) *Load {
	load := &Load{stop: make(chan struct{})}
	for _, l := range f.Limiters {
		f.drive(load, key, l, rate)
	}
	f.t.Cleanup(load.Stop)
	return load
}

// LoadOn is Load on limiter i alone.
func (f *Fleet) LoadOn(i int, key string, rate int) *Load {
	load := &Load{stop: make(chan struct{})}
	f.drive(load, key, f.Limiters[i], rate)
	f.t.Cleanup(load.Stop)
	return load
}

func (f *Fleet) drive(load *Load, key string, l *hybrid.Limiter, rate int) {
	r := f.record(key)
	load.wg.Go(func() {
		k := l.Key(key)
		began, asked := f.Now(), 0
		for {
			select {
			case <-load.stop:
				return
			default:
			}
			due := int(float64(rate) * (f.Now() - began).Seconds())
			// After a stall it makes up for half a second and no more.
			asked = max(asked, due-max(1, rate/2))
			for ; asked < due; asked++ {
				f.ask(r, k.Allow)
			}
			time.Sleep(max(pace, time.Second/time.Duration(rate))) // the pace of load
		}
	})
}

// Ask takes the one decision that allow makes on key and puts it on record.
func (f *Fleet) Ask(key string, allow func() bool) bool { return f.ask(f.record(key), allow) }

func (f *Fleet) ask(r *record, allow func() bool) bool {
	before := f.Now()
	ok := allow()
	r.add(decision{before: before, after: f.Now(), ok: ok})
	return ok
}
