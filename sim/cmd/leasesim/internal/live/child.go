package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/hook"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// childVariable carries a child's orders; a process that finds it set is a child.
const childVariable = "LEASESIM_LIVE_CHILD"

// The lines that a child writes when it can begin, and reads then.
const (
	readyLine = "ready\n"
	startLine = "start\n"
)

// orders are the parent's orders to one child.
type orders struct {
	Options Options
	Index   int
	Path    string // of its stamps file
}

// config returns the configuration that the child gives to hybrid.New.
func (o orders) config() hybrid.Config {
	cfg := o.Options.config()
	cfg.Logger = slog.New(slog.DiscardHandler) // the parent reports
	if len(o.Options.Weights) > 0 {
		cfg.Policy.Weight = o.Options.Weights[o.Index]
	}
	return cfg
}

// child is one process of the fleet.
type child struct {
	orders
	limit   lease.Limit
	file    *stamps.File // what was admitted
	denied  *stamps.File // what was not
	took    *latencies
	limiter *hybrid.Limiter
	key     *hybrid.Key

	ended  atomic.Bool  // the parent has ended the load
	askers atomic.Int64 // goroutines that ask
}

// Child runs the process as one of the fleet if it was started as one, and then exits; otherwise it
// returns at once. Call it first thing in main, and in the TestMain of a test that calls Run.
func Child() {
	text := os.Getenv(childVariable)
	if text == "" {
		return
	}
	// A terminal sends it to all; the parent says when to end. Windows ends a process that only ignores it.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	if err := runChild(text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "leasesim: process of the fleet:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runChild says that it is ready when it could start, begins when told to, and ends by itself with
// its latencies as the last word.
func runChild(text string, in io.Reader, out io.Writer) error {
	c := &child{took: newLatencies()}
	if err := json.Unmarshal([]byte(text), &c.orders); err != nil {
		return err
	}
	c.limit = c.Options.limit()
	var err error
	if c.file, err = stamps.Open(c.Path); err != nil {
		return err
	}
	if c.denied, err = stamps.Open(deniedPath(c.Path)); err != nil {
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
	// The parent has reached it: where this process is stopped meanwhile, it tries once more.
	if store.Ping(context.Background()) != nil {
		err = store.Ping(context.Background())
	}
	if err != nil {
		return err
	}
	cfg := c.config()
	if c.Options.Shape == ShapeAdversary {
		cfg.InstanceID = hook.BeforeReport(func(string) {
			for c.ask(c.key.TryAllow) { // spends all that is held
			}
		})
	}
	if c.limiter, err = hybrid.New(counting{store, c}, cfg); err != nil {
		return err
	}
	defer c.limiter.Close()
	c.key = c.limiter.Key(c.Options.Key)

	fmt.Fprint(out, readyLine)
	orders := bufio.NewReader(in)
	if line, err := orders.ReadString('\n'); err != nil || line != startLine {
		return fmt.Errorf("told %q instead of start: %w", line, err)
	}
	go func() {
		_, _ = orders.ReadByte() // until the parent closes it, or has gone
		c.ended.Store(true)
	}()
	if at := stamps.Now(); c.Index == 0 {
		for range c.Options.Forge {
			c.file.Append(at, at)
		}
	}
	if c.Options.Shape != ShapeReplay {
		c.offer()
	} else if err := c.play(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = c.limiter.Shutdown(ctx)
	if ctx.Err() != nil || errors.Is(err, hybrid.ErrUnavailable) {
		err = nil // Redis, or a busy machine, was slow to take the rest back; it expires there
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(c.took.told()) // the last word: what follows is the exit alone
}

// counting counts and times the round trips of a child, as it sees them.
type counting struct {
	lease.Store
	c *child
}

// Exchange implements lease.Store.
func (s counting) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	began := stopwatch()
	s.Store.Exchange(ctx, calls, func(group []*lease.Call) {
		s.c.file.RoundTrips().Add(1)
		if group[0].Err == nil {
			s.c.took.observe(roundTrips, stopwatch()-began)
		}
		done(group)
	})
}

// ask makes one request and records it. An admission counts only after it is in the file.
func (c *child) ask(verb func() bool) bool {
	before := stamps.Now()
	began := stopwatch()
	ok := verb()
	took := stopwatch() - began
	file := c.file // which says itself when it was too small
	if !ok {
		file = c.denied
	}
	file.Append(before, stamps.After())
	c.file.Offered().Add(1)
	c.took.observe(decisions, took)
	return ok
}
