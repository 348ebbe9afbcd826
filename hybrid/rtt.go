package hybrid

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/yuzhi-go/yuzhi/clock"
)

// rttSamples are enough for a 99th percentile that is the second largest; rttFew are enough to call one of them a stall.
const rttSamples, rttFew = 128, 16

// rtt estimates the 99th percentile of the latest lease calls to one node.
type rtt struct {
	mu      sync.Mutex
	samples [rttSamples]time.Duration
	n       int
	p99     time.Duration
}

func (r *rtt) add(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.samples[r.n%rttSamples] = d
	r.n++
	// Sorting every eighth time costs nothing beside a round trip; a rise is taken over at once.
	if r.n%8 != 1 && d <= r.p99 {
		return
	}
	have := r.samples[:min(r.n, rttSamples)]
	sorted := slices.Clone(have)
	slices.Sort(sorted)
	// The second largest, so that one stall changes nothing; but of a few the largest.
	last := len(sorted) - 1
	if len(sorted) >= rttFew {
		last--
	}
	r.p99 = sorted[last]
}

func (r *rtt) quantile() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.p99
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
