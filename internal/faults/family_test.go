//go:build unix

package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// orders configures one child process.
type orders struct {
	Role        string // one of roles
	Redis       string
	Record      string // path of the file of stamps
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
	MostHeld int64 // the largest holding it ever had
	Shutdown bool  // without an error
}

// record holds the stamps of all processes' admissions, on a shared clock and in memory that outlives a kill.
type record struct{ file *stamps.File }

// stamp makes one request for one token, and records when it was admitted.
func (r record) stamp(verb func() bool) bool {
	before := stamps.Now()
	ok := verb()
	if ok {
		r.file.Append(before, stamps.After()) // the file itself tells worst that it was too small
	}
	return ok
}

func (r record) spans() []audit.Span { return r.file.AppendSpans(nil) }

// worst returns the recorded window that exceeds the limit by most.
func (r record) worst(t *testing.T, l hybrid.Limit) audit.Window {
	t.Helper()
	lost := r.file.Overflowed()
	testkit.Must(t, lost == 0, "%d admissions found no room in the record", lost)
	return worstOf(t, r.spans(), l, l.Capacity())
}

// family groups the limiters of one test on one server: in its own process and in child processes,
// with the record of all. Its bucket is that of key.
type family struct {
	*fleet
	record
	t          *testing.T
	addr, path string // of the server, of the file of stamps
}

func newFamily(t *testing.T) *family {
	t.Helper()
	s := start(t)
	path := filepath.Join(t.TempDir(), "stamps")
	const room = 1 << 20 // for the admissions of any of the tests; the file is sparse
	file, err := stamps.Create(path, room)
	testkit.NoErr(t, err)
	t.Cleanup(func() { file.Close() })
	return &family{s.fleet(0, hybrid.Config{}), record{file}, t, s.Addr, path}
}

// children starts n child processes under load, and lets them go when all are ready.
func (f *family) children(n int, o orders) []*process {
	f.t.Helper()
	ps := make([]*process, n)
	for i := range ps {
		ps[i] = f.child(o)
	}
	for _, p := range ps {
		p.hear("ready", new(any))
	}
	for _, p := range ps {
		p.tell("start")
	}
	return ps
}

// admitted returns the number of admitted tokens so far.
func (f *family) admitted() (n int64) {
	for _, s := range f.spans() {
		n += s.N
	}
	return n
}

// awaitMore waits until n more tokens have been admitted.
func (f *family) awaitMore(n int64) {
	f.t.Helper()
	want := f.admitted() + n
	testkit.Eventually(f.t, fmt.Sprintf("%d tokens admitted", want), func() bool { return f.admitted() >= want })
}

// outlastLeases waits until all leases without renewal have ended: T and two slices of T/7, by the
// server's clock. T is the one in force, which grows where calls take long.
func (f *family) outlastLeases() {
	f.t.Helper()
	began := f.state(key).ServerTime
	testkit.Eventually(f.t, "the end of all leases", func() bool {
		s := f.state(key)
		return time.Duration(s.ServerTime-began)*time.Microsecond > s.Config.TTL*9/7
	})
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
	o.Redis, o.Record = f.addr, f.path
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

// stop sends SIGSTOP, and returns when no thread of the process runs any more.
func (p *process) stop() {
	p.t.Helper()
	testkit.NoErr(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	err := error(syscall.EINTR)
	for err == syscall.EINTR {
		_, err = syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	}
	testkit.Must(p.t, err == nil && status.Stopped(), "the process did not stop: %v, status %#x", err, status)
}

// resume sends SIGCONT.
func (p *process) resume() {
	p.t.Helper()
	testkit.NoErr(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
}
