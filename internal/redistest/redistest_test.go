package redistest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestAServerAnswersUntilItIsKilledAndRestartsAtItsAddress(t *testing.T) {
	s := Start(t)
	got := s.Ask("PING")
	testkit.Check(t, got == "+PONG\r\n", "a started server answers %q", got)
	s.Do(t, "SET", "a", "b")
	s.Kill()
	s.Kill() // again is well
	_, err := net.Dial("tcp", s.Addr)
	testkit.Check(t, err != nil, "a killed server accepts connections")
	s.Restart(t, "--maxclients", "7")
	got = s.Do(t, "EXISTS", "a")
	testkit.Check(t, got == ":0\r\n", "a server without persistence remembers: %q", got)
	got = s.Do(t, "CONFIG", "GET", "maxclients")
	testkit.Check(t, strings.HasSuffix(got, "\r\n7\r\n"), "%q", got)
}

func TestAServerThatWillNotStartIsAnError(t *testing.T) {
	Require(t)
	err := (&Server{args: []string{"--no-such-option", "1"}}).run()
	testkit.Check(t, err != nil, "no error")
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
	testkit.NoErr(t, err)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &wire{t, c, bufio.NewReader(c)}
}

func (w *wire) send(words ...string) {
	w.t.Helper()
	testkit.NoErr(w.t, proto.Write(w, words))
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

// check fails the test unless the reply to a command begins with want.
func (w *wire) check(want string, words ...string) {
	w.t.Helper()
	got := w.ask(words...)
	testkit.Check(w.t, got == want, "%v: %q, want %q", words, got, want)
}

// checkMute fails the test if anything comes.
func (w *wire) checkMute(why string) {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	b, err := w.r.Peek(1)
	testkit.Check(w.t, errors.Is(err, os.ErrDeadlineExceeded), "%q, %v came although %s", b, err, why)
	_ = w.SetReadDeadline(time.Now().Add(time.Minute))
}

const incr = "return redis.call('INCR', 'n')"

func TestAProxyDoesToScriptCallsWhatItIsTold(t *testing.T) {
	twice := func(reply []byte) []byte { return append(slices.Clip(reply), reply...) }
	half := func(reply []byte) []byte { return reply[:len(reply)/2] }
	server := Start(t)
	p := NewProxy(t, server.Addr)
	for name, c := range map[string]struct {
		fate     Fate
		reply    string // to the script; empty: the connection ends
		then     string // to a PING over the same connection afterwards
		executed string // ":1", or ":0" if it was not
	}{
		"pass":            {Fate{}, ":1", "+PONG", ":1"},
		"request dropped": {Fate{DropRequest: true}, "", "", ":0"},
		"reply lost":      {Fate{LoseReply: true}, "", "", ":1"},
		"delay":           {Fate{Delay: time.Millisecond}, ":1", "+PONG", ":1"},
		"reply twice":     {Fate{Rewrite: twice}, ":1", ":1", ":1"},
		"half a reply":    {Fate{Rewrite: half, Close: true}, "", "", ":1"},
	} {
		t.Run(name, func(t *testing.T) {
			direct, w := dial(t, server.Addr), dial(t, p.Addr)
			direct.ask("DEL", "n")
			p.Set(c.fate)
			// what is no script call passes
			w.check("+PONG", "PING")
			before := p.Calls()
			w.check(c.reply, "EVAL", incr, "0")
			testkit.Check(t, p.Calls() == before+1, "counted %d calls", p.Calls()-before)
			_ = proto.Write(w, []string{"PING"}) // an error where the connection has ended
			got := w.next()
			testkit.Check(t, got == c.then, "then: %q, want %q", got, c.then)
			direct.check(c.executed, "EXISTS", "n")
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
	dial(t, p.Addr).check(":2", "EVAL", incr, "0")
	held.checkMute("it is held")
	// then the release brings it
	release()
	release()
	got := held.next()
	testkit.Check(t, got == ":1", "%q", got)
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
	dial(t, p.Addr).check(":1", "EVAL", incr, "0")
	// until they are cut
	p.Cut()
	_, err := old.r.Peek(1)
	testkit.Check(t, err == io.EOF, "%v", err)
	testkit.Check(t, p.Accepted() == 3, "%d connections", p.Accepted())
}
