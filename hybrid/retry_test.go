package hybrid_test

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
)

// lateTimers is a clock whose timers fire late, as on a machine that has much else to do.
type lateTimers struct {
	clock.Clock
	late time.Duration
}

func (c lateTimers) AfterFunc(d time.Duration, f func()) clock.Timer {
	return lateTimer{c.Clock.AfterFunc(d+c.late, f), c.late}
}

type lateTimer struct {
	clock.Timer
	late time.Duration
}

func (t lateTimer) Reset(d time.Duration) bool { return t.Timer.Reset(d + t.late) }

// A denied caller that sleeps RetryAfter and asks again gets the next token, whether timers fire in
// time or not: the denial ends by the clock. So one process alone is never denied twice in a row, and
// of several that want the same token each is denied once for it.
func TestSleepingRetryAfterCostsOneDenialForAToken(t *testing.T) {
	for _, limit := range []hybrid.Limit{
		hybrid.PerSecond(10).WithBurst(1), hybrid.PerSecond(100).WithBurst(3), hybrid.PerMinute(7).WithBurst(2),
	} {
		for _, late := range []time.Duration{0, 9 * time.Millisecond} {
			for _, rtt := range []time.Duration{0, 4 * time.Millisecond} {
				for _, processes := range []int{1, 2, 5} {
					name := fmt.Sprintf("%v, %d processes, timers %v late, round trip %v", limit, processes, late, rtt)
					bubbleOf(t, name, func(t *world) {
						t.every(verdict{delay: rtt})
						sleepers(t, processes, late, limit)
					})
				}
			}
		}
	}
}

// sleepers runs processes that ask for tokens one by one, and sleep RetryAfter in between.
func sleepers(t *world, processes int, late time.Duration, limit hybrid.Limit) {
	span := 200 * limit.Per / time.Duration(limit.Tokens)
	var admitted, denied atomic.Int64
	together(processes, func(int) {
		cfg := of(limit)
		cfg.Clock = lateTimers{clock.System(), late}
		cfg.Logger = slog.New(slog.DiscardHandler)
		l, err := hybrid.New(t, cfg)
		noErr(t, err)
		defer l.Close()
		yes, no, inARow := patient(t, l, "k", limit, span)
		admitted.Add(yes)
		denied.Add(no)
		check(t, inARow <= 1 || processes > 1, "denied %d times for a token", inARow)
	})()
	most := limit.Capacity() + 200
	check(t, admitted.Load() >= most*95/100, "%d of %d were admitted", admitted.Load(), most)
	check(t, denied.Load() <= int64(processes)*(admitted.Load()+1),
		"%d denials for %d tokens", denied.Load(), admitted.Load())
}
