package hybrid

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// batchesMax bounds the batches under way to one node, and so the goroutines.
const batchesMax = 256

// nodeUnknown is the number of the node of a key that no node has answered for yet.
const nodeUnknown = -1

// node is what is known of one node of the store, and what is under way to it.
type node struct {
	*health
	number   int32 // the store's
	mu       sync.Mutex
	latency  protocol.Latency    // guarded by mu
	batches  map[*batch]struct{} // guarded by mu: those under way
	looker   clock.Timer         // guarded by mu: calls look; nil before the first batch
	lookAt   clock.Instant       // guarded by mu: when it does that; Never for not at all
	slots    *semaphore.Weighted // one for each batch that may be under way
	underWay atomic.Int32        // batches
	pressed  atomic.Bool         // somebody waits for a call that is held back
	lane     lane                // of draws

	// The scheduler's own.
	lastSent clock.Instant
	goesIn   uint64 // the last round that sends a batch to it
}

// health says whether a node answers. All classes of a Limiter share it: what one has found out,
// nobody waits for again.
type health struct {
	breaker         *protocol.Breaker
	cause           atomic.Pointer[error] // of the last outage
	away, permanent outage                // for the log
	probeAsked      atomic.Int64          // when a key that is not in use was let through for a probe
}

// why is the cause of the last outage.
func (h *health) why() error {
	if err := h.cause.Load(); err != nil {
		return *err
	}
	return errOverdue
}

// answered says that the node has answered a call that was sent then.
func (h *health) answered(l *Limiter, now, sent clock.Instant) {
	if h.breaker.Answered(now, sent) {
		h.away.recovered(l, now)
		h.permanent.recovered(l, now)
	}
}

// rtt is the 99th percentile of the round trips; 0 before the first.
func (n *node) rtt() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.latency.Quantile()
}

func (n *node) batchesUnderWay() []*batch {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.batches))
}

// nodes are the nodes of the store. A slow one delays only its own keys.
type nodes struct {
	l   *Limiter
	mu  sync.Mutex
	all []*node // from nodeUnknown on
}

func (n *nodes) of(number int) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := max(number, nodeUnknown) - nodeUnknown
	for i >= len(n.all) {
		number := len(n.all) + nodeUnknown
		added := &node{
			number: int32(number), slots: semaphore.NewWeighted(batchesMax),
			batches: make(map[*batch]struct{}), lookAt: protocol.Never,
		}
		if base := n.l.base; base != n.l {
			added.health = base.nodes.of(number).health
		} else {
			c := n.l.defaults
			added.health = &health{breaker: protocol.NewBreaker(c.Target, c.TTL, rand.Uint64())}
		}
		n.all = append(n.all, added)
	}
	return n.all[i]
}

// nodeOf is the node of a key whose last one is known by its number, or unknown: the store may know
// better, and does where a key is new, or its node has been replaced.
func (l *Limiter) nodeOf(name string, number int) *node {
	n := l.nodes.of(number)
	if router, ok := l.store.(lease.Router); ok && (number == nodeUnknown || n.breaker.Suspect()) {
		if number := router.NodeOf(l.storedKey(name)); number != nodeUnknown {
			return l.nodes.of(number)
		}
	}
	return n
}

// locate is the node that serves e's key by now, as far as is known.
func (e *entry) locate() *node {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.locateLocked()
	return e.node.Load()
}

// locateLocked has e follow its key to another node while its own is not known or away.
func (e *entry) locateLocked() {
	if n := e.node.Load(); n.number == nodeUnknown || n.breaker.Suspect() {
		e.node.Store(e.l.nodeOf(e.slot.name, int(n.number)))
	}
}
