// Package outage keeps which nodes of a Store are away, and tells the log and the Limiters.
package outage

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/lease"
)

// quietFor is how long the log does not repeat that a node is away.
const quietFor = 10 * time.Second

// Node says whether one node of a Store answers. It is away from the first failed call to the first answer,
// whatever keys are in use. Goroutines may share it.
type Node struct {
	of   *Nodes
	name string

	mu       sync.Mutex
	away     bool
	since    clock.Instant // the first call failed then
	failedAt clock.Instant // and was sent then
	aliveAt  clock.Instant // the last call that was answered was sent then
	err      error         // of the last failed call
	told     error         // that the log has; nil before it has the beginning
	toldAt   clock.Instant // of the last beginning in the log
}

// Watcher is a Limiter that calls the nodes. Its functions may not block.
type Watcher struct {
	Clock  clock.Clock
	Logger *slog.Logger // nil means slog.Default()
	Away   func(node string, err error)
	Back   func(node string, after time.Duration)
}

// Name is the name of the node.
func (n *Node) Name() string { return n.name }

// Failed records that a call of w, sent at sent, has failed in a way that means the node is away. The failure of
// a call that is no later than an answered one says nothing about the node. about is added to the log line.
func (n *Node) Failed(w *Watcher, now, sent clock.Instant, err error, about ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.aliveAt > 0 && sent <= n.aliveAt {
		return
	}
	n.err = err
	if !n.away {
		n.away, n.since, n.failedAt, n.told = true, now, sent, nil
		for _, w := range n.of.watching() {
			w.Away(n.name, safetext.Error(err))
		}
		n.tellLocked(w, about)
	} else if n.told != nil && errors.Is(err, lease.ErrPermanent) && !errors.Is(n.told, lease.ErrPermanent) {
		n.tellLocked(w, about) // now an operator must act
	}
}

// tellLocked logs that the node is away: later, if another outage of it was logged not long ago.
func (n *Node) tellLocked(w *Watcher, about []any) {
	now := w.Clock.Now()
	if quiet := n.toldAt.Add(quietFor).Sub(now); n.told == nil && n.toldAt > 0 && quiet > 0 {
		w.Clock.AfterFunc(quiet, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.away && n.told == nil { // also after w has left: the other watchers have no line yet
				n.tellLocked(w, about)
			}
		})
		return
	}
	n.told, n.toldAt = n.err, now
	for _, l := range n.of.loggers() {
		l.With("node", n.name, "error", safetext.Error(n.err)).Warn("hybrid: lease calls fail", about...)
	}
}

func (n *Node) answered(now, sent clock.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.aliveAt = max(n.aliveAt, sent)
	if !n.away || sent < n.failedAt {
		return
	}
	n.away = false
	after := now.Sub(n.since)
	for _, w := range n.of.watching() {
		w.Back(n.name, after)
	}
	if n.told != nil {
		for _, l := range n.of.loggers() {
			l.Info("hybrid: lease calls succeed again", "node", n.name, "after", after)
		}
	}
}

// Why returns the error of the last call that failed; nil if none has.
func (n *Node) Why() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Away returns for how long the node has been away and why, 0 and nil while it answers. called reports whether
// any call to it has ended.
func (n *Node) Away(now clock.Instant) (away time.Duration, why error, called bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away {
		return max(now.Sub(n.since), 1), safetext.Error(n.err), true
	}
	return 0, nil, n.aliveAt > 0
}

// Nodes are the nodes of one Store. All Limiters of the process that call the Store share them: the log names an
// outage once, and a Limiter without requests hears that a node is back.
type Nodes struct {
	store any // its identity
	name  func(number int) string

	mu       sync.Mutex
	watchers []*Watcher
	nodes    map[int]*Node // by number
}

// unknown is the number of a node that stands for all those that are not found yet.
const unknown = -1

var watched = struct {
	sync.Mutex
	by map[any]*Nodes
}{by: make(map[any]*Nodes)}

// Watch returns the nodes of the Store with this identity, which w calls until Leave. name returns the name of the
// node of a number.
func Watch(store any, name func(number int) string, w *Watcher) *Nodes {
	watched.Lock()
	defer watched.Unlock()
	all := watched.by[store]
	if all == nil {
		all = &Nodes{store: store, name: name, nodes: make(map[int]*Node)}
		watched.by[store] = all
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.watchers = append(slices.Clone(all.watchers), w)
	return all
}

// Leave ends what Watch began.
func (all *Nodes) Leave(w *Watcher) {
	watched.Lock()
	defer watched.Unlock()
	all.mu.Lock()
	defer all.mu.Unlock()
	all.watchers = slices.DeleteFunc(slices.Clone(all.watchers), func(x *Watcher) bool { return x == w })
	if len(all.watchers) == 0 {
		delete(watched.by, all.store)
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

// Answered records that n has answered a call sent at sent. The node that stands for unknown ones is back, too.
func (n *Node) Answered(now, sent clock.Instant) {
	n.answered(now, sent)
	n.of.mu.Lock()
	none := n.of.nodes[unknown]
	n.of.mu.Unlock()
	if none != nil && none != n {
		none.answered(now, sent)
	}
}

func (all *Nodes) watching() []*Watcher {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.watchers
}

// loggers are those of the watchers, each once.
func (all *Nodes) loggers() (each []*slog.Logger) {
	for _, w := range all.watching() {
		if l := cmp.Or(w.Logger, slog.Default()); !slices.Contains(each, l) {
			each = append(each, l)
		}
	}
	return each
}
