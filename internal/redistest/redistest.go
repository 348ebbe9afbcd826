// Package redistest starts redis-server processes for tests: on a free loopback port, without persistence unless
// asked for, ended when the test ends. It needs nothing but the standard library.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startTimeout is how long a server may take to answer PING on a busy machine.
const startTimeout = 20 * time.Second

// Server is one running redis-server.
type Server struct {
	Addr string // "127.0.0.1:port"
	Port int
	Dir  string // its working directory, removed with the test

	args   []string
	guard  net.Listener // keeps the port for this server while it is down; see freePort
	cmd    *exec.Cmd
	exited chan struct{}
	output *strings.Builder // read after exited only
}

// Start runs redis-server with args behind "--port N --bind 127.0.0.1 --save ” --appendonly no
// --dir <temporary>" and returns once it answers PING (or answers it with an error, as a server
// that asks for a password does). It is killed in t.Cleanup. Without a server (see Binary) the test
// is skipped, and with REQUIRE_REDIS=1 in the environment it fails instead.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	Require(t)
	dir := t.TempDir()
	// Between picking a port and its use another process may take it: then the server exits, and another is picked.
	for range 5 {
		s, err := start(dir, args)
		if err == nil {
			t.Cleanup(s.end)
			return s
		}
		if !errors.Is(err, errPortTaken) {
			t.Fatal(err)
		}
	}
	t.Fatal("redistest: found no free port in 5 attempts")
	return nil
}

// Binary is the server that tests start: what REDIS_SERVER in the environment names, which may be
// any version of Redis or Valkey, else redis-server in PATH.
func Binary() string {
	if b := os.Getenv("REDIS_SERVER"); b != "" {
		return b
	}
	return "redis-server"
}

// Available reports whether there is a server, for tests that do less without it. With
// REQUIRE_REDIS=1 it is always true, so that nothing is left out silently.
func Available() bool {
	_, err := exec.LookPath(Binary())
	return err == nil || os.Getenv("REQUIRE_REDIS") == "1"
}

// Require skips t without a server, or fails it where REQUIRE_REDIS=1.
func Require(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath(Binary()); err == nil {
		return
	}
	hint := "redistest: no " + Binary() + " (apt-get install redis-server, or brew install redis)"
	if os.Getenv("REQUIRE_REDIS") == "1" {
		t.Fatal(hint)
	}
	t.Skip(hint)
}

// serverVersion is what "redis-server --version" prints, of Redis and of Valkey.
var serverVersion = regexp.MustCompile(`v=(\d+)\.(\d+)\.`)

// RequireVersion skips t where the server is older than major.minor, and says that this is what
// missing needs.
func RequireVersion(t testing.TB, major, minor int, missing string) {
	t.Helper()
	Require(t)
	out, err := exec.Command(Binary(), "--version").Output()
	m := serverVersion.FindStringSubmatch(string(out))
	if err != nil || m == nil {
		t.Fatalf("redistest: %s --version says %q, %v", Binary(), out, err)
	}
	have, _ := strconv.Atoi(m[1])
	minorHave, _ := strconv.Atoi(m[2])
	if have < major || have == major && minorHave < minor {
		t.Skipf("n/a: %s came with %d.%d, this is %d.%d", missing, major, minor, have, minorHave)
	}
}

var errPortTaken = errors.New("redistest: port was taken")

func start(dir string, args []string) (*Server, error) {
	port, guard, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &Server{Port: port, Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Dir: dir, args: args, guard: guard}
	if err := s.run(false); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// Restart runs a killed server again: same port, same directory, and same arguments, where args come after them. It
// returns once the server answers. What was not persisted is lost.
func (s *Server) Restart(t testing.TB, args ...string) {
	t.Helper()
	s.Kill()
	s.args = append(s.args[:len(s.args):len(s.args)], args...)
	if err := s.run(false); err != nil {
		t.Fatal(err)
	}
}

// RestartLoading is Restart that returns as soon as the server answers at all, be it that it is still loading.
func (s *Server) RestartLoading(t testing.TB, args ...string) {
	t.Helper()
	s.Kill()
	s.args = append(s.args[:len(s.args):len(s.args)], args...)
	if err := s.run(true); err != nil {
		t.Fatal(err)
	}
}

// run starts the process and returns when it answers, with LOADING only where loading says that this will do.
func (s *Server) run(loading bool) error {
	all := append([]string{"--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.Dir}, s.args...)
	s.cmd, s.output, s.exited = exec.Command(Binary(), all...), new(strings.Builder), make(chan struct{})
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	if err := s.cmd.Start(); err != nil {
		close(s.exited)
		return fmt.Errorf("redistest: %w", err)
	}
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(s.cmd, s.exited)
	err := s.await(loading)
	if err == nil {
		return nil
	}
	s.Kill()
	if strings.Contains(s.output.String(), "Failed listening on port") {
		return errPortTaken
	}
	return fmt.Errorf("%w\n%s", err, s.output.String())
}

// await polls until the server answers.
func (s *Server) await(loading bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		if s.ping(loading) {
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("redistest: redis-server exited")
		case <-ctx.Done():
			return fmt.Errorf("redistest: redis-server did not answer within %v", startTimeout)
		case <-time.After(2 * time.Millisecond): // the pace of polling, not a wait for anything
		}
	}
}

// ping reports whether the server answers PING: with PONG or with an error, which may be LOADING where loading is true.
func (s *Server) ping(loading bool) bool {
	c, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && (loading || !strings.HasPrefix(line, "-LOADING"))
}

// Signal sends sig: SIGSTOP to hang the server, SIGCONT to let it go on.
func (s *Server) Signal(sig syscall.Signal) error { return s.cmd.Process.Signal(sig) }

// Kill ends the server as kill -9 does and returns when it is gone. It may be called more than once.
func (s *Server) Kill() {
	if s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
	}
	<-s.exited
}

// end is Kill for good: the port is free for others.
func (s *Server) end() {
	s.Kill()
	s.guard.Close()
}

// freePort picks an even port and holds the odd one above it, so that no other test takes the port while its server
// is down for a while. All lie below the range from which systems take ports for connections, and so does a
// cluster's bus, which listens 10000 above.
func freePort() (port int, guard net.Listener, err error) {
	for range 1000 {
		port = 12_000 + 2*rand.IntN(5_000)
		if guard, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1))); err != nil {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			return port, guard, nil
		}
		guard.Close()
	}
	return 0, nil, fmt.Errorf("redistest: no free port: %w", err)
}
