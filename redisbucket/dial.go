package redisbucket

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// errConnecting is why a call is not on its way yet when a connection is being opened for it.
var errConnecting = errors.New("a connection is being opened")

// The states of a sending.
const (
	waiting int32 = iota
	sent
	withdrawn
)

// sending is one pipeline from its handing over to the client until its replies. It tells three
// things that the client does not: whether anything was written yet, when, and why not. One
// argument of each of its commands is a payload, which the client asks for the bytes as it writes
// them.
type sending struct {
	node    *node         // nil: any, while a cluster is asked who serves what
	calls   []*lease.Call // which are told why they wait
	state   atomic.Int32
	begun   time.Time
	written atomic.Int64 // when the last command was written, after begun
	writes  atomic.Int64
	failed  chan error // the first dial that failed while this was waiting

	connecting atomic.Bool // a connection was opened meanwhile
}

// withdraw takes the pipeline back; false where some of it has been written.
func (w *sending) withdraw() bool { return w.state.CompareAndSwap(waiting, withdrawn) }

// before is how long it took until the last of so many commands was written, where that was no part
// of a round trip: a connection was opened, or commands were sent more than once. Waiting for a
// free connection is part of it.
func (w *sending) before(commands int) time.Duration {
	if w.connecting.Load() || w.writes.Load() > int64(commands) {
		return time.Duration(w.written.Load())
	}
	return 0
}

// payload is an argument that notes when it is written.
type payload struct {
	w    *sending
	data []byte
}

// MarshalBinary is what the client calls as it writes the argument. An error ends the connection,
// on which nothing has been sent yet.
func (p *payload) MarshalBinary() ([]byte, error) {
	if !p.w.state.CompareAndSwap(waiting, sent) && p.w.state.Load() == withdrawn {
		return nil, errNotSent
	}
	p.w.written.Store(int64(time.Since(p.w.begun)))
	if p.w.writes.Add(1) == 1 {
		for _, c := range p.w.calls {
			c.SetUnsent(nil)
		}
	}
	return p.data, nil
}

// watcher sees how the client opens connections, as a hook that changes nothing about it. go-redis
// tries a dial five times before it says why it fails, which takes longer than a lease call may;
// the first failure is enough to know.
type watcher struct {
	mu       sync.Mutex
	sendings map[*sending]bool
}

// enter begins a pipeline to n.
func (d *watcher) enter(n *node, calls []*lease.Call) *sending {
	w := &sending{node: n, calls: calls, begun: time.Now(), failed: make(chan error, 1)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sendings[w] = true
	if n != nil && n.opening > 0 {
		w.connect()
	}
	return w
}

// leave ends it. From here on its calls are left alone.
func (d *watcher) leave(w *sending) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sendings, w)
	if w.connecting.Load() && w.node != nil && w.node.opening > 0 {
		w.node.opening-- // a connection that is being opened counts until a pipeline has gone over it
	}
}

// each runs f for every pipeline that waits for a connection to n. The lock is held.
func (d *watcher) each(n *node, f func(*sending)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := range d.sendings {
		if (w.node == nil || w.node == n) && w.state.Load() == waiting {
			f(w)
		}
	}
}

func (w *sending) connect() {
	w.connecting.Store(true)
	w.tell(errConnecting)
}

// tell has the calls say why they are not sent, unless they are.
func (w *sending) tell(why error) {
	for _, c := range w.calls {
		c.SetUnsent(wrap(c.Key, &notSentError{why}))
	}
	if w.state.Load() == sent { // meanwhile
		for _, c := range w.calls {
			c.SetUnsent(nil)
		}
	}
}

// hook is the watcher's eye on one node.
type hook struct {
	d *watcher
	n *node
}

func (h hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		h.d.mu.Lock()
		h.n.opening++
		h.d.mu.Unlock()
		h.d.each(h.n, (*sending).connect)
		conn, err := next(ctx, network, addr)
		if err != nil {
			h.d.mu.Lock()
			h.n.opening = max(0, h.n.opening-1)
			h.d.mu.Unlock()
			h.d.each(h.n, func(w *sending) {
				w.tell(err)
				select {
				case w.failed <- err:
				default:
				}
			})
		}
		return conn, err
	}
}

func (hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// watch has n's dials seen, if they are not yet: through client, which go-redis may replace by
// another in a cluster.
func (d *watcher) watch(n *node, client *redis.Client) {
	d.mu.Lock()
	known := n.client == client
	n.client = client
	d.mu.Unlock()
	if !known {
		client.AddHook(hook{d, n})
	}
}
