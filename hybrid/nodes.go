package hybrid

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// batchesMax bounds the batches under way to one node, and with it the goroutines that wait for it.
const batchesMax = 256

// nodeUnknown is the node of a key that no node has answered for yet.
const nodeUnknown = -1

// node is what is known of one node of the store.
type node struct {
	mu      sync.Mutex
	latency lease.Latency // guarded by mu

	slots    *semaphore.Weighted // one for each batch that may be under way
	underWay atomic.Int32        // batches
	pressed  atomic.Bool         // somebody waits for a call that is held back

	away, permanent outage

	// The scheduler's own.
	lastSent clock.Instant
	goesIn   uint64 // the last round that sends a batch to it
}

func newNode() *node { return &node{slots: semaphore.NewWeighted(batchesMax)} }

// tripped takes in how long a round trip took that ended now.
func (n *node) tripped(now clock.Instant, took time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency.Add(now, took)
}

// rtt is the 99th percentile of the round trips; 0 before the first.
func (n *node) rtt() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.latency.Quantile()
}

// nodes are the nodes of the store. A slow one delays only its own keys.
type nodes struct {
	mu      sync.RWMutex
	all     []*node
	unknown *node // stands for the node of keys that none has answered for
}

func (n *nodes) of(node int) *node {
	if node < 0 {
		return n.unknown
	}
	n.mu.RLock()
	if node < len(n.all) {
		defer n.mu.RUnlock()
		return n.all[node]
	}
	n.mu.RUnlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	for node >= len(n.all) {
		n.all = append(n.all, newNode())
	}
	return n.all[node]
}
