package redisbucket

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// errConnecting is why a call is not on its way while a connection is being opened for it.
var errConnecting = errors.New("a connection is being opened")

// watcher sees how the client opens connections, through hooks that change nothing about it.
// go-redis tries a dial five times before it says why it fails, which takes longer than a lease
// call may, so a pipeline is told of the first failure.
type watcher struct {
	mu        sync.Mutex
	pipelines map[*pipeline]bool // those under way
}

// enter begins a pipeline to n.
func (w *watcher) enter(n *node, calls []*lease.Call) *pipeline {
	p := &pipeline{node: n, calls: calls, begun: time.Now(), failed: make(chan error, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pipelines[p] = true
	if n != nil && n.opening > 0 {
		p.connect()
	}
	return p
}

// leave ends it. From here on its calls are left alone.
func (w *watcher) leave(p *pipeline) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pipelines, p)
	if p.connecting.Load() && p.node != nil && p.node.opening > 0 {
		p.node.opening-- // a new connection counts until a pipeline has gone over it
	}
}

// connect notes that a connection is being opened, which p may be waiting for.
func (p *pipeline) connect() {
	p.connecting.Store(true)
	p.tell(errConnecting)
}

// dialing notes that n has delta connections more that are being opened, and calls f with every
// pipeline that waits for a connection to n.
func (w *watcher) dialing(n *node, delta int, f func(*pipeline)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n.opening = max(0, n.opening+delta)
	for p := range w.pipelines {
		if (p.node == nil || p.node == n) && p.state.Load() == waiting {
			f(p)
		}
	}
}

// watch has the dials of n seen, if they are not yet. They go through client, which go-redis may
// replace by another in a cluster.
func (w *watcher) watch(n *node, client *redis.Client) {
	w.mu.Lock()
	known := n.client == client
	n.client = client
	w.mu.Unlock()
	if !known {
		client.AddHook(hook{w, n})
	}
}

// hook is how the watcher sees one node.
type hook struct {
	w *watcher
	n *node
}

func (h hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		h.w.dialing(h.n, 1, (*pipeline).connect)
		conn, err := next(ctx, network, addr)
		if err != nil {
			h.w.dialing(h.n, -1, func(p *pipeline) {
				p.tell(err)
				select {
				case p.failed <- err:
				default: // an earlier dial has failed already
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
