package lease

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// Client is one process's side of one key: the Holder, which knows when to call the bucket and how
// much to ask for, and the requests that wait for its tokens. Its rules are section 9 of
// docs/protocol.md. It is a state machine without goroutines and I/O, and its user tells it the
// time.
//
// Requests take tokens from Pool. One that the pool refuses goes to Decide, and from there perhaps
// to Enqueue. Tick says when a call is due and Build makes it. Its reply goes to Accept and then to
// Serve, its failure to Fail. The package comment shows this loop.
//
// Pool's takes, Low, ShutUntil and Capacity are for any number of goroutines. Everything else is
// serialised by a lock of the user's.
//
// The zero value is not usable; see Start.
type Client struct {
	Holder

	host        Host
	callTimeout time.Duration
	decidesAll  bool // see ClientConfig

	shutUntil atomic.Int64 // requests for one token are denied before that Instant; 0 where they are not
	tookLow   atomic.Bool  // a Take has reported low since the last Tick
	queue     queue
	refused   int64 // the largest n refused without queueing since the last call

	resets     int   // of the bucket that are under way: who waits is not turned away meanwhile
	returnFrom int64 // then calls give everything back, until one with this seq or a later one has ended
	ended      int64 // the highest seq of a call that has ended

	usedSeen int64         // attempts when restAt was set
	restAt   clock.Instant // when the key may go to rest, if it stays unused; 0 while it is in use
}

// ClientConfig is what a Client starts with. The Policy and the proposed Config were validated
// before.
type ClientConfig struct {
	ID          string  // the instance id; differs between processes
	Policy      *Policy // may be shared
	Proposed    Config  // see Policy.ConfigFor
	CallTimeout time.Duration
	Seed        uint64 // of the jitter
	// Stripes is the number of Ps (runtime.GOMAXPROCS): where several take at once the Pool serves
	// each from a part of its own. Which take reports low then depends on the scheduler, so a
	// simulation leaves it 0.
	Stripes int
	// DecidesAll has every refused request come to Decide. Otherwise the pool says Denied by itself
	// while the bucket is known to be empty, which is much faster.
	DecidesAll bool
}

// Host is what uses a Client. Its methods are called while the Client is, so they may not call it.
type Host interface {
	// Now reads the clock. A Client is told the time, but some decisions cannot rest on what it was
	// a moment ago: whether a token may still be spent (Policy.StrictExpiry), or put back into the
	// pool.
	Now() clock.Instant
	// Wake asks for a Tick soon; urgent says that a request waits for it.
	Wake(urgent bool)
	// Shut says that requests for one token are denied until then, and Reopen is to be called at
	// that time; 0 takes that back.
	Shut(until clock.Instant)
	// Handed says that the waiting request w has been given n tokens.
	Handed(w *Waiter, n int64, from Origin)
	// Forfeited says that what w has been given so far is lost.
	Forfeited(w *Waiter)
	// Settled ends w's wait. w is the user's again.
	Settled(w *Waiter, d Decision)
	// NewID returns another instance id, because somebody else calls under the present one.
	NewID() string
}

// Origin says where the tokens come from that a waiting request is given.
type Origin int8

const (
	FromGrant Origin = iota // drawn for waiting requests: admitted when the bucket granted them
	FromPool                // leased to this process, and spent now
)

// Start makes c a cold client.
func (c *Client) Start(now clock.Instant, host Host, cfg ClientConfig) {
	c.host, c.callTimeout, c.decidesAll = host, cfg.CallTimeout, cfg.DecidesAll
	c.start(now, cfg)
}

// Low notes that a Take has reported low; the user calls Tick soon. For any number of goroutines.
func (c *Client) Low() { c.tookLow.Store(true) }

// Due is what Tick found.
type Due struct {
	Call bool          // build a call
	At   clock.Instant // call Tick again, at the latest
	Use  Use
}

// Use is how far a key has come on the way to rest.
type Use int8

const (
	InUse    Use = iota
	UseEnded     // just now: nothing is held or owed, and nobody waits
	Unused       // for a while
	Restable     // for a TTL, and nothing is due: Rest may succeed
)

// Tick lets time pass up to now and says what is due. rtt is the 99th percentile of the round trips
// to the key's node, 0 where it is not known. A client that was leaving may be closed afterwards.
func (c *Client) Tick(now clock.Instant, rtt time.Duration) Due {
	if c.tookLow.Load() {
		c.tookLow.Store(false)
		c.low = true
	}
	if c.stage == leaving && c.Idle() {
		c.Close()
	}
	if c.stage == closed {
		return Due{At: Never, Use: Unused}
	}
	in := c.input(rtt)
	c.advance(now, in)
	var d Due
	d.Call, d.At = c.due(now, in)
	if c.queue.inLine > 0 && c.Degraded() {
		d.At = min(d.At, c.serveWithout(now))
	}
	c.use(now, &d)
	return d
}

