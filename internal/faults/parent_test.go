//go:build unix

package faults

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for a child. Nothing depends on how long it takes.
const patience = 90 * time.Second

// process is one child as its test sees it.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Writer
	lines chan string // what it says; closed at its end
	ended bool
}

// launch starts a child, which is killed with the test if it is still there.
func launch(t *testing.T, o orders, env ...string) *process {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	p := &process{t: t, cmd: exec.Command(self), lines: make(chan string, 100)}
	p.cmd.Env = append(append(os.Environ(), ordersVariable+"="+string(text)), env...)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	p.in = in
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the process as kill -9 does, and returns when it is gone.
func (p *process) kill() {
	if p.ended {
		return
	}
	p.ended = true
	_ = p.cmd.Process.Kill()
	for range p.lines { // Wait must not come before the last line is read
	}
	_ = p.cmd.Wait()
}

// tell says one line to the process, stopped or not.
func (p *process) tell(word string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, word+"\n"); err != nil {
		p.t.Fatalf("tell the process to %s: %v", word, err)
	}
}

// hear waits for the process to say word, and gives value what it says with it.
func (p *process) hear(word string, value any) {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		said, text, _ := strings.Cut(line, " ")
		if !ok || said != word {
			p.t.Fatalf("the process said %q instead of %q", line, word)
		}
		if err := json.Unmarshal([]byte(text), value); err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
	case <-time.After(patience):
		p.t.Fatalf("the process did not say %q", word)
	}
}

// finish tells the process to shut down, and returns its report once it has ended.
func (p *process) finish() report {
	p.t.Helper()
	p.tell("finish")
	var r report
	p.hear("report", &r)
	for range p.lines {
	}
	p.ended = true
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the process ended with %v", err)
	}
	return r
}

// stop is SIGSTOP; it returns when the kernel says that no thread of the process runs any more.
func (p *process) stop() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !status.Stopped() {
			p.t.Fatalf("the process did not stop: %v, status %#x", err, status)
		}
		return
	}
}

// resume is SIGCONT.
func (p *process) resume() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
}
