package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim/stamps"
)

// childVariable carries a child's orders; a process that finds it set is a child.
const childVariable = "LEASESIM_LIVE_CHILD"

// orders are what the parent tells one child.
type orders struct {
	Options Options
	Index   int
	Path    string // of its stamps file
	Trips   string // of the one whose histogram is of round trips
}

// child is one process of the fleet.
type child struct {
	orders
	file    *stamps.File
	trips   *stamps.File
	stamper *stamps.Stamper
	limiter *hybrid.Limiter
	key     *hybrid.Key

	askers atomic.Int64 // goroutines that ask
}

// Child runs the process as one of the fleet if it was started as one, and then exits; otherwise it returns
// at once. Call it first thing in main, and in the TestMain of a test that calls Run.
func Child() {
	text := os.Getenv(childVariable)
	if text == "" {
		return
	}
	if err := runChild(text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "leasesim: process of the fleet:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runChild says "ready" when it could start, starts when told to, and ends by itself.
func runChild(text string, in io.Reader, out io.Writer) error {
	c := new(child)
	if err := json.Unmarshal([]byte(text), &c.orders); err != nil {
		return err
	}
	var err error
	if c.file, err = stamps.Open(c.Path); err != nil {
		return err
	}
	if c.trips, err = stamps.Open(c.Trips); err != nil {
		return err
	}
	if c.stamper, err = stamps.NewStamper(); err != nil {
		return err
	}
	rdb, err := newClient(c.Options.Redis)
	if err != nil {
		return err
	}
	defer rdb.Close()
	store, err := redisbucket.New(rdb, redisbucket.Config{})
	if err != nil {
		return err
	}
	if err := store.Ping(context.Background()); err != nil {
		return err
	}
	cfg := c.Options.config()
	if c.Options.Shape == ShapeAdversary {
		cfg.Events.BeforeReport = func(string) { c.drain() }
	}
	if c.limiter, err = hybrid.New(timed{store, c.trips.Observe}, cfg); err != nil {
		return err
	}
	defer c.limiter.Close()
	c.key = c.limiter.Key(c.Options.Key)

	fmt.Fprintln(out, "ready")
	if line, err := bufio.NewReader(in).ReadString('\n'); err != nil || strings.TrimSpace(line) != "start" {
		return fmt.Errorf("told %q instead of start: %w", line, err)
	}
	c.forge()
	stopCounting := c.countRoundTrips()
	c.offer()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = c.limiter.Shutdown(ctx)
	stopCounting()
	if ctx.Err() != nil || errors.Is(err, hybrid.ErrUnavailable) {
		return nil // Redis, or a busy machine, was slow to take the rest back; it expires there
	}
	return err
}

// timed tells how long round trips take, as the process sees it.
type timed struct {
	lease.Store
	observe func(time.Duration)
}

// Exchange implements lease.Store.
func (t timed) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	began := time.Now()
	t.Store.Exchange(ctx, calls, func(group []*lease.Call) {
		if group[0].Err == nil {
			t.observe(time.Since(began))
		}
		done(group)
	})
}

// ask makes one request and records it. An admission counts only after it is in the file.
func (c *child) ask(verb func() bool) bool {
	before := c.stamper.Before()
	ok := verb()
	after := c.stamper.After()
	if ok {
		// The file says itself when it was too small.
		_ = c.file.Append(before, after, 1)
	}
	c.file.AddOffered(1)
	c.file.Observe(max(0, time.Duration(after-before)-c.stamper.Slack()))
	return ok
}

// drain spends everything that is held.
func (c *child) drain() {
	for c.ask(c.key.TryAllow) {
	}
}

// forge invents admissions, all at one instant.
func (c *child) forge() {
	if c.Index != 0 {
		return
	}
	at := c.stamper.After()
	for range c.Options.Forge {
		_ = c.file.Append(at, at, 1)
	}
}

// countRoundTrips keeps the file's count up to date, so that a killed process leaves it too.
func (c *child) countRoundTrips() (stop func()) {
	var counted int64
	update := func() {
		now := c.limiter.Stats().RoundTrips
		c.file.AddRoundTrips(now - counted)
		counted = now
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				update()
			case <-done:
				update()
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