// use says how far the key has come on the way to rest, and sees to it that a Tick comes in time.
func (c *Client) use(now clock.Instant, d *Due) {
	if d.Call || !c.Forgettable() {
		c.restAt = 0
		return
	}
	d.Use = Unused
	if seen := c.attempts(); c.restAt == 0 || seen != c.usedSeen {
		c.restAt, c.usedSeen = now.Add(c.TTL()), seen
		d.Use = UseEnded
	} else if now >= c.restAt && d.At == Never {
		d.Use = Restable
	}
	if now < c.restAt {
		d.At = min(d.At, c.restAt)
	}
}

// Forgettable reports whether c may be forgotten: it holds nothing, owes nothing and nobody waits.
// At most a denial would be lost, which the next request would learn again.
func (c *Client) Forgettable() bool { return c.stage != closed && c.queue.head == nil && c.Idle() }

// input is what the Holder cannot know. Where a round trip takes as long as CallTimeout, requests
// that wait for one call will have gone when it is answered. They count as refused then, so that
// what is drawn goes to the pool, for whoever asks at that time.
func (c *Client) input(rtt time.Duration) Input {
	in := Input{RTT: rtt, Refused: c.refused}
	in.Closing = c.stage == leaving || c.resets > 0 && !c.HasEnded(c.returnFrom)
	lacking := c.queue.lacking
	if rtt >= c.callTimeout {
		lacking = c.queue.lackingInLine
		in.Refused += c.queue.lacking - lacking
	}
	in.Waiting = max(0, lacking-c.Pool.Held())
	return in
}

// Build opens the call that Tick found due; see Holder.Build.
func (c *Client) Build(now clock.Instant, seq int64, rtt time.Duration) *Request {
	in := c.input(rtt)
	if c.queue.head != nil {
		in.Need = max(1, c.queue.need(c.portion())-c.Pool.Held())
	}
	r := c.Holder.Build(now, seq, in)
	if r.Seq == seq {
		c.queue.join(seq)
		c.refused = 0
	}
	return r
}

// Accept takes in the reply to the call under way, or a late one to it after Fail; ok is false for
// any other, which changes nothing. Serve is to follow.
func (c *Client) Accept(now clock.Instant, g *Grant) (got Accepted, ok bool) {
	if got, ok = c.Holder.Accept(now, g, c.queue.lackingInLine); ok {
		c.ended = max(c.ended, g.Seq)
		c.judgeDenial(now)
	}
	return got, ok
}

// Serve hands out what an accepted reply brought, and ends the waits that are in vain by what it
// says.
func (c *Client) Serve(now clock.Instant, got Accepted) {
	c.distribute(now, got)
	c.turnAway(now)
}

// Fail says that the call under way brought no grant. Whoever waits gets what Policy.Fallback
// gives. A client that was leaving is closed: what it holds expires at the bucket.
func (c *Client) Fail(now clock.Instant, err error) {
	c.ended = max(c.ended, c.open.Seq)
	c.Holder.Fail(now, err)
	if errors.Is(err, ErrStale) {
		c.rename(c.host.NewID())
		if !c.Degraded() && c.stage != leaving {
			return // whoever waits is served under the new id
		}
	}
	c.serveWithout(now)
	if c.stage == leaving {
		c.Close()
	}
}

// BeginReset has calls give everything back, so that a reset of the bucket finds it there: until a
// call with this seq or a later one has ended, or EndReset is called. Nobody is turned away
// meanwhile.
func (c *Client) BeginReset(seq int64) {
	c.resets++
	c.returnFrom = seq
}

// EndReset ends what BeginReset began.
func (c *Client) EndReset() { c.resets-- }

// HasEnded reports whether a call with this seq or a later one has been answered or has failed.
func (c *Client) HasEnded(seq int64) bool { return c.ended >= seq }

// BucketChanged is Holder.BucketChanged, after which no request is denied in advance.
func (c *Client) BucketChanged(capacity int64) {
	c.Holder.BucketChanged(capacity)
	c.reopen()
}

// Leave begins to give everything back. Whoever waits is told VerdictClosed. Tick or Fail closes
// the client in the end.
func (c *Client) Leave() {
	c.stage = leaving
	c.settleAll(Decision{Verdict: VerdictClosed})
	c.host.Wake(true)
}

// Close ends the client at once. Whoever waits is told VerdictClosed; what is held is burnt here,
// and expires at the bucket.
func (c *Client) Close() {
	if c.stage == closed {
		return
	}
	c.reopen()
	c.settleAll(Decision{Verdict: VerdictClosed})
	c.Holder.Close()
}

// HasWaiters reports whether any request waits.
func (c *Client) HasWaiters() bool { return c.queue.head != nil }

// Waiters calls f for every request that waits, in the order in which they came.
func (c *Client) Waiters(f func(*Waiter)) {
	for w := c.queue.head; w != nil; w = w.next {
		f(w)
	}
}
