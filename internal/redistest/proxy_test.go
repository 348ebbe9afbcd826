package redistest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

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

const incr = "return redis.call('INCR', 'n')"

func TestAProxyDoesToScriptCallsWhatItIsTold(t *testing.T) {
	server := Start(t)
	p := NewProxy(t, server.Addr)
	for _, c := range []struct {
		name     string
		fate     Fate
		reply    string // to the script; empty: the connection ends
		then     string // to a PING over the same connection afterwards
		executed bool
	}{
		{"pass", Fate{}, ":1", "+PONG", true},
		{"request dropped", Fate{DropRequest: true}, "", "", false},
		{"reply lost", Fate{LoseReply: true}, "", "", true},
		{"delay", Fate{Delay: time.Millisecond}, ":1", "+PONG", true},
		{"reply twice", Fate{Rewrite: Twice}, ":1", ":1", true},
		{"half a reply", Fate{Rewrite: Half, Close: true}, "", "", true},
		{"another program", Fate{Rewrite: HTTP, Close: true}, "HTTP/1.1 400 Bad Request", "Content-Length: 0",
			true},
	} {
		t.Run(c.name, func(t *testing.T) {
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
			if _, err := w.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil && c.then != "" {
				t.Error(err)
			}
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
	_ = held.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if b, err := held.r.Peek(1); err == nil {
		t.Errorf("%q came although it is held", b)
	}
	// then the release brings it
	_ = held.SetReadDeadline(time.Now().Add(time.Minute))
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
	for _, w := range []*wire{old, fresh} {
		w.send("EVAL", incr, "0")
	}
	testkit.Eventually(t, "both calls", func() bool { return p.Calls() == 2 })
	// when it is over, those connections stay mute
	p.Pass()
	for _, w := range []*wire{old, fresh} {
		w.send("PING")
		_ = w.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if b, err := w.r.Peek(1); err == nil {
			t.Errorf("%q came out of a black hole", b)
		}
	}
	// and new ones are served, with nothing executed before
	if got := dial(t, p.Addr).ask("EVAL", incr, "0"); got != ":1" {
		t.Errorf("%q", got)
	}
	// until they are cut
	p.Cut()
	_ = old.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := old.r.Peek(1); err != io.EOF {
		t.Errorf("%v", err)
	}
	if p.Accepted() != 3 {
		t.Errorf("%d connections", p.Accepted())
	}
}
