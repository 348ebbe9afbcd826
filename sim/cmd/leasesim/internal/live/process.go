package live

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/yuzhi-go/yuzhi/internal/stamps"
)

// What may be done to a process while it runs.
const (
	fateKilled  = "killed"
	fateStopped = "stopped"
)

// process is one child as the parent sees it.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	file   *stamps.File
	fate   string     // what was done to it, "" for nothing
	ready  chan error // once, when it can begin
	exited chan error // once, when it has ended, and then closed
	took   *latencies // what it told by then
}

// start makes the file and the process, which waits for begin. The caller ends it.
func start(o orders) (p *process, err error) {
	p = &process{ready: make(chan error, 1), exited: make(chan error, 1), took: newLatencies()}
	if p.file, err = stamps.Create(o.Path, o.Options.capacity()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.file.Close()
		}
	}()
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.follow(out)
	return p, nil
}

// follow reads all that the process says, until it ends.
func (p *process) follow(out io.Reader) {
	r := bufio.NewReader(out)
	line, err := r.ReadString('\n')
	if err == nil && line != readyLine {
		err = fmt.Errorf("it said %q", line)
	}
	p.ready <- err
	if told := newLatencies(); json.NewDecoder(r).Decode(told) == nil { // whoever is killed tells nothing
		p.took = told
	}
	p.exited <- p.cmd.Wait()
	close(p.exited)
}

func (p *process) awaitReady(ctx context.Context) error {
	select {
	case err := <-p.ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin tells a process that is ready to offer its load.
func (p *process) begin() error {
	_, err := io.WriteString(p.in, startLine)
	return err
}

func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("leasesim: %v: %w", s, err)
	}
	return nil
}

// end kills the process, unless it has ended, and forgets its file.
func (p *process) end() {
	_ = p.cmd.Process.Kill()
	<-p.exited
	_ = p.file.Close()
}
