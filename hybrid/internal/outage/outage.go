// Package outage records which nodes of a Store are away, and reports outages to the log and the Limiters.
package outage

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid/internal/events"
	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/lease"
)

// quietFor is the shortest time between two log lines that a node is away.
const quietFor = 10 * time.Second

// Node records whether one node of a Store answers. A node is away from a failed call to the next answer.
type Node struct {
	of   *Nodes
	name string

	// of.mu guards the fields below.
	away      bool
	since     clock.Instant // when the first call failed
	failedAt  clock.Instant // when the first failed call was sent
	aliveAt   clock.Instant // when the latest answered call was sent
	err       error         // error of the last failed call
	loggedErr error         // error in the log line about the present outage; nil before the line
	loggedAt  clock.Instant // time of the last log line about the start of an outage
}

// Watcher is a Limiter that calls the nodes. Away, Back and Logger may read the nodes.
type Watcher struct {
	Clock  clock.Clock
	Logger *slog.Logger // nil means slog.Default()
	Away   func(node string, err error)
	Back   func(node string, after time.Duration)
}

// Name returns the node's name.
func (n *Node) Name() string { return n.name }

// Failed records that a call of w, sent at sent, has failed. The node is then away, unless it has answered a
// call sent at or after sent. about is added to the log line.
func (n *Node) Failed(w *Watcher, now, sent clock.Instant, err error, about ...any) {
	defer n.of.queue.Run()
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	if n.aliveAt > 0 && sent <= n.aliveAt {
		return
	}
	n.err = err
	if !n.away {
		n.away, n.since, n.failedAt, n.loggedErr = true, now, sent, nil
		for _, w := range n.of.watchers {
			n.tellAwayLocked(w)
		}
		n.logLocked(w, about)
	} else if n.loggedErr != nil && errors.Is(err, lease.ErrPermanent) && !errors.Is(n.loggedErr, lease.ErrPermanent) {
		n.logLocked(w, about) // ErrPermanent means that an operator must act
	}
}

func (n *Node) tellAwayLocked(w *Watcher) {
	err := safetext.Error(n.err)
	n.of.queue.Add(func() { w.Away(n.name, err) })
}

// logLocked logs that the node is away, at the earliest quietFor after the last such line.
func (n *Node) logLocked(w *Watcher, about []any) {
	now := w.Clock.Now()
	if quiet := n.loggedAt.Add(quietFor).Sub(now); n.loggedErr == nil && n.loggedAt > 0 && quiet > 0 {
		w.Clock.AfterFunc(quiet, func() {
			defer n.of.queue.Run()
			n.of.mu.Lock()
			defer n.of.mu.Unlock()
			if n.away && n.loggedErr == nil { // even if w has left, because other watchers have no line yet
				n.logLocked(w, about)
			}
		})
		return
	}
	n.loggedErr, n.loggedAt = n.err, now
	err := safetext.Error(n.err)
	for _, l := range n.of.loggersLocked() {
		n.of.queue.Add(func() { l.With("node", n.name, "error", err).Warn("hybrid: lease calls fail", about...) })
	}
}

func (n *Node) answeredLocked(now, sent clock.Instant) {
	n.aliveAt = max(n.aliveAt, sent)
	if !n.away || sent < n.failedAt {
		return
	}
	n.away = false
	after := now.Sub(n.since)
	for _, w := range n.of.watchers {
		n.of.queue.Add(func() { w.Back(n.name, after) })
	}
	if n.loggedErr == nil {
		return
	}
	for _, l := range n.of.loggersLocked() {
		n.of.queue.Add(func() { l.Info("hybrid: lease calls succeed again", "node", n.name, "after", after) })
	}
}

// Answered records that n has answered a call sent at sent, and ends an outage of the unknown node too.
func (n *Node) Answered(now, sent clock.Instant) {
	defer n.of.queue.Run()
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	n.answeredLocked(now, sent)
	if none := n.of.nodes[unknown]; none != nil && none != n {
		none.answeredLocked(now, sent)
	}
}

// Why returns the error of the last failed call, or nil.
func (n *Node) Why() error {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	return n.err
}

// Away returns for how long and why the node has been away, or 0 and nil while the node answers. called
// reports whether a call to the node has ended.
func (n *Node) Away(now clock.Instant) (away time.Duration, called bool, why error) {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	if n.away {
		return max(now.Sub(n.since), 1), true, safetext.Error(n.err)
	}
	return 0, n.aliveAt > 0, nil
}

// Nodes has the nodes of one Store. All Limiters of the process that call the Store by one clock share one
// Nodes: the log reports an outage once, and a Limiter without requests learns that a node is back.
type Nodes struct {
	key  key
	name func(number int) string

	mu       sync.Mutex
	watchers []*Watcher
	nodes    map[int]*Node // by number
	queue    events.Queue  // calls to the watchers and their loggers
}

// unknown is the number of the node of keys whose node is not known yet.
const unknown = -1

// key is a Store and the clock of its calls.
type key struct{ store, clock any }

var watched = struct {
	sync.Mutex
	by map[key]*Nodes
}{by: make(map[key]*Nodes)}

// Watch returns the Nodes of the Store with the identity store and the clock with the identity clock, and
// reports outages to w until Leave. name returns a node's name.
func Watch(store, clock any, name func(number int) string, w *Watcher) *Nodes {
	watched.Lock()
	k := key{store, clock}
	all := watched.by[k]
	if all == nil {
		all = &Nodes{key: k, name: name, nodes: make(map[int]*Node)}
		watched.by[k] = all
	}
	all.mu.Lock()
	watched.Unlock() // unlock before any call to a watcher
	defer all.queue.Run()
	defer all.mu.Unlock()
	all.watchers = append(all.watchers, w)
	for _, n := range all.nodes {
		if n.away {
			n.tellAwayLocked(w)
		}
	}
	return all
}

// Leave ends the reports to w.
func (all *Nodes) Leave(w *Watcher) {
	watched.Lock()
	defer watched.Unlock()
	all.mu.Lock()
	defer all.mu.Unlock()
	all.watchers = slices.DeleteFunc(all.watchers, func(x *Watcher) bool { return x == w })
	if len(all.watchers) == 0 {
		delete(watched.by, all.key)
	}
}

// Node returns the node of this number.
func (all *Nodes) Node(number int) *Node {
	all.mu.Lock()
	defer all.mu.Unlock()
	n := all.nodes[number]
	if n == nil {
		n = &Node{of: all, name: all.name(number)}
		all.nodes[number] = n
	}
	return n
}

// Numbers returns the numbers of all nodes that a Limiter has called.
func (all *Nodes) Numbers() []int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.Collect(maps.Keys(all.nodes))
}

// loggersLocked returns the loggers of the watchers, each once.
func (all *Nodes) loggersLocked() (each []*slog.Logger) {
	for _, w := range all.watchers {
		if l := cmp.Or(w.Logger, slog.Default()); !slices.Contains(each, l) {
			each = append(each, l)
		}
	}
	return each
}
