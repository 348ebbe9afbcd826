//go:build unix

package faults

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
)

// loadRole is the role of a process that offers a steady load until it is told to finish. What it
// could not offer in time, because it was stopped or got no CPU, it offers as soon as it can.
func loadRole(c *child) error {
	l, err := hybrid.New(c.store, c.config())
	if err != nil {
		return err
	}
	defer l.Close()
	if err := c.say("ready", nil); err != nil {
		return err
	}
	if err := c.hear("start"); err != nil {
		return err
	}
	finished := make(chan error, 1)
	go func() { finished <- c.hear("finish") }()
	k := l.Key("k")
	began, offered := time.Now(), 0
	for pace := time.NewTicker(time.Millisecond); ; {
		for due := int(time.Since(began).Seconds() * c.Offered); offered < due; offered++ {
			c.record.stamp(k.Allow)
		}
		select {
		case err := <-finished:
			if err != nil {
				return err
			}
			return c.leave(l)
		case <-pace.C:
		}
	}
}

// leave shuts the Limiter down and reports.
func (c *child) leave(l *hybrid.Limiter) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := report{}
	if err := l.Shutdown(ctx); err != nil {
		r.Error = err.Error()
	}
	r.Stats, r.MostHeld = l.Stats(), c.store.mostHeld()
	return c.say("report", r)
}

// holding is what a holder says: how much it holds, when the bucket granted it, and what became of
// other tokens.
type holding struct {
	Held, Admitted, Burnt int64
	GrantedAt             int64 // server time, us
}

// holdRole is the role of a process that leases tokens, spends one, and keeps the others until it
// is told to spend. None of its timers run before it has done so: that is how a process finds
// itself which was stopped, and whose first thread to run again is one that takes tokens.
func holdRole(c *child) error {
	gate := newGatedClock()
	cfg := c.config()
	cfg.Clock = gate
	l, err := hybrid.New(c.store, cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	k := l.Key("k")
	// a grant that came too late is burnt, and there is another
	for l.Stats().Held == 0 || !schedulerRests() {
		if l.Stats().Held == 0 {
			c.record.stamp(k.Allow)
		}
		time.Sleep(time.Millisecond) // the pace of polling
	}
	st := l.Stats()
	h := holding{Held: st.Held, Admitted: st.Admitted, Burnt: st.Burnt,
		GrantedAt: c.store.lastGrant().ServerTime}
	if err := c.say("holding", h); err != nil {
		return err
	}
	if err := c.hear("spend"); err != nil {
		return err
	}
	spent := int64(0)
	for c.record.stamp(k.TryAllow) {
		spent++
	}
	gate.open()
	if err := c.say("spent", spent); err != nil {
		return err
	}
	if err := c.hear("finish"); err != nil {
		return err
	}
	return c.leave(l)
}

// schedulerRests reports whether the Limiter's scheduler waits to be woken, and nothing of it runs
// that could do so.
func schedulerRests() bool {
	all := running()
	return len(all) == 1 && strings.Contains(all[0], "[select") && strings.Contains(all[0],
		"(*scheduler).run")
}

// gatedClock is the system's clock, but its timers run only once it is open.
type gatedClock struct {
	clock.Clock
	closed chan struct{}
	once   sync.Once
}

func newGatedClock() *gatedClock {
	return &gatedClock{Clock: clock.System(), closed: make(chan struct{})}
}

// AfterFunc implements clock.Clock.
func (g *gatedClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	return g.Clock.AfterFunc(d, func() {
		<-g.closed
		f()
	})
}

func (g *gatedClock) open() { g.once.Do(func() { close(g.closed) }) }
