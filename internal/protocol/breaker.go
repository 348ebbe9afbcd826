package protocol

import (
	"cmp"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Breaker tracks whether one node of a store answers, for all keys of one process on that node
// (docs/protocol.md section 8.12). The user calls Admit before each call, and Answered or Failed after each
// call. Goroutines may share a Breaker.
type Breaker struct {
	target, ttl time.Duration

	// state is written with mu held. Requests read state without a lock.
	state  atomic.Int32
	active atomic.Int64 // see Active; written with mu held
	server atomic.Int64 // the server's clock minus the process's clock, in microseconds; 0 if unknown

	mu       sync.Mutex
	activeAt clock.Instant // when active was last written
	part     float64       // this process's mean part of the load of a key, by Memory.byCalls
	counted  int           // number of replies averaged in part, at most partsMost
	random   uint64
	aliveAt  clock.Instant // when the latest answered call was sent
	failedAt clock.Instant // when the call that began the outage was sent
	failures int           // number of failed probes in a row
	probeAt  clock.Instant // when the next probe may be sent
	probing  bool          // a probe has been under way since probeAt
	awaited  bool          // Turn has picked a key for the probe at probeAt
	since    clock.Instant // start of the recovery
	calls    float64       // calls admitted since the recovery began
}

// The states of a Breaker's node.
const (
	nodeWell       int32 = iota
	nodeAway             // a call has failed, and no call sent since was answered
	nodeRecovering       // the node answers again, for less than rampTargets Targets
)

// For rampTargets Targets after an outage, a process makes at most rampCalls*(2^x-1) + 1 calls in x Targets.
const (
	rampCalls   = 100
	rampTargets = 10
)

// probeTTLs is the number of TTLs after which a probe counts as lost. No call lasts that long (8.15).
const probeTTLs = 5

// NewBreaker returns the Breaker of a node that answers. Pauses between probes double up to ttl.
func NewBreaker(target, ttl time.Duration, seed uint64) *Breaker {
	return &Breaker{target: max(target, 1), ttl: max(ttl, 1), random: seed}
}

// well reports whether Admit admits every call, by one atomic load.
func (b *Breaker) well() bool { return b.state.Load() == nodeWell }

// Away reports whether the node is away (8.12).
func (b *Breaker) Away() bool { return b.state.Load() == nodeAway }

// Holds reports whether Admit would refuse a call now.
func (b *Breaker) Holds(now clock.Instant) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.admitsLocked(now)
}

func (b *Breaker) admitsLocked(now clock.Instant) bool {
	switch b.state.Load() {
	case nodeAway:
		// A probe that was under way for probeTTLs is lost: its key is gone.
		return now >= b.probeAt && (!b.probing || now >= b.probeAt.Add(probeTTLs*b.ttl))
	case nodeRecovering:
		x := float64(now.Sub(b.since)) / float64(b.target)
		return x >= rampTargets || b.calls < 1+float64(rampCalls*(math.Exp2(x)-1))
	}
	return true
}

// Admit reports whether a call may be sent now, and counts the call. After a refusal the caller calls Turn.
func (b *Breaker) Admit(now clock.Instant) bool {
	if b.well() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.admitsLocked(now) {
		return false
	}
	switch b.calls++; {
	case b.state.Load() == nodeAway:
		b.probing, b.probeAt = true, now
	case b.state.Load() == nodeRecovering && now >= b.since.Add(rampTargets*b.target):
		b.state.Store(nodeWell)
	}
	return true
}

// Turn returns when to call Admit again for a key that Admit has just refused. Turn picks the key that probes
// next.
func (b *Breaker) Turn(now clock.Instant) clock.Instant {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.state.Load() == nodeWell:
		return now + 1
	case b.state.Load() != nodeAway:
		return now.Add(1 + b.upTo(b.target))
	case !b.probing && !b.awaited:
		b.awaited = true
		return max(now+1, b.probeAt)
	}
	// The key that is to send the probe may be gone, so another key calls Admit soon after probeAt.
	return max(now, b.probeAt).Add(1 + b.upTo(min(b.ttl, exact.TTLPerTarget*b.target)))
}

