package hybrid

import (
	"cmp"
	"context"
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

// storeNode is one node of the store as a member sees it: a node.Node behind a lock.
type storeNode struct {
	*health
	of     *nodes
	number int32 // the node's number in the store

	mu          sync.Mutex
	rules       rules
	lookTimer   clock.Timer   // timer that calls look; nil before the first batch
	lookAt      clock.Instant // time when lookTimer fires; Never if lookTimer is stopped
	departTimer clock.Timer   // timer that calls depart; nil before its first use
	departArmed bool          // whether departTimer runs

	sendRound uint64 // number of the scheduler's last round with a batch to the node
}

// isKnown returns false for the storeNode of keys whose node is unknown.
func (n *storeNode) isKnown() bool { return n.number != nodeUnknown }

type rules = node.Node[waitingDraw]

// waitingDraw is the call of a draw that a request made at the time since.
type waitingDraw struct {
	*lease.Call
	since clock.Instant
}

type batch struct {
	node.Batch
	to         *storeNode
	calls      []*lease.Call
	since      clock.Instant // time of the first request of a batch of draws
	isProbe    bool          // whether the batch has a probe of a node that is away
	cancel     func()        // makes the store stop waiting for the batch
	unanswered atomic.Int64  // number of calls without an answer
}

// health records whether a node answers. All members of a Limiter share the health of a node.
type health struct {
	*outage.Node
	target     time.Duration // lease.Config.Target of most keys
	breaker    *protocol.Breaker
	probeAsked atomic.Int64 // time of the last claimProbe that returned true

	fallbacks
}

func (h *health) lastError() error { return cmp.Or(h.Node.Why(), errOverdue) }

func (h *health) answered(now, sent clock.Instant) {
	h.breaker.Answered(now, sent)
	h.Node.Answered(now, sent)
}

// claimProbe reports whether a request for a key at rest may make the due probe of a node that is away. If
// the probe was not sent, another request may claim it a Target later.
func (h *health) claimProbe(now clock.Instant) bool {
	last := h.probeAsked.Load()
	return !h.breaker.Holds(now) && now.Sub(clock.Instant(last)) >= h.target &&
		h.probeAsked.CompareAndSwap(last, int64(now))
}

// failed records the failure of a call sent at time sent. If an outage begins, all calls under way to the
// node fail, also those of other members.
func (n *storeNode) failed(now, sent clock.Instant, err error) {
	opened := n.breaker.Failed(now, sent)
	if n.breaker.Away() {
		var about []any
		if n.breaker.Active() == 0 {
			does := "denies"
			if n.of.cfg.Policy.ColdStart == ColdStartAllow {
				does = "admits"
			}
			about = []any{"cold_start", does + " every request until the store first replies"}
		}
		n.Node.Failed(n.of.watcher, now, sent, err, about...)
	}
	if opened {
		for _, side := range n.of.members() {
			for _, b := range side.node(int(n.number)).batches() {
				b.abandon(n.health, now, err)
			}
		}
	}
}

func ask[T any](n *storeNode, f func(*rules) T) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return f(&n.rules)
}

func (n *storeNode) rtt() time.Duration { return ask(n, (*rules).RTT) }

func (n *storeNode) shortest() time.Duration { return ask(n, (*rules).Shortest) }

// gate reports whether a call to n may be sent now, and returns the next time when any call may be sent.
func (n *storeNode) gate(now clock.Instant, urgent bool) (ok bool, next clock.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rules.Gate(now, urgent), n.rules.Next()
}

func (n *storeNode) hold() {
	if ask(n, (*rules).Hold) {
		n.of.hurry()
	}
}

func (n *storeNode) do(f func(*rules)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(&n.rules)
}

func (n *storeNode) sent(b *batch) {
	now := n.of.cfg.Clock.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules.Send(&b.Batch, now, b.since)
	n.lookLocked(now)
}

