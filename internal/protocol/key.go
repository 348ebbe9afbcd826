package protocol

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Key is one key of one process in all its states: docs/protocol.md sections 8.13, 8.14 and 8.17.
//
//	resting          -- Draw -->      drawing
//	drawing          -- Drew -->      resting
//	resting, drawing -- Activate -->  active
//	active           -- Rest -->      resting
//	any              -- Leave -->     gone
//
// An active key has a Client, which decides about its requests. A request of one at rest draws, is decided by
// the local share of an unheard key (Fallback), or gives the key a Client. Nothing but these methods changes
// its state.
//
// It is small, since a process may have a million keys at rest. Its user's lock guards it. The zero value is
// at rest and knows nothing.
type Key struct {
	state  keyState
	denied bool // at rest: its last request was denied
	// Given and Node are the user's: whether what is proposed was given to the key's handle, and its node.
	Given bool
	Node  int32

	memory  Memory        // at rest
	own     *lease.Config // at rest: what this process proposes; nil where it is not known
	unheard *Unheard      // at rest: what was decided without the store, for the limits of own; nil for nothing
	draw    *Draw         // under way; nil unless drawing
}

type keyState uint8

const (
	keyResting keyState = iota // has no Client and no draw
	keyDrawing                 // has no Client; a draw is under way
	keyActive                  // has a Client
	keyGone                    // is forgotten
)

// Draw is one request of a key at rest on its way to the store and back. The user sets For, Request and
// Owner.
type Draw struct {
	For     *Waiter        // the request
	Request *lease.Request // to be sent at once, and never again
	Owner   any            // the user's own
	Sent    clock.Instant
	own     *lease.Config // that was proposed by it
}

// AtRest reports whether k has no Client and is not gone.
func (k *Key) AtRest() bool { return k.state == keyResting || k.state == keyDrawing }

// Gone reports whether k is forgotten.
func (k *Key) Gone() bool { return k.state == keyGone }

// UnderWay returns the draw under way; nil where there is none.
func (k *Key) UnderWay() *Draw { return k.draw }

// Way is how a request of a key at rest is answered.
type Way int8

const (
	ByClient Way = iota // a Client decides: Activate
	ByDraw              // by Draw and Drew
	ByShare             // by the local share: Fallback
)

// Asked says how the request a is best answered, at a node that has this breaker.
func (k *Key) Asked(now clock.Instant, a Ask, t *Terms, b *Breaker) Way {
	switch {
	case k.state != keyResting:
		return ByClient
	case b.Away(now):
		if !k.memory.replied && t.decides(b.Active(), a) &&
			(k.unheard == nil || slices.Equal(k.own.Limits, t.Proposed.Limits)) {
			return ByShare
		}
		return ByClient
	case a.Patience != OneCall, 4*t.RTT > t.CallTimeout,
		k.unheard != nil && now < k.unheard.FullAt(t, b.Active()), // a Client tells the bucket what was admitted
		k.own != nil && k.own != t.Proposed && k.memory.recent(now),
		!k.memory.draws(now, a.N, t):
		return ByClient
	}
	return ByDraw
}

// Draw has k begin d, for a request that is answered ByDraw.
func (k *Key) Draw(now clock.Instant, seq int64, t *Terms, d *Draw) {
	d.Sent, d.own = now, t.Proposed
	k.memory.draw(now, seq, d.For.N, t, d.Request)
	k.state, k.draw, k.own, k.unheard = keyDrawing, d, t.Proposed, nil
}

// Drew takes in, at now, the reply g to d from the node of b. It reports whether g admits the request and
// says nothing else that a Client must hear of, and then how the tokens left the bucket. Otherwise k is
// unchanged, and a Client has to take the draw over, unless one has.
func (k *Key) Drew(now clock.Instant, d *Draw, b *Breaker, g *lease.Grant) (from pool.Draw, ok bool) {
	if k.draw != d {
		return from, false
	}
	if from, ok = k.memory.drew(now, d.Sent, b, d.own, d.Request, g); !ok {
		return from, false
	}
	if k.own != d.own { // what is proposed has changed meanwhile
		k.memory.propose(d.own)
	}
	k.state, k.draw, k.denied = keyResting, nil, false
	return from, true
}

// Fallback answers a request ByShare: it takes up to n tokens from the local share of an unheard key, but none
// where there are fewer than least. All processes on the node weigh active.
func (k *Key) Fallback(now clock.Instant, least, n int64, t *Terms, active int64) (took int64, u *Unheard) {
	if k.unheard == nil {
		k.unheard = new(Unheard)
	}
	k.own = t.Proposed
	return k.unheard.take(now, least, n, t, active), k.unheard
}

// Activate has c, which was just started, go on where k is, with the draw d if one is under way.
func (k *Key) Activate(now clock.Instant, c *Client) (d *Draw) {
	if k.memory != (Memory{}) {
		c.recall(k.memory)
	}
	if k.unheard != nil {
		c.meet(now, k.unheard, k.own.Limits)
	}
	if d = k.draw; d != nil {
		c.takeOver(d.Sent, d.Request, d.For)
	}
	*k = Key{state: keyActive, Node: k.Node}
	return d
}

// Rest has k, whose Client ends, remember m, and whether its last request was denied.
func (k *Key) Rest(m Memory, denied bool) {
	*k = Key{state: keyResting, denied: denied, memory: m, Node: k.Node}
}

// Leave ends k.
func (k *Key) Leave() { k.state = keyGone }

// Propose has k propose c from now on, or ask for limits where it is nil. What was proposed is still in
// force, unless something else is known to be.
func (k *Key) Propose(c *lease.Config) {
	k.memory.propose(k.own)
	k.own = c
}

// Own returns the proposal of k; nil where it is not known.
func (k *Key) Own() *lease.Config { return k.own }

// Proposed is Own where k counts as in use; otherwise nil.
func (k *Key) Proposed(now clock.Instant) *lease.Config {
	if k.state != keyDrawing && !k.memory.recent(now) {
		return nil
	}
	return k.own
}

// InUse are the limits in force as far as k knows, where it is at rest and counts as in use; otherwise nil.
func (k *Key) InUse(now clock.Instant) []lease.Limit {
	if k.Proposed(now) == nil {
		return nil
	}
	return k.memory.limits(k.own)
}

// Limits returns the limits that a reply named within the last T; otherwise nil.
func (k *Key) Limits(now clock.Instant) []lease.Limit {
	if !k.memory.recent(now) {
		return nil
	}
	return k.InUse(now)
}

// Owes reports whether k may have admitted requests of which the bucket was not told.
func (k *Key) Owes() bool { return k.unheard != nil }

// Denied reports whether k is at rest and its last request was denied.
func (k *Key) Denied() bool { return k.denied }

// Admits reports whether k is at rest and a draw of it was admitted within a T.
func (k *Key) Admits(now clock.Instant) bool {
	return k.own != nil && !k.denied && k.memory.recent(now)
}

// Lifetime is how long after its last use k may be forgotten, where this process proposed c.
func (k *Key) Lifetime(c *lease.Config) time.Duration { return k.memory.lifetime(c) }
