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

// nodeUnknown is the node number of a key for which no node has answered yet; unknownNode is that node's
// name.
const nodeUnknown, unknownNode = -1, "unknown"

// storeNode is one node of the store as a member sees it: a node.Node behind a lock.
type storeNode struct {
	*health
	m      *member
	number int32 // number of the node in the store

	mu          sync.Mutex
	rules       rules
	lookTimer   clock.Timer   // timer that calls look; nil before the first batch
	lookAt      clock.Instant // time when lookTimer fires; Never if it is stopped
	departTimer clock.Timer   // timer that calls depart; nil before its first use
	departArmed bool          // whether departTimer runs

	sendRound uint64 // last round of the scheduler with a batch to the node
}

type rules = node.Node[*draw]

type batch struct {
	node.Batch
	to         *storeNode
	calls      []*lease.Call
	isProbe    bool         // whether the batch has a probe of a node that is away
	cancel     func()       // makes the store stop waiting for the batch
	unanswered atomic.Int64 // number of calls without an answer
}

// health records whether a node answers. All members of a Limiter share the health of a node: each member
// knows of failures that other members have seen.
type health struct {
	*outage.Node
	target     time.Duration // lease.Config.Target of most keys
	breaker    *protocol.Breaker
	probeAsked atomic.Int64 // last time when a request for a key at rest claimed a probe

	fallbackAdmitted, fallbackDenied atomic.Int64 // tokens decided by Policy.Fallback or ColdStart
}

func (h *health) lastError() error { return cmp.Or(h.Node.Why(), errOverdue) }

func (h *health) answered(now, sent clock.Instant) {
	h.breaker.Answered(now, sent)
	h.Node.Answered(now, sent)
}

// countFallback counts a decision without the store, which admitted some or none of n requested tokens.
func (h *health) countFallback(n, admitted int64) {
	h.fallbackAdmitted.Add(admitted)
	h.fallbackDenied.Add(n - admitted)
}

// claimProbe reports whether a request may make the due probe of a node that is away. If the scheduler has
// not sent the probe a Target later, another request may claim it.
func (h *health) claimProbe(now clock.Instant) bool {
	last := h.probeAsked.Load()
	return !h.breaker.Holds(now) && now.Sub(clock.Instant(last)) >= h.target &&
		h.probeAsked.CompareAndSwap(last, int64(now))
}

// failed records the failure of a call sent at time sent, and reports whether an outage of the node begins.
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

// rtt returns the 99th percentile of the round trips to n, or 0 before the first reply.
func (n *storeNode) rtt() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rules.RTT()
}

// shortest returns the shortest round trip; see node.Node.
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

// gate reports whether a call to n may be sent now, and the next time when any call may be sent.
func (n *storeNode) gate(now clock.Instant, urgent bool) (ok bool, next clock.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rules.Gate(now, urgent), n.rules.Next()
}

// hold records that an urgent call is held back until node n has room for the call.
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

func (n *storeNode) do(f func(*rules)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(&n.rules)
}

// sent records that b is sent now, and sets the timer that finds late batches to n.
func (n *storeNode) sent(b *batch) {
	now := n.m.cfg.Clock.Now()
	since := now
	if b.Draws {
		since = b.calls[0].Owner.(*draw).state.Sent
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

// lookLocked sets the timer for look, unless the timer fires earlier anyway.
func (n *storeNode) lookLocked(now clock.Instant) {
	at := n.rules.LookAt()
	switch {
	case at >= n.lookAt:
		return
	case n.lookTimer == nil:
		n.lookTimer = n.m.cfg.Clock.AfterFunc(at.Sub(now), n.look)
	default:
		n.lookTimer.Reset(at.Sub(now))
	}
	n.lookAt = at
}

func (n *storeNode) look() {
	now := n.m.cfg.Clock.Now()
	n.mu.Lock()
	due, forgotten := n.rules.Late(now)
	n.lookAt = protocol.Never
	n.lookLocked(now)
	n.mu.Unlock()
	for _, b := range forgotten {
		b.Owner.(*batch).cancel()
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
	n.do(func(r *rules) { r.Join(d, d.state.Sent) })
	n.depart()
}

// depart sends the draws that may be sent now, and fails draws that cannot be sent in time.
func (n *storeNode) depart() {
	now := n.m.cfg.Clock.Now()
	n.mu.Lock()
	draws, stranded, again := n.rules.Depart(now)
	if again > 0 && !n.departArmed {
		n.departArmed = true
		if n.departTimer == nil {
			n.departTimer = n.m.cfg.Clock.AfterFunc(again, n.departAgain)
		} else {
			n.departTimer.Reset(again)
		}
	}
	n.mu.Unlock()
	for _, d := range stranded {
		d.abandon(&d.call, now, n.lastError())
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
	n.departArmed = false
	n.mu.Unlock()
	n.depart()
}

func (n *storeNode) newBatch() *batch {
	b := &batch{to: n}
	b.Owner = b
	return b
}

// nodes has the nodes of the store. A slow node delays only its own keys.
type nodes struct {
	first       *nodes // nodes of class 0, whose health other classes share; nil in class 0
	m           *member
	target, ttl time.Duration
	mu          sync.Mutex
	all         []*storeNode // storeNodes in the order of their numbers, from nodeUnknown on
}

func (n *nodes) node(number int) *storeNode {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := max(number, nodeUnknown) - nodeUnknown
	for i >= len(n.all) {
		number := len(n.all) + nodeUnknown
		added := &storeNode{m: n.m, number: int32(number), lookAt: protocol.Never}
		if n.first != nil {
			added.health = n.first.node(number).health
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

// stats returns the state of every node that any Limiter of the process has called.
func (n *nodes) stats(now clock.Instant) (all []NodeStats) {
	for _, number := range n.m.outages.Numbers() {
		n.node(number)
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
		return all[1:] // only calls before the first reply went to the unknown node
	}
	return all
}