func (n *storeNode) landed(b *batch) {
	n.mu.Lock()
	free := n.rules.Landed(&b.Batch)
	n.mu.Unlock()
	if free {
		n.of.hurry()
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

// lookLocked sets the timer for look, unless the timer fires early enough.
func (n *storeNode) lookLocked(now clock.Instant) {
	at := n.rules.LookAt()
	switch {
	case at >= n.lookAt:
		return
	case n.lookTimer == nil:
		n.lookTimer = n.of.cfg.Clock.AfterFunc(at.Sub(now), n.look)
	default:
		n.lookTimer.Reset(at.Sub(now))
	}
	n.lookAt = at
}

func (n *storeNode) look() {
	now := n.of.cfg.Clock.Now()
	n.mu.Lock()
	due, forgotten := n.rules.Late(now)
	n.lookAt = protocol.Never
	n.lookLocked(now)
	n.mu.Unlock()
	for _, b := range forgotten {
		b.Owner.(*batch).cancel()
	}
	for _, b := range due {
		b.Owner.(*batch).overdue(now)
	}
}

func (n *storeNode) again(b *batch, now, at clock.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules.Again(&b.Batch, at)
	n.lookLocked(now)
}

// join sends c, the call of a draw that began at since, with n's next batch of draws.
func (n *storeNode) join(c *lease.Call, since clock.Instant) {
	n.do(func(r *rules) { r.Join(waitingDraw{c, since}, since) })
	n.depart()
}

// depart sends the draws that may be sent now, and fails the draws that cannot be sent in time.
func (n *storeNode) depart() {
	now := n.of.cfg.Clock.Now()
	n.mu.Lock()
	draws, stranded, again := n.rules.Depart(now)
	if again > 0 && !n.departArmed {
		n.departArmed = true
		if n.departTimer == nil {
			n.departTimer = n.of.cfg.Clock.AfterFunc(again, n.departAgain)
		} else {
			n.departTimer.Reset(again)
		}
	}
	n.mu.Unlock()
	for _, d := range stranded {
		d.Owner.(caller).abandon(d.Call, now, n.lastError())
	}
	if len(draws) > 0 {
		b := n.newBatch()
		b.Draws, b.since = true, draws[0].since
		for _, d := range draws {
			b.calls = append(b.calls, d.Call)
		}
		b.send()
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

// caller is the owner of a call, which handles the call's outcome: an entry, or a draw of a key at rest.
type caller interface {
	// receive handles the call c that n has answered, and returns the granted tokens.
	receive(c *lease.Call, n *storeNode, now clock.Instant) (granted int64)
	// overdue reports whether the overdue call c is still under way. An entry takes over an overdue draw.
	overdue(c *lease.Call) (underWay bool)
	// abandon fails c with err, unless c has been answered.
	abandon(c *lease.Call, now clock.Instant, err error)
	// calledNode returns the node that admitted the last call, even if the key has moved to another node.
	calledNode() *storeNode
	name() string
}

func (b *batch) send() {
	n := b.to
	if len(b.calls) == 0 {
		n.do((*rules).Cancel)
		return
	}
	ctx, cancel := context.WithCancel(n.of.ctx)
	b.cancel = cancel
	b.unanswered.Store(int64(len(b.calls)))
	n.of.observer.calls.Add(int64(len(b.calls)))
	n.sent(b)
	sent := b.Sent()
	if n.breaker.Away() && !b.isProbe { // an outage has begun since the batch was built
		b.abandon(n.health, sent, n.lastError())
	}
	go func() {
		defer n.landed(b)
		n.of.store.Exchange(ctx, b.calls, func(group []*lease.Call) {
			n.landed(b) // call landed before any answer, so that the next call is not held back
			n.of.answered(group, sent)
			if b.unanswered.Add(-int64(len(group))) > 0 {
				return
			}
			// The last answer ends the batch; Exchange may return later.
			cancel()
			n.do(func(r *rules) { r.Over(&b.Batch) })
		})
	}()
}

// answered handles calls of one batch that one node has answered, or that have failed.
func (n *nodes) answered(group []*lease.Call, sent clock.Instant) {
	now := n.cfg.Clock.Now()
	n.observer.roundTrips.Add(1)
	var answeredNode, failedNode *storeNode // nodes whose answer or failure was recorded last
	for _, c := range group {
		to, called := n.node(c.Node), c.Owner.(caller).calledNode()
		if protocol.NodeFailed(c.Err) {
			if !called.isKnown() && called.breaker.Away() {
				called.failed(now, sent, c.Err) // the failed call may have been the probe of the unknown node
			}
			continue
		}
		if answeredNode != to {
			answeredNode = to
			to.answered(now, sent)
		}
		if called != to && !called.isKnown() { // the answer ends the outage of the unknown node
			called.answered(now, sent)
			if c.Err == nil {
				called.breaker.Heard(now, max(c.Grant.ActiveWeight, to.breaker.Active()))
			}
		}
	}
	reached := false
	for _, c := range group {
		to := n.node(c.Node)
		if c.Err == nil && !reached { // only an answer measures the network
			to.do(func(r *rules) { r.Reached(now, max(0, now.Sub(sent)-c.Before)) })
			reached = true
		}
		if protocol.NodeFailed(c.Err) && failedNode != to {
			failedNode = to
			to.failed(now, sent, c.Err)
		}
		owner := c.Owner.(caller)
		if granted := owner.receive(c, to, now); granted > 0 && n.cfg.Events.Granted != nil {
			n.cfg.Events.Granted(owner.name(), granted)
		}
	}
}

// abandon fails the calls of b to the node with the health h.
func (b *batch) abandon(h *health, now clock.Instant, err error) {
	for _, c := range b.calls {
		if owner := c.Owner.(caller); owner.calledNode().health == h {
			owner.abandon(c, now, err)
		}
	}
}

// overdue makes entries take over b's draws, and fails the calls that had no answer in time.
func (b *batch) overdue(now clock.Instant) {
	var late []*lease.Call
	again := protocol.Never
	for _, c := range b.calls {
		if !c.Owner.(caller).overdue(c) || !b.Overdue(now) {
			continue
		}
		if fails := b.Fails(now, c.Unsent() == nil, c.SentAfter()); fails > now {
			again = min(again, fails)
		} else {
			late = append(late, c)
		}
	}
	b.to.again(b, now, again)
	for _, c := range late { // record failures first: abandon looks whether the node is away
		c.Owner.(caller).calledNode().failed(now, b.Sent(), overdueAs(c))
	}
	for _, c := range late {
		c.Owner.(caller).abandon(c, now, overdueAs(c))
	}
}

// overdueAs returns the error of an overdue call, with the reason if the call was never sent.
func overdueAs(c *lease.Call) error {
	if why := c.Unsent(); why != nil {
		return fmt.Errorf("%w: %w", errOverdue, why)
	}
	return errOverdue
}

// nodes has the nodes of the store as one member sees them.
type nodes struct {
	cfg         *Config
	ctx         context.Context // canceled by Close
	store       lease.Store
	observer    *observer
	outages     *outage.Nodes
	watcher     *outage.Watcher
	target, ttl time.Duration   // lease.Config.Target and TTL of most keys
	first       *nodes          // nodes of class 0, which have the health of all classes; nil in class 0
	members     func() []*nodes // nodes of all members
	hurry       func()          // sends calls that were held back

	mu  sync.Mutex
	all []*storeNode // storeNodes in the order of their numbers, from nodeUnknown on
}

func (n *nodes) node(number int) *storeNode {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := max(number, nodeUnknown) - nodeUnknown
	for i >= len(n.all) {
		number := len(n.all) + nodeUnknown
		added := &storeNode{of: n, number: int32(number), lookAt: protocol.Never}
		if n.first != nil {
			added.health = n.first.node(number).health
		} else {
			added.health = &health{
				Node: n.outages.Node(number), target: n.target,
				breaker: protocol.NewBreaker(n.target, n.ttl, rand.Uint64()),
			}
		}
		added.rules.Init(added.breaker, n.cfg.CallTimeout)
		n.all = append(n.all, added)
	}
	return n.all[i]
}

func (n *nodes) worst() (rtt time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.all {
		rtt = max(rtt, one.rtt())
	}
	return rtt
}

func (n *nodes) stats(now clock.Instant) (all []NodeStats) {
	for _, number := range n.outages.Numbers() {
		n.node(number)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.all {
		away, called, why := one.Away(now)
		st := NodeStats{one.Name(), away, why, one.admitted.Load(), one.denied.Load()}
		if called || st.Fallback != 0 || st.FallbackDenied != 0 {
			all = append(all, st)
		}
	}
	if len(all) > 1 && all[0] == (NodeStats{Node: unknownNode}) {
		return all[1:] // omit the unknown node, which has nothing to report
	}
	return all
}
