package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
)

// fateKilled and fateStopped are the fates of a process while it runs.
const (
	fateKilled  = "killed"
	fateStopped = "stopped"
)

// process is the parent's side of one child.
type process struct {
	cmd       *exec.Cmd
	in        io.WriteCloser           // closing the pipe ends the load
	file      *stamps.File             // records of the requests
	fate      string                   // fateKilled, fateStopped or empty
	ready     chan error               // gets one value, when the process can begin
	exited    chan error               // gets one value, when the process has ended, and is closed
	latencies []*hdrhistogram.Snapshot // set before exited; nil for a killed process
}

// start creates the file and starts the process. The end of ctx kills the process. The caller closes the
// file.
func start(ctx context.Context, o orders) (*process, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self), ready: make(chan error, 1), exited: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), childVariable+"=1")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	capacity, err := o.capacity(o.Index)
	if err == nil {
		p.file, err = stamps.Create(o.Path, capacity)
	}
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, p.file.Close())
	}
	go p.follow(out, append(text, '\n'))
	return p, nil
}

// follow sends the process its orders, and reads its output until the process ends.
func (p *process) follow(out io.Reader, orders []byte) {
	_, _ = p.in.Write(orders) // after an error the process does not get ready
	r := bufio.NewReader(out)
	line, err := r.ReadString('\n')
	if err == nil && line != readyLine {
		err = fmt.Errorf("the first line of its output is %q", line)
	}
	p.ready <- err
	if json.NewDecoder(r).Decode(&p.latencies) != nil {
		p.latencies = nil
	}
	p.exited <- p.wait()
	close(p.exited)
}

// wait waits for the process to exit. wait kills a process that has written its last output, because Go's
// race detector sometimes hangs at exit (in racefini).
func (p *process) wait() error {
	if p.latencies == nil {
		return p.cmd.Wait()
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // reports the kill
	return nil
}

// end ends the load of the process, which may be stopped.
func (p *process) end() error {
	_ = p.in.Close()
	return p.resume()
}

func (p *process) resume() error {
	if cannotStop != "" {
		return nil
	}
	return p.signal(resumeSignal)
}

// signal sends a signal to the process, or does nothing if the process has ended.
func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("leasesim: %v: %w", s, err)
	}
	return nil
}
