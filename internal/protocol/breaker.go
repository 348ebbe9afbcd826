package protocol

import (
	"cmp"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Breaker says of one node of a store, for all keys of one process on it, whether calls to the node are
// worth waiting for (docs/protocol.md section 8.12). After the first failed call the node is away: no
// request waits for it, and one call at a time goes out to see whether it is back. Once it has answered,
// calls come back in numbers that double with each Target, so that ten thousand keys do not call it at one
// moment. A node that no probe was sent to for a while is in doubt: requests wait for it again, and its
// calls come in the same numbers.
//
// Its user tells it what became of calls, and asks Admit before each. Goroutines may share it.
type Breaker struct {
	target, ttl time.Duration

	// state is written with mu held. It is read without, so that a well node costs its keys one load.
	state   atomic.Int32
	doubtAt atomic.Int64 // a clock.Instant: a node that is away is in doubt from then on
	active  atomic.Int64 // see Active; written with mu held
	server  atomic.Int64 // how far the server's clock is ahead of the process's, in microseconds; 0 for not known

	mu       sync.Mutex
	activeAt clock.Instant // when active was heard
	part     float64       // mean part of this process in keys, by Memory.byCalls
	counted  int           // replies in part, at most partsMost
	random   uint64
	aliveAt  clock.Instant // when the last call was sent that the node has answered
	failedAt clock.Instant // when the call was sent whose failure began the outage
	failures int           // of probes, in a row
	probeAt  clock.Instant // when the next probe may go out
	probing  bool          // one is under way, since probeAt
	awaited  bool          // a key comes at probeAt to send it
	since    clock.Instant // the recovery, or a Target before the doubt
	calls    float64       // since then
}

// The states of a Breaker's node.
const (
	nodeWell       int32 = iota
	nodeAway             // it has answered no call that was sent since one failed
	nodeDoubted          // it was away, no probe went out for a while, and now calls do
	nodeRecovering       // it has answered, less than rampTargets ago
)

// After an outage one process makes at most rampCalls*(2^x-1) + 1 calls to a node within x Targets,
// and after rampTargets as many as it likes.
const (
	rampCalls   = 100
	rampTargets = 10
)

// probeTTLs is how many TTLs a probe may be under way at most: longer than any call (8.15).
const probeTTLs = 5

// NewBreaker returns the Breaker of a node that is well. The pauses between probes grow from target
// to ttl, a Config.TTL; seed is that of their jitter.
func NewBreaker(target, ttl time.Duration, seed uint64) *Breaker {
	return &Breaker{target: max(target, 1), ttl: max(ttl, 1), random: seed}
}

// Suspect reports whether the node has answered no call since one failed, be it in doubt by now.
func (b *Breaker) Suspect() bool {
	state := b.state.Load()
	return state == nodeAway || state == nodeDoubted
}

// silence is how long after the time of a probe that nothing asked for an outage still counts.
// Steady requests never see such a gap, so they do not wait for calls of an outage that goes on.
func silence(target, ttl time.Duration) time.Duration { return min(ttl, lease.TTLPerTarget*target) }

// well reports whether the node is well, at the cost of one load.
func (b *Breaker) well() bool { return b.state.Load() == nodeWell }

// Away reports whether the node is away. No request waits for a call to it then.
func (b *Breaker) Away(now clock.Instant) bool {
	return !b.well() && b.state.Load() == nodeAway && now < clock.Instant(b.doubtAt.Load())
}

// Holds reports whether Admit would refuse a call now: a node that has just come back takes few calls.
func (b *Breaker) Holds(now clock.Instant) bool {
	if b.well() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.admitsLocked(now)
}

func (b *Breaker) admitsLocked(now clock.Instant) bool {
	switch b.state.Load() {
	case nodeAway:
		// A probe of which nothing was heard for so long has been forgotten: its key has left.
		return now >= b.probeAt && (!b.probing || now >= b.probeAt.Add(probeTTLs*b.ttl))
	case nodeDoubted, nodeRecovering:
		x := float64(now.Sub(b.since)) / float64(b.target)
		return x >= rampTargets || b.calls < 1+float64(rampCalls*(math.Exp2(x)-1))
	}
	return true
}

// Admit reports whether a call may go out now, and counts it; Answered or Failed is to follow. A refused
// caller may ask again at the time that Turn says.
func (b *Breaker) Admit(now clock.Instant) bool {
	if b.well() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Load() == nodeAway && now >= clock.Instant(b.doubtAt.Load()) {
		b.probing, b.since, b.calls = false, now.Add(-b.target), 0
		b.state.Store(nodeDoubted)
	}
	if !b.admitsLocked(now) {
		return false
	}
	switch b.calls++; {
	case b.state.Load() == nodeAway:
		b.probing, b.probeAt = true, now
		b.doubtAt.Store(int64(now.Add(probeTTLs*b.ttl + silence(b.target, b.ttl))))
	case b.state.Load() == nodeRecovering && now >= b.since.Add(rampTargets*b.target):
		b.state.Store(nodeWell)
	}
	return true
}

// Turn is when a key whose call Admit has just refused may ask again. One key comes when the next
// probe is due, the others are spread over the time after it.
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
	// A TTL may be long, and the one key that is awaited may have gone.
	return max(now, b.probeAt).Add(1 + b.upTo(silence(b.target, b.ttl)))
}

