package redistest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// Fate selects the faults that a Proxy applies to a script call (EVAL, EVALSHA) and its reply; the zero Fate
// applies none. Other commands (HELLO, PING, ...) pass under every fault but BlackHole and Far.
type Fate struct {
	// DropRequest closes the connection when the call arrives.
	DropRequest bool
	// LoseReply closes the connection in place of the reply, after the server has executed the call.
	LoseReply bool
	// Delay is the least time from the call's arrival at the proxy until the client gets the reply.
	Delay time.Duration
	// Far is the least time of every round trip, including each step of a connection's handshake.
	Far time.Duration
	// Hold, if not nil, delays the reply until the channel is closed.
	Hold <-chan struct{}
	// Rewrite, if not nil, gets the whole RESP value and returns what the client gets instead.
	Rewrite func(reply []byte) []byte
	// Close ends the connection after the reply.
	Close bool
	// BlackHole reads all commands, script calls or not, and answers nothing over the same connection again.
	// New connections are accepted.
	BlackHole bool
}

// Proxy stands before a Redis server and treats each script call by the Fate in force when the call arrives.
// Any goroutine may set another Fate at any time. The proxy ends with the test.
type Proxy struct {
	Addr string // where clients connect: "127.0.0.1:port"

	to    string
	fate  atomic.Pointer[Fate]
	calls atomic.Int64
	done  <-chan struct{} // closed when the test ends
	wg    sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn // the clients' ends of all connections so far
}

// NewProxy starts a proxy that passes everything on to the server at the address `to`.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoErr(t, err)
	p := &Proxy{Addr: l.Addr().String(), to: to, done: t.Context().Done()}
	p.Pass()
	p.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, client)
			p.mu.Unlock()
			p.wg.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Set makes f the fate of every call that arrives from now on.
func (p *Proxy) Set(f Fate) { p.fate.Store(&f) }

// Pass does Set(Fate{}). Connections that met a BlackHole stay silent; see Cut.
func (p *Proxy) Pass() { p.Set(Fate{}) }

// Hold delays the replies to calls that arrive from now on until release is called, once or more.
func (p *Proxy) Hold() (release func()) {
	held := make(chan struct{})
	p.Set(Fate{Hold: held})
	return sync.OnceFunc(func() { close(held) })
}

// Cut closes all open connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
}

// Calls returns the number of script calls that have arrived so far, answered or not.
func (p *Proxy) Calls() int64 { return p.calls.Load() }

// Accepted returns the number of connections that clients have opened so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// passed is a request that was passed on and has no reply yet.
type passed struct {
	fate Fate
	at   time.Time
}

// serve passes on one connection. Replies come in the order of requests, so a queue matches replies to
// requests.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer server.Close()
	asked := make(chan passed, 1<<14)
	p.wg.Go(func() {
		defer close(asked)
		if p.requests(client, server, asked) {
			_ = server.(*net.TCPConn).CloseWrite() // the client's earlier requests are still answered
		} else {
			client.Close()
			server.Close()
		}
	})
	p.replies(client, server, asked)
}

// requests passes on the client's requests, and returns false to cut the connection.
func (p *Proxy) requests(client, server net.Conn, asked chan<- passed) bool {
	mute := false
	for r := bufio.NewReader(client); ; {
		request, err := proto.Read(r)
		if err != nil {
			return !mute
		}
		q := passed{*p.fate.Load(), time.Now()}
		if isScript(request) {
			p.calls.Add(1)
		} else {
			q.fate = Fate{BlackHole: q.fate.BlackHole, Far: q.fate.Far}
		}
		if mute = mute || q.fate.BlackHole; mute {
			continue
		}
		if q.fate.DropRequest {
			return false
		}
		asked <- q
		if _, err := io.WriteString(server, request); err != nil {
			return false
		}
	}
}

func (p *Proxy) replies(client, server net.Conn, asked <-chan passed) {
	for r := bufio.NewReader(server); ; {
		value, err := proto.Read(r)
		if err != nil {
			return
		}
		reply := []byte(value)
		var q passed
		if reply[0] != '>' { // a push of RESP3 answers no request
			q = <-asked // q is zero if a server refuses a client before its first request
		}
		if q.fate.LoseReply || !p.wait(q.fate.Hold, q.at.Add(max(q.fate.Delay, q.fate.Far))) {
			return
		}
		if q.fate.Rewrite != nil {
			reply = q.fate.Rewrite(reply)
		}
		if _, err := client.Write(reply); err != nil || q.fate.Close {
			return
		}
	}
}

// wait delays a reply until due and, unless held is nil, until held is closed. wait returns false if the test
// ends first.
func (p *Proxy) wait(held <-chan struct{}, due time.Time) bool {
	if held != nil {
		select {
		case <-held:
		case <-p.done:
			return false
		}
	}
	select {
	case <-time.After(time.Until(due)): // the delay of a slow network
		return true
	case <-p.done:
		return false
	}
}

// isScript reports whether request is EVAL or EVALSHA, as clients send it: an array of strings.
func isScript(request string) bool {
	words, _ := proto.ReadStrings(request)
	return len(words) > 0 && (strings.EqualFold(words[0], "EVALSHA") || strings.EqualFold(words[0], "EVAL"))
}
