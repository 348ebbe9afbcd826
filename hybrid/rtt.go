package hybrid

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// rtt is the latency of lease calls to one node, for any number of goroutines.
type rtt struct {
	mu      sync.Mutex
	latency lease.Latency
}

func (r *rtt) add(now clock.Instant, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latency.Add(now, d)
}

func (r *rtt) quantile() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latency.Quantile()
}

// batchesMax bounds the batches under way to one node, and with it the goroutines that wait for it.
const batchesMax = 256

// nodeUnknown is the node of a key that no node has answered for yet.
const nodeUnknown = -1

// node is one node of the store: how long its calls take, and how many more may be under way.
type node struct {
	rtt
	slots    *semaphore.Weighted
	underWay atomic.Int32 // batches
	pressed  atomic.Bool  // somebody waits for a call that is held back

	away, permanent outage

	// The scheduler's own.
	lastSent clock.Instant
	goes     bool // a batch, in this round
}

func newNode() *node { return &node{slots: semaphore.NewWeighted(batchesMax)} }

// nodes keeps what is known of each node of the store. A slow one delays only its own keys.
type nodes struct {
	mu      sync.RWMutex
	all     []*node
	unknown *node
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