// Answered records that the node has answered a call sent at sent, even with an error about the key alone.
// Answered reports whether the answer ends an outage; the answer to a call sent before the failure does not.
func (b *Breaker) Answered(now, sent clock.Instant) (recovered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.aliveAt = max(b.aliveAt, sent)
	if !b.Away() || sent < b.failedAt {
		return false
	}
	b.failures, b.probing, b.since, b.calls = 0, false, now, 0
	b.state.Store(nodeRecovering)
	return true
}

// Failed records that a call sent at sent has failed, and reports whether the failure begins an outage. If
// the node has answered a call sent at sent or later, the failure changes nothing.
func (b *Breaker) Failed(now, sent clock.Instant) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	away := b.Away()
	if b.aliveAt > 0 && sent <= b.aliveAt || away && !(b.probing && sent >= b.probeAt) {
		return false
	}
	if !away {
		b.failedAt = sent
	}
	b.failures++
	b.probing, b.awaited = false, false
	b.probeAt = now.Add(b.upTo(backoff(b.failures, b.target, b.ttl)))
	b.state.Store(nodeAway)
	return !away
}

// NodeFailed reports whether err may be the node's fault. Errors about one key or call are answers.
func NodeFailed(err error) bool {
	for _, own := range [...]error{
		lease.ErrKey, lease.ErrStale, lease.ErrInvalidRequest, lease.ErrInvalidConfig,
	} {
		if errors.Is(err, own) {
			return false
		}
	}
	return err != nil
}

// Heard records the active weight that a reply for any key of the node named.
func (b *Breaker) Heard(now clock.Instant, active int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heardLocked(now, active)
}

// heardCalls records a reply whose active weight may leave out processes (8.14). named is the active weight
// in the reply, byCalls the result of Memory.byCalls. It averages the part, because one key may be used more
// by others.
func (b *Breaker) heardCalls(now clock.Instant, weight, named, byCalls int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if byCalls > 0 {
		b.counted = min(b.counted+1, partsMost)
		b.part += (float64(weight)/float64(byCalls) - b.part) / float64(b.counted)
		named = max(named, int64(math.Round(float64(weight)/b.part)))
	}
	if byCalls > 0 || named > b.Active() {
		b.heardLocked(now, named)
	}
}

// partsMost is the largest number of replies that the mean part averages.
const partsMost = 64

func (b *Breaker) heardLocked(now clock.Instant, active int64) {
	if active >= b.active.Load() || now > b.activeAt.Add(activeFor*b.ttl) {
		b.active.Store(active)
		b.activeAt = now
	}
}

// Active returns the largest active weight of the last activeFor TTLs, or else the last; 0 for none.
func (b *Breaker) Active() int64 {
	return b.active.Load()
}

// heardServer records the server's clock, in microseconds, from a reply that arrived at now.
func (b *Breaker) heardServer(now clock.Instant, server int64) {
	b.server.Store(cmp.Or(server-int64(now)/1000, 1)) // 0 would mean unknown; 1 µs more does no harm
}

// Server estimates the server's clock at now, in microseconds; 0 before the first reply.
func (b *Breaker) Server(now clock.Instant) int64 {
	if ahead := b.server.Load(); ahead != 0 {
		return int64(now)/1000 + ahead
	}
	return 0
}

// backoff returns the longest pause after this number of failures in a row, from two Targets up to a TTL. The
// pause itself is random, so that the processes of a fleet do not retry at the same time.
func backoff(failures int, target, ttl time.Duration) time.Duration {
	if failures < 30 {
		return max(1, min(target<<failures, ttl))
	}
	return max(1, ttl)
}

func (b *Breaker) upTo(span time.Duration) time.Duration {
	return time.Duration(splitmix(&b.random) % uint64(span))
}

// splitmix returns the next number of splitmix64 (Steele, Lea, Flood 2014).
func splitmix(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// activeFor is the number of TTLs for which the largest active weight counts. A process that calls about once
// per TTL is at times missing from the active weight: the parts of all processes then exceed 1.
const activeFor = 10
