// Package redistest starts redis-server processes for tests: on a free loopback port, without persistence unless
// asked for, ended when the test ends. It needs nothing but the standard library.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
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

	cmd    *exec.Cmd
	exited chan struct{}
	output strings.Builder // read after exited only
}

// Start runs redis-server with args behind "--port N --bind 127.0.0.1 --save ” --appendonly no --dir <temporary>"
// and returns once it answers PING (or answers it with an error, as a server that asks for a password does).
// It is killed in t.Cleanup. Without redis-server in PATH the test is skipped, and with REQUIRE_REDIS=1 in the
// environment it fails instead.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	Require(t)
	dir := t.TempDir()
	// Between picking a port and its use another process may take it: then the server exits, and another is picked.
	for range 5 {
		s, err := start(dir, args)
		if err == nil {
			t.Cleanup(s.Kill)
			return s
		}
		if !errors.Is(err, errPortTaken) {
			t.Fatal(err)
		}
	}
	t.Fatal("redistest: found no free port in 5 attempts")
	return nil
}

// Available reports whether redis-server is in PATH, for tests that do less without it. With REQUIRE_REDIS=1 it is
// always true, so that nothing is left out silently.
func Available() bool {
	_, err := exec.LookPath("redis-server")
	return err == nil || os.Getenv("REQUIRE_REDIS") == "1"
}

// Require skips t without redis-server, or fails it where REQUIRE_REDIS=1.
func Require(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err == nil {
		return
	}
	const hint = "redistest: redis-server is not in PATH (apt-get install redis-server, or brew install redis)"
	if os.Getenv("REQUIRE_REDIS") == "1" {
		t.Fatal(hint)
	}
	t.Skip(hint)
}

var errPortTaken = errors.New("redistest: port was taken")

func start(dir string, args []string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &Server{Port: port, Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Dir: dir, exited: make(chan struct{})}
	all := append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir}, args...)
	s.cmd = exec.Command("redis-server", all...)
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	if err := s.await(); err != nil {
		s.Kill()
		if strings.Contains(s.output.String(), "Failed listening on port") {
			return nil, errPortTaken
		}
		return nil, fmt.Errorf("%w\n%s", err, s.output.String())
	}
	return s, nil
}

// await polls until the server answers.
func (s *Server) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		if s.ping() {
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

// ping reports whether the server answers PING: with PONG, or with an error other than LOADING.
func (s *Server) ping() bool {
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
	return err == nil && !strings.HasPrefix(line, "-LOADING")
}

// Signal sends sig: SIGSTOP to hang the server, SIGCONT to let it go on.
func (s *Server) Signal(sig syscall.Signal) error { return s.cmd.Process.Signal(sig) }

// Kill ends the server as kill -9 does and returns when it is gone. It may be called more than once.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// freePort picks a port that leaves room for a cluster's bus, which listens 10000 above it.
func freePort() (int, error) {
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("redistest: %w", err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if port+10_000 <= 65_535 {
			return port, nil
		}
	}
}
