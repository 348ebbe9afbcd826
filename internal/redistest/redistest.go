// Package redistest starts redis-server processes for tests: alone, as a cluster or with a Sentinel, and
// behind a proxy that makes the network fail. All processes end with the test.
package redistest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// patience bounds the wait for a server to start or to answer, even on a busy machine.
const patience = time.Minute

// Server is one running redis-server.
type Server struct {
	Addr string // "127.0.0.1:port"
	Port int
	Dir  string // the server's working directory, removed with the test

	args    []string
	guard   net.Listener // keeps the server's port while the server is down; see freePort
	process *os.Process  // nil before the first start
	exited  chan struct{}
}

// Start runs redis-server on a free loopback port, without persistence and in a temporary directory, unless
// args say otherwise. Start returns once the server answers PING, even with an error, as a server with a
// password does. Without a server program (see Require) the test is skipped, or fails with REQUIRE_REDIS=1.
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
	s := &Server{Dir: t.TempDir()}
	s.Port, s.guard = freePort(t)
	s.Addr = address(s.Port)
	s.args = args(s)
	t.Cleanup(func() {
		s.Kill()
		s.guard.Close()
	})
	testkit.NoErr(t, s.run())
	return s
}

// binary returns the server that tests start: any version of Redis or Valkey in REDIS_SERVER, or
// redis-server.
func binary() string { return cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server") }

// Available reports whether there is a server program, for tests that check less without a server. With
// REQUIRE_REDIS=1 Available returns true, so that no check is skipped silently.
func Available() bool {
	_, err := exec.LookPath(binary())
	return err == nil || os.Getenv("REQUIRE_REDIS") == "1"
}

// Require skips t unless a server program is Available.
func Require(t testing.TB) {
	t.Helper()
	if !Available() {
		t.Skip(missing)
	}
}

const missing = "redistest: no redis-server in PATH (apt-get install redis-server, or brew install redis)"

// serverVersion finds the version in the output of --version of Redis and Valkey.
var serverVersion = regexp.MustCompile(`v=(\d+)\.`)

// RequireVersion skips t if the server is older than version major, which introduced the feature `what`.
func RequireVersion(t testing.TB, major int, what string) {
	t.Helper()
	Require(t)
	out, err := exec.Command(binary(), "--version").Output()
	m := serverVersion.FindSubmatch(out)
	testkit.Must(t, err == nil && m != nil, "redistest: %s --version says %q, %v", binary(), out, err)
	if have, _ := strconv.Atoi(string(m[1])); have < major {
		t.Skipf("n/a: %s came with %d, this is %d", what, major, have)
	}
}

// Restart runs the server again after a kill, with the same port, directory and arguments, plus args. Restart
// returns once the server has loaded its data.
func (s *Server) Restart(t testing.TB, args ...string) {
	t.Helper()
	s.RestartLoading(t, args...)
	testkit.Eventually(t, "a server that has loaded its data", func() bool {
		return !strings.HasPrefix(s.Ask("PING"), "-LOADING")
	})
}

// RestartLoading does a Restart and returns as soon as the server answers, even if it is still loading.
func (s *Server) RestartLoading(t testing.TB, args ...string) {
	t.Helper()
	s.Kill()
	s.args = append(slices.Clip(s.args), args...)
	testkit.NoErr(t, s.run())
}

// run starts the process and returns when the server answers PING, with PONG or with an error.
func (s *Server) run() error {
	output, exited := new(strings.Builder), make(chan struct{})
	cmd := exec.Command(binary(), s.args...)
	cmd.Stdout, cmd.Stderr = output, output
	if err := started(cmd, exited); err != nil {
		return fmt.Errorf("%s: %w", missing, err)
	}
	s.process, s.exited = cmd.Process, exited
	for began := time.Now(); time.Since(began) < patience; {
		if s.Ask("PING") != "" {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("redistest: redis-server exited\n%s", output)
		case <-time.After(2 * time.Millisecond): // the pace of polling
		}
	}
	s.Kill()
	return fmt.Errorf("redistest: redis-server did not answer within %v\n%s", patience, output)
}

// Ask sends one command over a new connection and returns the reply in RESP, or "" after a minute.
func (s *Server) Ask(words ...string) string {
	c, err := net.DialTimeout("tcp", s.Addr, patience)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	reply, _ := proto.NewClient(c).Do(words...)
	return reply
}

// Do sends a command by Ask, and ends the test if the reply is an error.
func (s *Server) Do(t testing.TB, words ...string) string {
	t.Helper()
	reply := s.Ask(words...)
	testkit.Must(t, reply != "" && reply[0] != '-', "%s: %q", words[0], reply)
	return reply
}

// Kill kills the server, and returns when its process has exited. A second Kill does nothing.
func (s *Server) Kill() {
	if s.process != nil {
		_ = s.process.Kill()
		<-s.exited
	}
}

// freePort picks an even port and listens on the odd port above, so that no other test takes the even port
// while its server is down. All ports, and the ports of cluster buses 10000 above, are below the range of
// outgoing connections.
func freePort(t testing.TB) (port int, guard net.Listener) {
	t.Helper()
	for range 1000 {
		port = 12_000 + 2*rand.IntN(5_000)
		guard, err := net.Listen("tcp", address(port+1))
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", address(port)); err == nil {
			l.Close()
			return port, guard
		}
		guard.Close()
	}
	t.Fatal("redistest: no free port")
	return 0, nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
