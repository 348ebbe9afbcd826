package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// progressEvery is how often Run reports progress.
	progressEvery = 200 * time.Millisecond
	// grace is how much longer than its load a process may take to end.
	grace = 15 * time.Second
)

// Run starts the fleet, waits for it, and audits it. progress gets a line now and then; nil for
// none.
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

	fleet := make([]*process, 0, o.Processes)
	defer func() {
		for _, p := range fleet {
			p.end()
		}
	}()
	for i := range o.Processes {
		path := filepath.Join(dir, fmt.Sprintf("stamps-%d", i))
		p, err := start(orders{Options: o, Index: i, Path: path})
		if err != nil {
			return Report{}, fmt.Errorf("leasesim: process %d: %w", i, err)
		}
		fleet = append(fleet, p)
	}
	for i, p := range fleet {
		if err := p.awaitReady(ctx); err != nil {
			return Report{}, fmt.Errorf("leasesim: process %d did not start: %w", i, err)
		}
	}
	if err := o.align(ctx); err != nil {
		return Report{}, err
	}
	before := redis.served(ctx)
	for i, p := range fleet {
		if err := p.begin(); err != nil {
			return Report{}, fmt.Errorf("leasesim: process %d: %w", i, err)
		}
	}
	if err := o.watch(ctx, fleet, progress); err != nil {
		return Report{}, err
	}
	report, err := o.summarise(redis.name, fleet)
	report.ServiceTimeNs = int64(redis.served(ctx).since(before))
	return report, err
}

// align waits, where there are bursts, until shortly before one, so that every process sees the
// same ones whole.
func (o Options) align(ctx context.Context) error {
	if o.Shape != ShapeBursts {
		return nil
	}
	now := time.Now()
	at := now.Truncate(period).Add(period - period/8)
	if at.Before(now) {
		at = at.Add(period)
	}
	select {
	case <-time.After(at.Sub(now)):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("leasesim: %w", context.Cause(ctx))
	}
}

// watch waits for all processes to end, and kills and stops those that it was asked to.
func (o Options) watch(ctx context.Context, fleet []*process, progress func(string)) error {
	began := time.Now()
	kill, stop, resume := after(o.KillAfter), after(o.StopAfter), (<-chan time.Time)(nil)
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	limit := time.NewTimer(o.Duration + grace)
	defer limit.Stop()
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
		select {
		case e := <-ended:
			left--
			if e.err != nil && fleet[e.i].fate != fateKilled {
				return fmt.Errorf("leasesim: process %d: %w", e.i, e.err)
			}
		case <-kill:
			last.fate = fateKilled
			if err := last.signal(syscall.SIGKILL); err != nil {
				return err
			}
		case <-stop:
			if first.fate == "" {
				first.fate = fateStopped
			}
			if err := first.signal(syscall.SIGSTOP); err != nil {
				return err
			}
			resume = time.After(2 * o.ttl())
		case <-resume:
			if err := first.signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
		case <-tick.C:
			if progress != nil {
				progress(o.progress(time.Since(began), fleet))
			}
		case <-limit.C:
			return fmt.Errorf("leasesim: %d processes did not end %v after their load", left, grace)
		case <-ctx.Done():
			return fmt.Errorf("leasesim: %w", context.Cause(ctx))
		}
	}
	return nil
}

func (o Options) progress(since time.Duration, fleet []*process) string {
	var offered, trips int64
	for _, p := range fleet {
		offered += p.file.Offered().Load()
		trips += p.file.RoundTrips().Load()
	}
	return fmt.Sprintf("%4.1f s of %v: %d requests offered by %d processes, %d round trips",
		min(since, o.Duration).Seconds(), o.Duration, offered, len(fleet), trips)
}

// after is time.After, or never for 0.
func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}
