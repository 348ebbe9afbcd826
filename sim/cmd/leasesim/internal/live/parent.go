package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/stamps"
)

// progressEvery is how often Run reports progress.
const progressEvery = 200 * time.Millisecond

// grace is how much longer than its load a child may take to end.
const grace = 15 * time.Second

// process is one child as the parent sees it.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.Reader
	reap   sync.Once
	exited chan error
}

// wait gives the process's end to exited, once.
func (p *process) wait() {
	p.reap.Do(func() {
		go func() {
			p.exited <- p.cmd.Wait()
			close(p.exited)
		}()
	})
}

// Run starts the fleet, waits for it, and audits it. progress gets a line now and then; nil for none.
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

	trips, err := stamps.Create(filepath.Join(dir, "trips"), 1) // for its histogram, which all processes share
	if err != nil {
		return Report{}, fmt.Errorf("leasesim: %w", err)
	}
	defer trips.Close()
	fleet := make([]*process, 0, o.Processes)
	files := make([]*stamps.File, 0, o.Processes)
	defer func() {
		for _, p := range fleet {
			_ = p.cmd.Process.Kill() // those that have ended are not hurt
			p.wait()                 // those that were never told to start too
			<-p.exited
		}
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for i := range o.Processes {
		path := filepath.Join(dir, fmt.Sprintf("stamps-%d", i))
		f, err := stamps.Create(path, o.capacity())
		if err != nil {
			return Report{}, fmt.Errorf("leasesim: %w", err)
		}
		files = append(files, f)
		p, err := start(orders{Options: o, Index: i, Path: path, Trips: filepath.Join(dir, "trips")})
		if err != nil {
			return Report{}, fmt.Errorf("leasesim: process %d: %w", i, err)
		}
		fleet = append(fleet, p)
	}
	for i, p := range fleet {
		if err := p.ready(ctx); err != nil {
			return Report{}, fmt.Errorf("leasesim: process %d did not start: %w", i, err)
		}
	}
	if err := o.align(ctx); err != nil {
		return Report{}, err
	}
	before := redis.served(ctx)
	for i, p := range fleet {
		if _, err := io.WriteString(p.in, "start\n"); err != nil {
			return Report{}, fmt.Errorf("leasesim: process %d: %w", i, err)
		}
	}
	fates, err := o.watch(ctx, fleet, files, progress)
	if err != nil {
		return Report{}, err
	}
	report, err := o.summarise(redis.name, files, fates)
	report.RoundTripNs = quantiles(trips.Latency())
	report.ServiceTimeNs = int64(redis.served(ctx).since(before))
	return report, err
}

// align waits, where there are bursts, until shortly before one, so that every process sees the same ones whole.
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

func start(o orders) (*process, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self), exited: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	return p, nil
}

// ready waits for the child to say so. From then on its end is in exited.
func (p *process) ready(ctx context.Context) error {
	said := make(chan error, 1)
	go func() {
		line := make([]byte, len("ready\n"))
		_, err := io.ReadFull(p.out, line)
		if err == nil && string(line) != "ready\n" {
			err = fmt.Errorf("it said %q", line)
		}
		said <- err
		p.wait() // not before: it closes the pipe
	}()
	select {
	case err := <-said:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watch waits for all processes to end, and does to them on the way what was asked for.
func (o Options) watch(ctx context.Context, fleet []*process, files []*stamps.File, progress func(string)) (map[int]string, error) {
	fates := make(map[int]string)
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
	first, last := fleet[0].cmd.Process, fleet[len(fleet)-1].cmd.Process
	for left := len(fleet); left > 0; {
		select {
		case e := <-ended:
			left--
			if e.err != nil && fates[e.i] != "killed" {
				return nil, fmt.Errorf("leasesim: process %d: %w", e.i, e.err)
			}
		case <-kill:
			fates[len(fleet)-1] = "killed"
			if err := last.Signal(syscall.SIGKILL); err != nil {
				return nil, fmt.Errorf("leasesim: kill: %w", err)
			}
		case <-stop:
			if err := first.Signal(syscall.SIGSTOP); err != nil {
				return nil, fmt.Errorf("leasesim: stop: %w", err)
			}
			if fates[0] == "" {
				fates[0] = "stopped"
			}
			resume = time.After(2 * o.ttl())
		case <-resume:
			if err := first.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return nil, fmt.Errorf("leasesim: resume: %w", err)
			}
		case <-tick.C:
			if progress != nil {
				progress(o.progress(time.Since(began), files))
			}
		case <-limit.C:
			return nil, fmt.Errorf("leasesim: %d processes did not end %v after their load", left, grace)
		case <-ctx.Done():
			return nil, fmt.Errorf("leasesim: %w", context.Cause(ctx))
		}
	}
	return fates, nil
}

func (o Options) progress(since time.Duration, files []*stamps.File) string {
	var offered, trips int64
	for _, f := range files {
		offered += f.Offered()
		trips += f.RoundTrips()
	}
	return fmt.Sprintf("%4.1f s of %v: %d requests offered by %d processes, %d round trips",
		min(since, o.Duration).Seconds(), o.Duration, offered, len(files), trips)
}

// after is time.After, or never for 0.
func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}
