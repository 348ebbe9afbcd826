// Package live runs a fleet of real processes against one Redis and audits every admission of every one.
//
// The parent (Run) executes its own binary again once per process. A child (Child) imports hybrid like any
// service, offers load, and stamps each admission before and after the call into a file shared with the
// parent, which a kill does not take back, and each refusal into another. The parent then looks for the worst
// of all windows, and replays all requests through a central limiter. FromScenario, Simulated and Compare set
// such a run beside a simulation of the same fleet.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

const (
	// progressEvery is how often Run reports progress.
	progressEvery = 200 * time.Millisecond
	// grace is how much longer than its load a process may take to end. It finds one that hangs, and leaves a
	// machine that starves its time.
	grace = time.Minute
)

// Run starts the fleet, waits for it, and audits it. progress, if not nil, gets a line now and then.
// When ctx ends, the load ends too; the report is of the time until then, and the error is the cause.
func Run(ctx context.Context, o Options, progress func(string)) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
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
			_, _ = p.file.Close(), p.denied.Close()
		}
	}()
	var parts [][]sim.TraceRequest
	if o.Shape == ShapeReplay {
		parts = o.parts()
	}
	for i := range o.Processes {
		path := filepath.Join(dir, fmt.Sprintf("stamps-%d", i))
		if parts != nil {
			err = writeTrace(path, parts[i])
		}
		var p *process
		if err == nil {
			p, err = start(ctx, orders{Options: o, Index: i, Path: path})
		}
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
	var ahead interval
	if err := redis.compareClocks(ctx, o.limit(), &ahead); err != nil {
		return Report{}, err
	}
	if err := align(asked, o.Shape); err != nil {
		return Report{}, err
	}
	before, _ := redis.served(ctx) // zero where it does not say
	began := stopwatch()
	for i, p := range fleet {
		if _, err := io.WriteString(p.in, startLine); err != nil {
			return Report{}, fmt.Errorf("leasesim: process %d: %w", i, err)
		}
	}
	hang := func() error { return redis.hang(ctx, o.HangFor) }
	if err := watch(asked.Done(), o, fleet, hang, progress); err != nil {
		return Report{}, err
	}
	var interrupted error
	if asked.Err() != nil {
		interrupted = fmt.Errorf("leasesim: %w", context.Cause(asked))
		o.Duration = min(o.Duration, stopwatch()-began)
	}
	if err := redis.compareClocks(ctx, o.limit(), &ahead); err != nil {
		return Report{}, err
	}
	report, err := summarise(o, redis.name, fleet, parts, ahead)
	if now, silent := redis.served(ctx); silent == nil {
		report.ServiceTimeNs = int64(now.since(before))
	}
	return report, cmp.Or(err, interrupted)
}

// align waits, where there are bursts, until shortly before one, so that every process sees the
// same ones whole. All begin with their parts of a trace at such a moment.
func align(ctx context.Context, shape string) error {
	if shape != ShapeBursts && shape != ShapeReplay {
		return nil
	}
	const early = period / 8
	burst := time.Now().Add(early + period - 1).Truncate(period) // the first one that is not sooner than early
	select {
	case <-time.After(time.Until(burst.Add(-early))):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("leasesim: %w", context.Cause(ctx))
	}
}

// watch waits for all processes to end, and kills and stops processes and hangs the server as the options
// say. When interrupted is closed, it ends the load of all of them.
func watch(
	interrupted <-chan struct{}, o Options, fleet []*process, hang func() error, progress func(string),
) error {
	began, wait := time.Now(), time.Duration(0)
	if o.Shape == ShapeReplay { // which begins at the next period, see child.play
		wait = began.Truncate(period).Add(period).Sub(began)
	}
	kill, stop, resume := after(o.KillAfter, wait), after(o.StopAfter, wait), after(0, 0)
	hangs := after(o.HangAfter, wait)
	tick, limit := time.Tick(progressEvery), time.After(o.Duration+grace)
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
			resume = after(cmp.Or(o.StopFor, 2*o.leased().TTL), 0)
		case <-hangs:
			err = hang()
		case <-resume:
			err = first.resume()
		case <-tick:
			if progress != nil {
				progress(progressOf(fleet, time.Since(began), o.Duration))
			}
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

func progressOf(fleet []*process, since, whole time.Duration) string {
	var offered, trips int64
	for _, p := range fleet {
		offered += p.file.Offered().Load()
		trips += p.file.RoundTrips().Load()
	}
	return fmt.Sprintf("%4.1f s of %v: %s offered by %s, %s", min(since, whole).Seconds(), whole,
		view.Count(offered, "request"), view.Count(len(fleet), "process"), view.Count(trips, "round trip"))
}

// after is time.After of both together, or never where d is 0.
func after(d, wait time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(wait + d)
}
