// Package node has the rules by which one process calls one node of the store: when a batch may be sent,
// which draws the batch carries, which calls are overdue, and how long round trips are (docs/protocol.md,
// sections 8.15 to 8.17).
//
// Package node has no goroutine, timer or lock.
package node

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// Window is the shortest time for which calls to a node are held back to travel together (8.16).
const Window = time.Millisecond

// BatchSize bounds the calls of one batch: a request that waits for one call waits for the whole batch.
const BatchSize = 1000

// BatchesMax bounds the open batches of one node, and so the goroutines of a process.
const BatchesMax = 256

// lateFactor bounds a call, and connectFactor the time until a call is sent, both in CallTimeouts (8.15).
const lateFactor, connectFactor = 10, 5

// Longest returns the longest time for which a request waits for an answer, given CallTimeout.
func Longest(callTimeout time.Duration) time.Duration { return lateFactor * callTimeout }

// Patience returns how long a request waits for a call: a little less than CallTimeout, so that
// Policy.Fallback can answer within CallTimeout.
func Patience(callTimeout time.Duration) time.Duration { return callTimeout - callTimeout/16 }

// Node is one node of the store as one process sees it. D is a draw of a key at rest. Init makes a Node
// usable. The caller guards all methods with a lock.
type Node[D any] struct {
	breaker *protocol.Breaker
	timeout time.Duration // CallTimeout
	latency latency
	lately  [5]time.Duration // the latest round trips
	reached int

	sentAt   clock.Instant // when the last batch of leases was sent
	underWay int           // number of batches that have not landed
	open     int           // number of batches that are not over
	urgent   bool          // an urgent call is held back; see Gate

	waiting []waiting[D] // draws that have not been sent, in the order of Join
	drawing int          // number of batches of draws that have not landed
	drewAt  clock.Instant

	batches []*Batch // the batches that are not over, in the order in which they were sent
	lookAt  clock.Instant
}

type waiting[D any] struct {
	draw  D
	since clock.Instant
}

// Init makes n usable. Nodes may share a breaker.
func (n *Node[D]) Init(breaker *protocol.Breaker, callTimeout time.Duration) {
	n.breaker, n.timeout, n.lookAt = breaker, callTimeout, protocol.Never
}

// RTT returns the 99th percentile of the round trips; 0 before the first one.
func (n *Node[D]) RTT() time.Duration { return n.latency.p99 }

// Shortest returns the shortest of the last five round trips, or 0 if there were fewer. A long distance makes
// all round trips long, but a lack of CPU only some.
func (n *Node[D]) Shortest() time.Duration { return slices.Min(n.lately[:]) }

// Gate reports whether a call may be sent now. Any call may be sent from Next on, an urgent call also while
// no batch is under way.
func (n *Node[D]) Gate(now clock.Instant, urgent bool) bool {
	return now >= n.Next() || urgent && n.underWay == 0
}

// Next returns when any call may be sent.
func (n *Node[D]) Next() clock.Instant { return n.sentAt.Add(n.window()) }

// window returns how long calls are held back: half the median of the latest round trips, at least Window, at
// most half of CallTimeout. Long round trips on a busy CPU thus make larger batches, which cost less CPU.
func (n *Node[D]) window() time.Duration {
	sorted := n.lately
	slices.Sort(sorted[:])
	return max(Window, min(sorted[len(sorted)/2], n.timeout)/2)
}

// Hold records that an urgent call is held back. If no batch is under way any more, Hold returns true
// instead, and the call may be sent at once.
func (n *Node[D]) Hold() (free bool) {
	n.urgent = n.underWay > 0
	return !n.urgent
}

// Open reports whether another batch may be made. The batch counts as open until Over or Cancel.
func (n *Node[D]) Open() bool {
	if n.open >= BatchesMax {
		return false
	}
	n.open++
	return true
}

// Full reports whether BatchesMax batches are open.
func (n *Node[D]) Full() bool { return n.open >= BatchesMax }

// Cancel ends a batch that was not sent.
func (n *Node[D]) Cancel() { n.open-- }

// Join adds the draw d, for a request that arrived at since, to the waiting draws.
func (n *Node[D]) Join(d D, since clock.Instant) { n.waiting = append(n.waiting, waiting[D]{d, since}) }

// Depart starts a batch and returns its draws. Waiting draws are sent as soon as no batch of draws is under
// way, or window() after the last batch of draws. The stranded draws will not be sent: the node is away, or
// the draws have waited for CallTimeout. If again is above 0, the caller calls Depart again after that time.
func (n *Node[D]) Depart(now clock.Instant) (batch, stranded []D, again time.Duration) {
	since := now.Add(-n.timeout)
	for len(n.waiting) > 0 && (n.breaker.Away() || n.waiting[0].since <= since) {
		stranded = append(stranded, n.waiting[0].draw)
		n.waiting = n.waiting[1:]
	}
	if len(n.waiting) == 0 {
		return nil, stranded, 0
	}
	next := n.drewAt.Add(n.window())
	if n.drawing > 0 && now < next && len(n.waiting) < BatchSize {
		return nil, stranded, max(next.Sub(now), Window/8)
	}
	if !n.Open() {
		return nil, stranded, max(next.Sub(now), Window/8)
	}
	size := min(len(n.waiting), BatchSize)
	for _, w := range n.waiting[:size] {
		batch = append(batch, w.draw)
	}
	n.waiting = append(make([]waiting[D], 0, size), n.waiting[size:]...)
	if len(n.waiting) > 0 {
		again = Window / 8
	}
	n.drawing++
	n.drewAt = now
	return batch, stranded, again
}

// Reached records a round trip that took d and brought an answer at now.
func (n *Node[D]) Reached(now clock.Instant, d time.Duration) {
	n.latency.add(now, d)
	n.lately[n.reached%len(n.lately)] = d
	n.reached++
}

const (
	// latencySamples is the number of samples that are kept. The 99th percentile is the second largest
	// sample, or the largest of fewer than latencyFew samples.
	latencySamples, latencyFew = 128, 16
	// latencySpan is the time for which a sample counts.
	latencySpan = 3 * time.Second
)

// latency estimates the 99th percentile of the latest round trips. The latest latencyFew samples always
// count.
type latency struct {
	samples [latencySamples]struct {
		took time.Duration
		at   clock.Instant
	}
	n      int
	p99    time.Duration
	looked clock.Instant // time when p99 was last computed
}

func (l *latency) add(now clock.Instant, d time.Duration) {
	s := &l.samples[l.n%latencySamples]
	s.took, s.at = d, now
	l.n++
	// Compute p99 at once after a rise, otherwise at every eighth sample or after latencySpan/8.
	if l.n%8 != 1 && d <= l.p99 && now.Sub(l.looked) < latencySpan/8 {
		return
	}
	l.looked = now
	var first, second time.Duration // the two largest samples
	have := 0
	for ; have < min(l.n, latencySamples); have++ {
		s := &l.samples[(l.n-1-have)%latencySamples]
		if have >= latencyFew && now.Sub(s.at) > latencySpan {
			break
		}
		first, second = max(first, s.took), max(second, min(first, s.took))
	}
	// use the second largest sample, so that one stall changes nothing
	if l.p99 = first; have >= latencyFew {
		l.p99 = second
	}
}
