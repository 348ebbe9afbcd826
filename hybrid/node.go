package hybrid

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid/internal/outage"
	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// nodeUnknown is the number of the node of a key that no node has answered for yet, and unknownNode its name.
const nodeUnknown, unknownNode = -1, "unknown"

// storeNode is one node of the store as a member sees it: a node.Node behind a lock.
type storeNode struct {
	*health
	m      *member
	number int32 // the store's

	mu    sync.Mutex
	rules rules
	timer clock.Timer   // calls look; nil before the first batch
	looks clock.Instant // when it does that; Never for not at all
	lane  clock.Timer   // calls depart; nil before it is first needed
	armed bool          // lane is

	goesIn uint64 // the scheduler's own: the last round that sends a batch to it
}

type rules = node.Node[*draw]

type batch struct {
	node.Batch
	to     *storeNode
	calls  []*lease.Call
	probes bool         // one of the calls is to see whether a node that is away is back
	forget func()       // has the store no longer wait
	left   atomic.Int64 // calls that are not answered
}

// health says whether a node answers. All members of a Limiter share it: requests of one do not wait
// for what another has found out.
type health struct {
	*outage.Node
	target     time.Duration // Config.Target of most keys
	breaker    *protocol.Breaker
	probeAsked atomic.Int64 // when a key that is not in use was let through for a probe

	fallbackAdmitted, fallbackDenied atomic.Int64 // tokens, by Policy.Fallback and ColdStart
}

func (h *health) why() error { return cmp.Or(h.Node.Why(), errOverdue) }

// answered says that the node has answered a call that was sent then.
func (h *health) answered(now, sent clock.Instant) {
	h.breaker.Answered(now, sent)
	h.Node.Answered(now, sent)
}

// countFallback counts what was decided without the store: n tokens were asked for, and took admitted.
func (h *health) countFallback(n, took int64) {
	h.fallbackAdmitted.Add(took)
	h.fallbackDenied.Add(n - took)
}

// claimProbe gives a request the probe that is due, if there is one: the first that comes, and another
// one a Target later if the scheduler has not come to it.
func (h *health) claimProbe(now clock.Instant) bool {
	last := h.probeAsked.Load()
	return !h.breaker.Holds(now) && now.Sub(clock.Instant(last)) >= h.target &&
		h.probeAsked.CompareAndSwap(last, int64(now))
}

// failed says that a call has failed which was sent then, and reports whether the node is away from now on.
func (n *storeNode) failed(now, sent clock.Instant, err error) (opened bool) {
	opened = n.breaker.Failed(now, sent)
	if !n.breaker.Away() {
		return opened
	}
	var about []any
	if n.breaker.Active() == 0 {
		does := "denies"
		if n.m.cfg.Policy.ColdStart == ColdStartAllow {
			does = "admits"
		}
		about = []any{"cold_start", does + " every request until the store first replies"}
	}
	n.Node.Failed(n.m.watcher, now, sent, err, about...)
	return opened
}

// rtt is the 99th percentile of the round trips; 0 before the first.
func (n *storeNode) rtt() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rules.RTT()
}

// shortest is node.Shortest.
func (n *storeNode) shortest() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rules.Shortest()
}

func (n *storeNode) full() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rules.Full()
}

// gate is node.Gate, and when any call may go.
func (n *storeNode) gate(now clock.Instant, urgent bool) (ok bool, next clock.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rules.Gate(now, urgent), n.rules.Next()
}

// hold notes that an urgent call is held back, which may go when free calls of n are possible.
func (n *storeNode) hold() {
	n.mu.Lock()
	free := n.rules.Hold()
	n.mu.Unlock()
	if free {
		n.m.scheduler.hurry()
	}
}

func (n *storeNode) open() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rules.Open()
}

// do calls f with the lock.
func (n *storeNode) do(f func(*rules)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(&n.rules)
}

