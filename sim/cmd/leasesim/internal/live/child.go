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
	"github.com/yuzhi-go/yuzhi/sim"
)

// childVariable is an environment variable that marks a process as a child.
const childVariable = "LEASESIM_LIVE_CHILD"

// A child writes readyLine before its load, and then reads startLine: the start of the load in Unix
// nanoseconds.
const (
	readyLine = "ready\n"
	startLine = "start %d\n"
)

// orders is the first line of a child's input.
type orders struct {
	Options
	Index int
	Path  string             // path of the child's stamps file
	Trace []sim.TraceRequest // the requests of the child in a recorded load
}

func (o orders) config() hybrid.Config {
	cfg := o.Options.config()
	cfg.Logger = slog.New(slog.DiscardHandler) // the report has the results
	cfg.Policy.Weight = o.weights()[o.Index]
	return cfg
}

type child struct {
	orders
	file    *stamps.File // records of the requests
	took    *latencies
	limiter *hybrid.Limiter

	ended  chan struct{} // closed when the parent ends the load
	active atomic.Int64  // number of goroutines that make requests
	tried  atomic.Int64  // number of requests of an adversary
}

// Child makes the requests of a child and exits, if Run has started this process as a child. Otherwise Child
// returns at once. Call Child first in main, and in the TestMain of a test that calls Run.
func Child() {
	if os.Getenv(childVariable) == "" {
		return
	}
	// The parent ends a child, even after Ctrl-C. Windows would end a process that uses signal.Ignore
	// instead.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	if err := runChild(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "leasesim: process of the fleet:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runChild reports that the child is ready, makes the requests from the start time on, and writes its
// latencies at the end.
func runChild(in io.Reader, out io.Writer) error {
	c := &child{took: newLatencies(), ended: make(chan struct{})}
	parent := bufio.NewReader(in)
	text, err := parent.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &c.orders)
	}
	if err != nil {
		return err
	}
	if c.Trace != nil {
		c.Scenario.Workload.Trace = &sim.Trace{Requests: c.Trace}
	}
	if c.file, err = stamps.Open(c.Path); err != nil {
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
	cfg := c.config()
	adversary := c.Scenario.Workload.Kind == sim.Adversary
	if adversary {
		cfg.InstanceID = hook.BeforeReport(func(string) {
			for c.try() { // spend all held tokens
			}
		})
	}
	if c.limiter, err = hybrid.New(counting{store, c}, cfg); err != nil {
		return err
	}
	defer c.limiter.Close()

	fmt.Fprint(out, readyLine)
	var at int64
	if _, err := fmt.Fscanf(parent, startLine, &at); err != nil {
		return fmt.Errorf("cannot read the start time: %w", err)
	}
	go func() {
		_, _ = parent.ReadByte() // returns when the parent closes the pipe or ends
		close(c.ended)
	}()
	if began := time.Unix(0, at); !adversary {
		err = c.play(began)
	} else if c.sleep(time.Until(began)) {
		c.attack(began)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = c.limiter.Shutdown(ctx)
	if ctx.Err() != nil || errors.Is(err, hybrid.ErrUnavailable) {
		err = nil // the server does not answer: the tokens expire
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(c.took.snapshots()) // the last output
}

// counting is a Store that counts and times a child's round trips.
type counting struct {
	lease.Store
	c *child
}

// Exchange implements lease.Store.
func (s counting) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	began := stamps.Now() // the clocks of package time have steps on Windows
	s.Store.Exchange(ctx, calls, func(group []*lease.Call) {
		s.c.file.RoundTrips().Add(1)
		if group[0].Err == nil {
			s.c.took.observe(roundTrips, time.Duration(stamps.Now()-began))
		}
		done(group)
	})
}