// Answered says that the node has answered a call that was sent then, be it with an error of the key
// alone. It reports whether that ends an outage: the answer to a call from before the failure does not.
func (b *Breaker) Answered(now, sent clock.Instant) (recovered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.aliveAt = max(b.aliveAt, sent)
	was := b.state.Load()
	if was != nodeAway && was != nodeDoubted || sent < b.failedAt {
		return false
	}
	b.failures, b.probing = 0, false
	if was == nodeAway {
		b.since, b.calls = now, 0
	}
	b.state.Store(nodeRecovering)
	return true
}

// Failed says that a call has failed that was sent then, in a way that may be the node's, and
// reports whether that begins an outage. It says nothing about a node that has answered a call
// which was sent at the same time or later: then the failure is the call's own.
func (b *Breaker) Failed(now, sent clock.Instant) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.state.Load()
	away := was == nodeAway
	if b.aliveAt > 0 && sent <= b.aliveAt || away && !(b.probing && sent >= b.probeAt) ||
		was == nodeDoubted && sent < b.since.Add(b.target) {
		return false
	}
	if !away {
		b.failedAt = sent
	}
	b.failures++
	b.probing, b.awaited = false, false
	b.probeAt = now.Add(b.upTo(backoff(b.failures, b.target, b.ttl)))
	b.doubtAt.Store(int64(b.probeAt.Add(silence(b.target, b.ttl))))
	b.state.Store(nodeAway)
	return !away
}

// Stuck says that no call can be sent now, since as many as may be are under way, and reports
// whether the node is away. One in doubt is: no call would tell.
func (b *Breaker) Stuck(now clock.Instant) (away bool) {
	if !b.Suspect() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.state.Load()
	if was == nodeDoubted || was == nodeAway && now >= clock.Instant(b.doubtAt.Load()) {
		b.probing, b.probeAt = false, now
		b.doubtAt.Store(int64(now.Add(silence(b.target, b.ttl))))
		b.state.Store(nodeAway)
	}
	return b.state.Load() == nodeAway
}

// NodeFailed reports whether err, of a call, may be the fault of the node: not where the node has
// answered, and what it said is about the key or the call.
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

// Heard notes the sum of weights that a reply for any key of the node has named.
func (b *Breaker) Heard(now clock.Instant, active int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heardLocked(now, active)
}

// heardCalls notes a reply that does not name all processes: the sum of weights that it named to a process
// of weight, and the result of Memory.byCalls for its key. The node has the mean part of such keys, as the
// smallest part may be that of a key which other processes use more.
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

// partsMost is the largest number of replies in the mean part.
const partsMost = 64

func (b *Breaker) heardLocked(now clock.Instant, active int64) {
	if active >= b.active.Load() || now > b.activeAt.Add(activeFor*b.ttl) {
		b.active.Store(active)
		b.activeAt = now
	}
}

// Active returns the largest sum that Heard was told of in the last ten TTLs, or the last one; 0
// before the first.
func (b *Breaker) Active() int64 {
	return b.active.Load()
}

// heardServer notes the server's clock, in microseconds, as a reply had it that came now.
func (b *Breaker) heardServer(now clock.Instant, server int64) {
	b.server.Store(cmp.Or(server-int64(now)/1000, 1)) // a microsecond is nothing here
}

// Server returns the server's clock at now, in microseconds, about; 0 if no reply has told it.
func (b *Breaker) Server(now clock.Instant) int64 {
	if ahead := b.server.Load(); ahead != 0 {
		return int64(now)/1000 + ahead
	}
	return 0
}

// backoff is the longest pause after that number of failures in a row: it grows from two Targets to a TTL.
// The pause itself is random, so that a fleet that lost its store does not come back at one moment.
func backoff(failures int, target, ttl time.Duration) time.Duration {
	if failures < 30 {
		return max(1, min(target<<failures, ttl))
	}
	return max(1, ttl)
}

func (b *Breaker) upTo(span time.Duration) time.Duration {
	return time.Duration(splitmix(&b.random) % uint64(span))
}

// splitmix is the next number of splitmix64 (Steele, Lea, Flood 2014).
func splitmix(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// activeFor is for how many TTLs the largest active weight counts. A process that calls about once in
// a TTL is not counted now and then, and the parts would add up to more than 1.
const activeFor = 10