// sent notes that b is sent now, and has a timer look after it. There is one for all batches to n.
func (n *storeNode) sent(b *batch) {
	now := n.m.cfg.Clock.Now()
	since := now
	if b.Draws {
		since = b.calls[0].Owner.(*draw).of.Sent
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules.Send(&b.Batch, now, since)
	n.lookLocked(now)
}

func (n *storeNode) landed(b *batch) {
	n.mu.Lock()
	free := n.rules.Landed(&b.Batch)
	n.mu.Unlock()
	if free {
		n.m.scheduler.hurry()
	}
	if b.Draws {
		n.depart()
	}
}

func (n *storeNode) batches() (all []*batch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.rules.UnderWay() {
		all = append(all, b.Owner.(*batch))
	}
	return all
}

// lookLocked has look called when it is due, unless it is earlier anyway.
func (n *storeNode) lookLocked(now clock.Instant) {
	at := n.rules.LookAt()
	switch {
	case at >= n.looks:
		return
	case n.timer == nil:
		n.timer = n.m.cfg.Clock.AfterFunc(at.Sub(now), n.look)
	default:
		n.timer.Reset(at.Sub(now))
	}
	n.looks = at
}

// look does what is due for the batches under way to n.
func (n *storeNode) look() {
	now := n.m.cfg.Clock.Now()
	n.mu.Lock()
	due, forgotten := n.rules.Late(now)
	n.looks = protocol.Never
	n.lookLocked(now)
	n.mu.Unlock()
	for _, b := range forgotten {
		b.Owner.(*batch).forget()
	}
	for _, b := range due {
		n.m.overdue(b.Owner.(*batch), now)
	}
}

func (n *storeNode) again(b *batch, now, at clock.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules.Again(&b.Batch, at)
	n.lookLocked(now)
}

func (n *storeNode) join(d *draw) {
	n.do(func(r *rules) { r.Join(d, d.of.Sent) })
	n.depart()
}

// depart sends the draws that may go now, and ends the wait of those that will not go in time.
func (n *storeNode) depart() {
	now := n.m.cfg.Clock.Now()
	n.mu.Lock()
	draws, stranded, again := n.rules.Depart(now)
	if again > 0 && !n.armed {
		n.armed = true
		if n.lane == nil {
			n.lane = n.m.cfg.Clock.AfterFunc(again, n.departAgain)
		} else {
			n.lane.Reset(again)
		}
	}
	n.mu.Unlock()
	for _, d := range stranded {
		d.abandon(&d.call, now, n.why())
	}
	if len(draws) > 0 {
		b := n.newBatch()
		b.Draws = true
		for _, d := range draws {
			b.calls = append(b.calls, &d.call)
		}
		n.m.send(b)
	}
}

func (n *storeNode) departAgain() {
	n.mu.Lock()
	n.armed = false
	n.mu.Unlock()
	n.depart()
}

func (n *storeNode) newBatch() *batch {
	b := &batch{to: n}
	b.Owner = b
	return b
}

// nodes are the nodes of the store. A slow one delays only its own keys.
type nodes struct {
	first       *nodes // of class 0, for the others: they share health
	m           *member
	target, ttl time.Duration
	mu          sync.Mutex
	all         []*storeNode // from nodeUnknown on
}

func (n *nodes) of(number int) *storeNode {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := max(number, nodeUnknown) - nodeUnknown
	for i >= len(n.all) {
		number := len(n.all) + nodeUnknown
		added := &storeNode{m: n.m, number: int32(number), looks: protocol.Never}
		if n.first != nil {
			added.health = n.first.of(number).health
		} else {
			added.health = &health{
				Node: n.m.outages.Node(number), target: n.target,
				breaker: protocol.NewBreaker(n.target, n.ttl, rand.Uint64()),
			}
		}
		added.rules.Init(added.breaker, n.m.cfg.CallTimeout)
		n.all = append(n.all, added)
	}
	return n.all[i]
}

// nodeName is the name of the node of store that has this number.
func nodeName(store Store, number int) string {
	if number == nodeUnknown {
		return unknownNode
	}
	if r, ok := store.(lease.Router); ok {
		if name := r.NodeName(number); name != "" {
			return name
		}
	}
	return fmt.Sprint(number)
}

func (n *nodes) worst() (rtt time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.all {
		rtt = max(rtt, one.rtt())
	}
	return rtt
}

// stats says how the nodes fare that were ever called, by whichever Limiter.
func (n *nodes) stats(now clock.Instant) (all []NodeStats) {
	for _, number := range n.m.outages.Numbers() {
		n.of(number)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.all {
		away, called, why := one.Away(now)
		st := NodeStats{one.Name(), away, why, one.fallbackAdmitted.Load(), one.fallbackDenied.Load()}
		if called || st.Fallback != 0 || st.FallbackDenied != 0 {
			all = append(all, st)
		}
	}
	if len(all) > 1 && all[0] == (NodeStats{Node: unknownNode}) {
		return all[1:] // calls went there before the others were known
	}
	return all
}
