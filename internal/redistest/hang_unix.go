//go:build unix

package redistest

import (
	"syscall"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// Hang stops the server's process until Resume. The server's connections stay open, and get no answers.
func (s *Server) Hang(t testing.TB) {
	t.Helper()
	testkit.NoErr(t, s.process.Signal(syscall.SIGSTOP))
}

// Resume lets a stopped server continue.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	testkit.NoErr(t, s.process.Signal(syscall.SIGCONT))
}
