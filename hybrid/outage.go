package hybrid

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/lease"
)

// outage says whether one node of a Store answers. The node is away from the first failed call to the first
// answer, whatever keys are in use. All Limiters of the process that share the Store share its outages: the
// log names an outage once, and a Limiter without requests hears that the node is back.
type outage struct {
	of   *outages
	node string

	mu       sync.Mutex
	away     bool
	since    clock.Instant // the first call failed then
	failedAt clock.Instant // and was sent then
	aliveAt  clock.Instant // the last call that was answered was sent then
	err      error         // of the last failed call
	told     error         // that the log has; nil before it has the beginning
	toldAt   clock.Instant // of the last beginning in the log
}

// failed takes in that a call has failed which was sent then, as calls fail where a node is away. The failure of
// a call that is no later than an answered one says nothing about the node.
func (n *outage) failed(o *observer, now, sent clock.Instant, err error, cold bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.aliveAt > 0 && sent <= n.aliveAt {
		return
	}
	n.err = err
	if !n.away {
		n.away, n.since, n.failedAt, n.told = true, now, sent, nil
		n.of.announce(func(e *Events) func() {
			if e.NodeAway == nil {
				return nil
			}
			return func() { e.NodeAway(n.node, safetext.Error(err)) }
		})
		n.tellLocked(o, cold)
	} else if n.told != nil && errors.Is(err, lease.ErrPermanent) && !errors.Is(n.told, lease.ErrPermanent) {
		n.tellLocked(o, cold) // now an operator must act
	}
}

// tellLocked logs that the node is away: later, if another outage of it was logged not long ago.
func (n *outage) tellLocked(o *observer, cold bool) {
	now := o.cfg.Clock.Now()
	if quiet := n.toldAt.Add(quietFor).Sub(now); n.told == nil && n.toldAt > 0 && quiet > 0 {
		o.cfg.Clock.AfterFunc(quiet, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.away && n.told == nil && o.ctx.Err() == nil {
				n.tellLocked(o, cold)
			}
		})
		return
	}
	n.told, n.toldAt = n.err, now
	said := []any{"node", n.node, "error", safetext.Error(n.err)}
	if cold {
		does := "denies"
		if o.cfg.Policy.ColdStart == ColdStartAllow {
			does = "admits"
		}
		said = append(said, "cold_start", does+" every request until the store first replies")
	}
	for _, l := range n.of.loggers() {
		l.Warn("hybrid: lease calls fail", said...)
	}
}

// answered takes in that the node has answered a call which was sent then.
func (n *outage) answered(now, sent clock.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.aliveAt = max(n.aliveAt, sent)
	if !n.away || sent < n.failedAt {
		return
	}
	n.away = false
	after := now.Sub(n.since)
	n.of.announce(func(e *Events) func() {
		if e.NodeBack == nil {
			return nil
		}
		return func() { e.NodeBack(n.node, after) }
	})
	if n.told != nil {
		for _, l := range n.of.loggers() {
			l.Info("hybrid: lease calls succeed again", "node", n.node, "after", after)
		}
	}
}

// why is the error of the last call that failed.
func (n *outage) why() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return cmp.Or(n.err, errOverdue)
}

// stats says what Stats tells of the node; ok is false where nothing was ever asked of it.
func (n *outage) stats(now clock.Instant) (st NodeStats, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	st.Node = n.node
	if n.away {
		st.Away, st.Err = max(now.Sub(n.since), 1), safetext.Error(n.err)
	}
	return st, n.away || n.aliveAt > 0
}

// outages are those of the nodes of one Store, for its open Limiters.
type outages struct {
	store    Store
	identity any // of the Store
	mu       sync.Mutex
	open     []*observer // of the Limiters
	nodes    []*outage   // from nodeUnknown on
}

// watched are the outages of the Stores that have an open Limiter.
var watched = struct {
	sync.Mutex
	by map[any]*outages
}{by: make(map[any]*outages)}

// watch returns the outages of store, which a Limiter with this observer shares from now on.
func watch(store Store, o *observer) *outages {
	id := storeIdentity(store)
	watched.Lock()
	defer watched.Unlock()
	all := watched.by[id]
	if all == nil {
		all = &outages{store: store, identity: id}
		watched.by[id] = all
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.open = append(slices.Clone(all.open), o)
	return all
}

// leave ends what watch began.
func (all *outages) leave(o *observer) {
	watched.Lock()
	defer watched.Unlock()
	all.mu.Lock()
	defer all.mu.Unlock()
	all.open = slices.DeleteFunc(slices.Clone(all.open), func(x *observer) bool { return x == o })
	if len(all.open) == 0 {
		delete(watched.by, all.identity)
	}
}

// node returns the outage of the node of this number.
func (all *outages) node(number int) *outage {
	all.mu.Lock()
	defer all.mu.Unlock()
	i := number - nodeUnknown
	for i >= len(all.nodes) {
		all.nodes = append(all.nodes, nil)
	}
	if all.nodes[i] == nil {
		all.nodes[i] = &outage{of: all, node: nodeName(all.store, number)}
	}
	return all.nodes[i]
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

// answered takes in that a node has answered a call which was sent then. So the Store is found, too.
func (all *outages) answered(n *outage, now, sent clock.Instant) {
	n.answered(now, sent)
	all.mu.Lock()
	var unknown *outage
	if len(all.nodes) > 0 {
		unknown = all.nodes[0]
	}
	all.mu.Unlock()
	if unknown != nil && unknown != n {
		unknown.answered(now, sent)
	}
}

func (all *outages) limiters() []*observer {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.open
}

// loggers are those of the Limiters, each once.
func (all *outages) loggers() (each []*slog.Logger) {
	for _, o := range all.limiters() {
		if l := cmp.Or(o.cfg.Logger, slog.Default()); !slices.Contains(each, l) {
			each = append(each, l)
		}
	}
	return each
}

// announce runs one event of each Limiter, after those that it queued before, on another goroutine: a hook may
// be slow, and requests wait for the caller.
func (all *outages) announce(event func(*Events) func()) {
	for _, o := range all.limiters() {
		if f := event(&o.cfg.Events); f != nil {
			o.queue.add(f)
			go o.queue.run()
		}
	}
}

// health is one node as a Limiter sees it. All its members share it: requests of one do not wait for what
// another has found out.
type health struct {
	*outage
	target     time.Duration // Config.Target of most keys
	breaker    *protocol.Breaker
	probeAsked atomic.Int64 // when a key that is not in use was let through for a probe

	fallbackAdmitted, fallbackDenied atomic.Int64 // tokens, by Policy.Fallback and ColdStart
}

// answered says that the node has answered a call that was sent then.
func (h *health) answered(now, sent clock.Instant) {
	h.breaker.Answered(now, sent)
	h.of.answered(h.outage, now, sent)
}

// failed says that a call has failed which was sent then, and reports whether the node is away from now on.
func (h *health) failed(o *observer, now, sent clock.Instant, err error) (opened bool) {
	opened = h.breaker.Failed(now, sent)
	if h.breaker.Suspect() {
		h.outage.failed(o, now, sent, err, h.breaker.Active() == 0)
	}
	return opened
}

// decided counts what was decided without the store: n tokens were asked for, and took admitted.
func (h *health) decided(n, took int64) {
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
