//go:build unix

package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// orders configures one child process.
type orders struct {
	Role        string // one of roles
	Redis       string
	Limit       hybrid.Limit
	Policy      hybrid.Policy
	CallTimeout time.Duration
	Offered     float64 // requests a second
	Plain       bool    // an INCR instead of a Limiter decides
}

// config returns the configuration of the tests' processes. The bound is promised for FallbackDeny.
func (o orders) config() hybrid.Config {
	cfg := with(o.Limit, o.Policy)
	cfg.Policy.Fallback, cfg.CallTimeout = hybrid.FallbackDeny, o.CallTimeout
	return cfg
}

// report is a child's last message.
type report struct {
	Stats    hybrid.Stats
	Shutdown bool // without an error
}

// family groups the limiters of one test on one server: in its own process and in child processes. Its bucket
// is that of key.
type family struct {
	*fleet
	t    *testing.T
	addr string // of the server
}

func newFamily(t *testing.T) *family {
	t.Helper()
	s := start(t)
	return &family{s.fleet(0, hybrid.Config{}), t, s.Addr}
}

// finish shuts processes down and checks their accounts.
func (f *family) finish(ps ...*process) []report {
	f.t.Helper()
	rs := make([]report, len(ps))
	for i, p := range ps {
		p.tell("finish")
		p.hear("report", &rs[i])
		err := p.cmd.Wait()
		testkit.Check(f.t, err == nil, "process %d ended with %v", i, err)
		checkAccount(f.t, fmt.Sprint("process ", i), rs[i].Stats)
	}
	return rs
}

// patience bounds a test's wait for a child. No result depends on the length of a wait.
const patience = 90 * time.Second

// process is the test's handle of one child.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

// child starts a child process, which is killed at the end of the test.
func (f *family) child(o orders, env ...string) *process {
	f.t.Helper()
	o.Redis = f.addr
	text, err := json.Marshal(o)
	testkit.NoErr(f.t, err)
	self, err := os.Executable()
	testkit.NoErr(f.t, err)
	p := &process{t: f.t, cmd: exec.Command(self)}
	p.cmd.Env = append(append(os.Environ(), ordersVariable+"="+string(text)), env...)
	p.cmd.Stderr = os.Stderr
	p.in, err = p.cmd.StdinPipe()
	testkit.NoErr(f.t, err)
	out, err := p.cmd.StdoutPipe()
	testkit.NoErr(f.t, err)
	p.out = bufio.NewScanner(out)
	testkit.NoErr(f.t, p.cmd.Start())
	f.t.Cleanup(p.kill)
	return p
}

// kill ends the process as kill -9 does, and returns when it is gone. It may have ended before.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// tell sends one line to the process, stopped or not.
func (p *process) tell(word string) {
	p.t.Helper()
	_, err := io.WriteString(p.in, word+"\n")
	testkit.Must(p.t, err == nil, "tell the process to %s: %v", word, err)
}

// hear waits for the process to say word, and decodes its argument into value.
func (p *process) hear(word string, value any) {
	p.t.Helper()
	late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	p.out.Scan()
	said, text, _ := strings.Cut(p.out.Text(), " ")
	testkit.Must(p.t, said == word, "the process said %q instead of %q", p.out.Text(), word)
	testkit.NoErr(p.t, json.Unmarshal([]byte(text), value))
}
