package redistest

import (
	"net"
	"strings"
	"testing"
)

func TestAServerAnswersUntilItIsKilled(t *testing.T) {
	s := Start(t)
	if got := s.Ask("PING"); got != "+PONG\r\n" {
		t.Errorf("a started server answers %q", got)
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
	if err := (&Server{args: []string{"--no-such-option", "1"}}).run(false); err == nil {
		t.Error("no error")
	}
}

func TestAServerRestartsAtItsAddress(t *testing.T) {
	s := Start(t)
	s.Do(t, "SET", "a", "b")
	s.Kill()
	s.Restart(t, "--maxclients", "7")
	if got := s.Do(t, "EXISTS", "a"); got != ":0\r\n" {
		t.Errorf("a server without persistence remembers: %q", got)
	}
	if got := s.Do(t, "CONFIG", "GET", "maxclients"); !strings.HasSuffix(got, "\r\n7\r\n") {
		t.Errorf("%q", got)
	}
}
