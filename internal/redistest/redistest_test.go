package redistest

import (
	"net"
	"strings"
	"testing"
)

func TestAServerAnswersUntilItIsKilled(t *testing.T) {
	s := Start(t)
	if !s.ping(false) {
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

func TestAServerRestartsAtItsAddress(t *testing.T) {
	s := Start(t)
	if got := dial(t, s.Addr).ask("SET", "a", "b"); got != "+OK" {
		t.Fatal(got)
	}
	s.Kill()
	s.Restart(t, "--maxclients", "7")
	w := dial(t, s.Addr)
	if got := w.ask("EXISTS", "a"); got != ":0" {
		t.Errorf("a server without persistence remembers: %s", got)
	}
	if got := w.ask("CONFIG", "GET", "maxclients"); !strings.HasSuffix(got, "\r\n7") {
		t.Errorf("%q", got)
	}
}
