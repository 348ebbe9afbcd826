package redistest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestAServerAnswersUntilItIsKilledAndRestartsAtItsAddress(t *testing.T) {
	s := Start(t)
	if got := s.Ask("PING"); got != "+PONG\r\n" {
		t.Errorf("a started server answers %q", got)
	}
	s.Do(t, "SET", "a", "b")
	s.Kill()
	s.Kill() // again is well
	if c, err := net.Dial("tcp", s.Addr); err == nil {
		c.Close()
		t.Error("a killed server accepts connections")
	}
	s.Restart(t, "--maxclients", "7")
	if got := s.Do(t, "EXISTS", "a"); got != ":0\r\n" {
		t.Errorf("a server without persistence remembers: %q", got)
	}
	if got := s.Do(t, "CONFIG", "GET", "maxclients"); !strings.HasSuffix(got, "\r\n7\r\n") {
		t.Errorf("%q", got)
	}
}

func TestAServerThatWillNotStartIsAnError(t *testing.T) {
	Require(t)
	if err := (&Server{args: []string{"--no-such-option", "1"}}).run(); err == nil {
		t.Error("no error")
	}
}

// wire is one connection that speaks RESP, so that nothing of a client hides what a proxy does.
type wire struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *wire {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &wire{t, c, bufio.NewReader(c)}
}

func (w *wire) send(words ...string) {
	w.t.Helper()
	if err := proto.Write(w, words); err != nil {
		w.t.Fatal(err)
	}
}

// next is the first line of the next reply, empty where the connection has ended.
func (w *wire) next() string {
	line, err := w.r.ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.TrimSpace(line)
}

func (w *wire) ask(words ...string) string {
	w.send(words...)
	return w.next()
}

// checkMute fails the test if anything comes.
func (w *wire) checkMute(why string) {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if b, err := w.r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Errorf("%q, %v came although %s", b, err, why)
	}
	_ = w.SetReadDeadline(time.Now().Add(time.Minute))
}

const incr = "return redis.call('INCR', 'n')"

func TestAProxyDoesToScriptCallsWhatItIsTold(t *testing.T) {
	twice := func(reply []byte) []byte { return append(reply[:len(reply):len(reply)], reply...) }
	half := func(reply []byte) []byte { return reply[:len(reply)/2] }
	server := Start(t)
	p := NewProxy(t, server.Addr)
	for name, c := range map[string]struct {
		fate     Fate
		reply    string // to the script; empty: the connection ends
		then     string // to a PING over the same connection afterwards
		executed bool
	}{
		"pass":            {Fate{}, ":1", "+PONG", true},
		"request dropped": {Fate{DropRequest: true}, "", "", false},
		"reply lost":      {Fate{LoseReply: true}, "", "", true},
		"delay":           {Fate{Delay: time.Millisecond}, ":1", "+PONG", true},
		"reply twice":     {Fate{Rewrite: twice}, ":1", ":1", true},
		"half a reply":    {Fate{Rewrite: half, Close: true}, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			direct, w := dial(t, server.Addr), dial(t, p.Addr)
			direct.ask("DEL", "n")
			p.Set(c.fate)
			// what is no script call passes
			if got := w.ask("PING"); got != "+PONG" {
				t.Errorf("PING: %q", got)
			}
			before := p.Calls()
			if got := w.ask("EVAL", incr, "0"); got != c.reply {
				t.Errorf("the script: %q, want %q", got, c.reply)
			}
			if p.Calls() != before+1 {
				t.Errorf("counted %d calls", p.Calls()-before)
			}
			_ = proto.Write(w, []string{"PING"}) // an error where the connection has ended
			if got := w.next(); got != c.then {
				t.Errorf("then: %q, want %q", got, c.then)
			}
			if got := direct.ask("EXISTS", "n"); (got == ":1") != c.executed {
				t.Errorf("executed: %s, want %v", got, c.executed)
			}
		})
	}
}

func TestAProxyHoldsRepliesUntilTheyAreReleased(t *testing.T) {
	// given a proxy that holds replies back
	server := Start(t)
	p := NewProxy(t, server.Addr)
	release := p.Hold()
	held, direct := dial(t, p.Addr), dial(t, server.Addr)
	held.send("EVAL", incr, "0")
	testkit.Eventually(t, "the script's effect", func() bool { return direct.ask("EXISTS", "n") == ":1" })
	// when the network is well again, a later call is answered, and the held one is not
	p.Pass()
	if got := dial(t, p.Addr).ask("EVAL", incr, "0"); got != ":2" {
		t.Errorf("%q", got)
	}
	held.checkMute("it is held")
	// then the release brings it
	release()
	release()
	if got := held.next(); got != ":1" {
		t.Errorf("%q", got)
	}
}

func TestABlackHoleTakesEverythingAndAnswersNothing(t *testing.T) {
	p := NewProxy(t, Start(t).Addr)
	old := dial(t, p.Addr)
	old.ask("PING")
	// given a black hole
	p.Set(Fate{BlackHole: true})
	fresh := dial(t, p.Addr)
	old.send("EVAL", incr, "0")
	fresh.send("EVAL", incr, "0")
	testkit.Eventually(t, "both calls", func() bool { return p.Calls() == 2 })
	// when it is over, those connections stay mute
	p.Pass()
	for _, w := range []*wire{old, fresh} {
		w.send("PING")
		w.checkMute("it is in a black hole")
	}
	// and new ones are served, with nothing executed before
	if got := dial(t, p.Addr).ask("EVAL", incr, "0"); got != ":1" {
		t.Errorf("%q", got)
	}
	// until they are cut
	p.Cut()
	if _, err := old.r.Peek(1); err != io.EOF {
		t.Errorf("%v", err)
	}
	if p.Accepted() != 3 {
		t.Errorf("%d connections", p.Accepted())
	}
}
