package redistest

import (
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// Hang skips t, because Windows has no signals.
func (s *Server) Hang(t testing.TB) {
	t.Helper()
	testkit.RequireSignals(t)
}

// Resume lets a stopped server continue.
func (s *Server) Resume(testing.TB) {}
