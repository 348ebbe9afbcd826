// Package redistest starts redis-server processes for tests, alone, as a cluster or with a
// Sentinel, and a proxy that makes the network to them fail. All of them end with the test.
package redistest

import (
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

	"github.com/alicebob/miniredis/v2/proto"
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
	output *strings.Builder // to be read after exited only
}

// Start runs redis-server on a free loopback port, without persistence and in a temporary
// directory, unless args say otherwise. It returns once the server answers PING, be it with an
// error, as a server that asks for a password does. It is killed with the test. Without a server
// (see Binary) the test is skipped, and with REQUIRE_REDIS=1 in the environment it fails instead.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, func(s *Server) []string {
		return append([]string{"--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--save", "",
			"--appendonly", "no", "--dir", s.Dir}, args...)
	})
}

// start runs a server with the arguments for its port and directory.
func start(t testing.TB, args func(*Server) []string) *Server {
	t.Helper()
	Require(t)
	dir := t.TempDir()
	// Between its choice and its use another process may take the port: then the server exits.
	for range 5 {
		port, guard, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{Port: port, Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Dir: dir,
			guard: guard}
		s.args = args(s)
		err = s.run(false)
		if err == nil {
			t.Cleanup(s.end)
			return s
		}
		s.end()
		if !errors.Is(err, errPortTaken) {
			t.Fatal(err)
		}
	}
	t.Fatal("redistest: found no free port in 5 attempts")
	return nil
}

// Binary is the server that tests start: what REDIS_SERVER in the environment names, which may be
// any version of Redis or Valkey, otherwise redis-server in PATH.
func Binary() string {
	if b := os.Getenv("REDIS_SERVER"); b != "" {
		return b
	}
	return "redis-server"
}

// Available returns whether there is a server, for tests that do less without it. With
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

// serverVersion finds the version in what Redis and Valkey print for --version.
var serverVersion = regexp.MustCompile(`v=(\d+)\.(\d+)\.`)

// RequireVersion skips t where the server is older than major.minor, with which missing came.
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

// Restart runs the server again after a kill, with the same port, directory and arguments, to which
// args are added. It returns once the server serves.
func (s *Server) Restart(t testing.TB, args ...string) {
	t.Helper()
	s.restart(t, false, args)
}

// RestartLoading is Restart that returns as soon as the server answers, even if it is still
// loading.
func (s *Server) RestartLoading(t testing.TB, args ...string) {
	t.Helper()
	s.restart(t, true, args)
}

func (s *Server) restart(t testing.TB, loading bool, args []string) {
	t.Helper()
	s.Kill()
	s.args = append(s.args[:len(s.args):len(s.args)], args...)
	if err := s.run(loading); err != nil {
		t.Fatal(err)
	}
}

// run starts the process and returns when it answers. loading says that the answer LOADING will do.
func (s *Server) run(loading bool) error {
	s.cmd, s.output, s.exited = exec.Command(Binary(), s.args...), new(strings.Builder), make(chan struct{})
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

// await polls until the server answers PING, with PONG or with an error.
func (s *Server) await(loading bool) error {
	for began := time.Now(); time.Since(began) < startTimeout; {
		if reply := s.Ask("PING"); reply != "" && (loading || !strings.HasPrefix(reply, "-LOADING")) {
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("redistest: redis-server exited")
		case <-time.After(2 * time.Millisecond): // the pace of polling
		}
	}
	return fmt.Errorf("redistest: redis-server did not answer within %v", startTimeout)
}

// Ask sends one command over a connection of its own and returns the reply as it comes, in RESP. It
// is empty where there is none within a second.
func (s *Server) Ask(words ...string) string {
	c, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	reply, _ := proto.NewClient(c).Do(words...)
	return reply
}

// Do is Ask for a command that must succeed.
func (s *Server) Do(t testing.TB, words ...string) string {
	t.Helper()
	reply := s.Ask(words...)
	if reply == "" || reply[0] == '-' {
		t.Fatalf("%v: %q", words, reply)
	}
	return reply
}

// Signal sends sig: SIGSTOP to hang the server, SIGCONT to let it go on.
func (s *Server) Signal(sig syscall.Signal) error { return s.cmd.Process.Signal(sig) }

// Kill ends the server as kill -9 does and returns when it is gone. It may be called more than
// once.
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

// freePort picks an even port and holds the odd one above it, so that no other test takes the port
// while its server is down for a while. All ports lie below the range from which systems take ports
// for connections, and so does a cluster's bus, which listens 10000 above.
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
