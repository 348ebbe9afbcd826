package redistest

import (
	"net"
	"testing"
)

func TestAServerAnswersUntilItIsKilled(t *testing.T) {
	s := Start(t)
	if !s.ping() {
		t.Error("a started server does not answer")
	}
	s.Kill()
	if c, err := net.Dial("tcp", s.Addr); err == nil {
		c.Close()
		t.Error("a killed server accepts connections")
	}
	s.Kill() // again is well
}

func TestAServerThatWillNotStartIsAnError(t *testing.T) {
	Require(t)
	if _, err := start(t.TempDir(), []string{"--no-such-option", "1"}); err == nil {
		t.Error("no error")
	}
}
