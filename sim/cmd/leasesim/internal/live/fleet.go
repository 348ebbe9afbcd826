// Package live runs a fleet of real processes against one Redis and audits every admission.
//
// The parent (Run) executes its own binary again, once for each process. A child (Child) makes the requests
// of one process of a scenario with a hybrid.Limiter, the same requests as in the simulator. The child writes
// the time before and after each request to a file that it shares with the parent, and that survives a kill
// of the child. The parent finds the worst window, and replays all requests through a central limiter.
//
// FromScenario, Simulated and Compare compare a run with a simulation.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/view"
)

const (
	// grace is the time after the end of its load within which a process must end, even on a busy machine.
	grace = time.Minute
	// startDelay is the time between the parent's message to begin and the start of the load.
	startDelay = 100 * time.Millisecond
)

// Run starts the fleet, waits for its end, and audits all admissions. The end of ctx ends the load: the
// report covers the time before, and the error is the cause of ctx.
func Run(ctx context.Context, o Options) (Report, error) {
	o.Scenario = o.Scenario.Defaults()
	redis, err := connect(ctx, o.Redis)
	if err != nil {
		return Report{}, err
	}
	defer redis.stop()
	o.Redis = redis.addr
	dir, err := os.MkdirTemp("", "leasesim-")
	if err != nil {
		return Report{}, fmt.Errorf("leasesim: %w", err)
	}
	defer os.RemoveAll(dir)

	var fleet []*process
	asked := ctx
	ctx, kill := context.WithCancel(context.WithoutCancel(asked))
	defer func() {
		kill()
		for _, p := range fleet {
			<-p.exited
			_ = p.file.Close()
		}
	}()
	trace := o.Scenario.Workload.Trace
	for i := range o.weights() {
		its := orders{Options: o, Index: i, Path: filepath.Join(dir, fmt.Sprintf("stamps-%d", i))}
		for k := 0; trace != nil && k < len(trace.Requests); k++ {
			if q := trace.Requests[k]; q.Process%len(o.weights()) == i {
				its.Trace = append(its.Trace, q)
			}
		}
		p, err := start(ctx, its)
		if err != nil {
			return Report{}, fmt.Errorf("leasesim: process %d: %w", i, err)
		}
		fleet = append(fleet, p)
	}
	for i, p := range fleet {
		if err := <-p.ready; err != nil {
			return Report{}, fmt.Errorf("leasesim: process %d did not start: %w", i, err)
		}
	}
	if asked.Err() != nil {
		return Report{}, fmt.Errorf("leasesim: %w", context.Cause(asked))
	}
	before, _ := redis.served(ctx) // zero if the server reports no calls
	began := time.Now().Add(startDelay)
	for i, p := range fleet {
		if _, err := fmt.Fprintf(p.in, startLine, began.UnixNano()); err != nil {
			return Report{}, fmt.Errorf("leasesim: process %d: %w", i, err)
		}
	}
	hang := func(d time.Duration) error { return redis.hang(ctx, d) }
	if err := watch(asked.Done(), o, began, fleet, hang); err != nil {
		return Report{}, err
	}
	lasted := o.Scenario.Duration
	var interrupted error
	if asked.Err() != nil {
		interrupted = fmt.Errorf("leasesim: %w", context.Cause(asked))
		lasted = min(lasted, max(time.Since(began), time.Millisecond))
	}
	report, err := summarise(o, lasted, redis.name, fleet)
	if now, silent := redis.served(ctx); silent == nil {
		report.ServiceTimeNs = int64(now.since(before))
	}
	return report, cmp.Or(err, interrupted)
}

// watch waits for all processes to end, and causes the faults of the options. When interrupted is closed,
// watch ends the load of all processes.
func watch(
	interrupted <-chan struct{}, o Options, began time.Time, fleet []*process, hang func(time.Duration) error,
) error {
	f := o.faults()
	after := func(d time.Duration) <-chan time.Time {
		if d <= 0 {
			return nil
		}
		return time.After(d + time.Until(began))
	}
	kill, stop, hangs := after(f.kill), after(f.stop), after(f.hang)
	var resume <-chan time.Time
	limit := time.After(o.Scenario.Duration + grace)
	type ending struct {
		i   int
		err error
	}
	ended := make(chan ending, len(fleet))
	for i, p := range fleet {
		go func() { ended <- ending{i, <-p.exited} }()
	}
	first, last := fleet[0], fleet[len(fleet)-1]
	for left := len(fleet); left > 0; {
		var err error
		select {
		case e := <-ended:
			left--
			if e.err != nil && fleet[e.i].fate != fateKilled {
				err = fmt.Errorf("leasesim: process %d: %w", e.i, e.err)
			}
		case <-kill:
			last.fate = fateKilled
			err = last.signal(os.Kill)
		case <-stop:
			if first.fate == "" {
				first.fate = fateStopped
			}
			err = first.signal(stopSignal)
			resume = time.After(f.stopFor)
		case <-hangs:
			err = hang(f.hangFor)
		case <-resume:
			err = first.resume()
		case <-limit:
			err = fmt.Errorf("leasesim: %s did not end %v after the end of the load", view.Count(left, "process"),
				grace)
		case <-interrupted:
			interrupted, kill, stop, hangs = nil, nil, nil, nil
			limit = time.After(grace)
			for _, p := range fleet {
				err = errors.Join(err, p.end())
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
