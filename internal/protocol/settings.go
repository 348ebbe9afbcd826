package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// settings has the user and the policy of a Client, the proposal of its process, and the configuration in
// force as far as it has heard. All parts of the Client embed it.
type settings struct {
	host        Host
	policy      *lease.Policy // may be shared
	callTimeout time.Duration
	random      uint64

	own    *lease.Config // what this process proposes
	config lease.Config  // in force; where that is not own, with the TTL that it came with
	target time.Duration // in force
	rtt    time.Duration // 99th percentile, of the key's node
	weight int64         // of the last call
	change change        // of the bucket, by others than its calls
	setTo  []lease.Limit // the limits in force since that change
	// Another configuration in force is only what this process proposed before, by calls sent before then.
	conflictsFrom clock.Instant

	holder *holder
	heard  *Heard // of holder
}

// change says whether what was last heard of the bucket is still true of it.
type change int8

const (
	unchanged change = iota
	outdated         // limits were set, or the bucket was reset, since the last call was executed
	overtaken        // the same, and a call was open: its reply may not know either
)

// adopt has another configuration in force.
func (s *settings) adopt(in lease.Config) {
	s.config, s.target = in, in.Target
	s.heard.limits = in.Limits
}

// follow takes in what the reply g to a call, which was first sent at sent, has in force.
func (s *settings) follow(g *lease.Grant, sent clock.Instant) {
	in := g.Config
	s.heard.ttl = in.TTL
	if !equal(&in, &s.config) {
		s.adopt(in)
	}
	own := *s.own
	if in.Version.Deploy == own.Version.Deploy && !in.Version.Set() {
		own.Version = in.Version
	}
	s.heard.conflict = in.Version == own.Version && !equal(&in, &own) && sent >= s.conflictsFrom
	// Leases of a TTL that was set explicitly are no longer.
	s.target = max(g.Target, s.config.Target)
	if s.policy.TTL > 0 {
		s.target = max(s.config.Target, min(s.target, s.config.TTL/2))
	}
}

// large reports whether the Target in force is longer than the configured one, to save calls.
func (s *settings) large() bool { return s.target > s.config.Target }

// proposal is the configuration that a call proposes: what this process was told to, unless a newer
// one is in force, which survives the loss of the bucket so. One of an equal version is not
// proposed, or it would be in force for ever (6.9). T is made long enough for the network as it is
// now (8.4): a client whose leases spend more than a quarter of their time on the way starves.
func (s *settings) proposal() lease.Config {
	p := propose(s.own, &s.config, s.rtt)
	if s.large() && s.policy.TTL == 0 {
		p.TTL = max(p.TTL, min(lease.TTLPerTarget*s.target, lease.TTLMax))
	}
	return p
}

// outdated reports whether the bucket is known to have been changed since the last reply was made.
func (s *settings) outdated() bool { return s.change != unchanged }

// limitsNow are the limits in force as last heard, or those that were set since.
func (s *settings) limitsNow() []lease.Limit {
	if s.outdated() {
		return s.setTo
	}
	return s.config.Limits
}

// admitsNone reports whether Blocked is in force, and admitsAll whether Unlimited is.
func (s *settings) admitsNone() bool { return SwitchOf(s.limitsNow()) == SwitchBlocked }

func (s *settings) admitsAll() bool { return SwitchOf(s.limitsNow()) == SwitchUnlimited }

// alone reports whether no other process is known to draw from the bucket.
func (s *settings) alone() bool { return s.heard.replied && s.heard.active <= s.weight }

// burst is the part of l's burst that this process can be granted; what a reply says of the levels
// is less by the rest, too.
func (s *settings) burst(l lease.Limit) int64 { return grantable(l, s.policy.Headroom) }

// perTarget is R*Target of the tightest limit, at least 1.
func (s *settings) perTarget() float64 {
	n := math.Inf(1)
	for _, l := range s.config.Limits {
		n = min(n, l.Rate()*s.target.Seconds())
	}
	return max(n, 1)
}

// cramped reports whether most of the burst, below four round trips' refill, would be on its way.
func (s *settings) cramped() bool { return crampedBy(s.policy, &s.config, s.rtt) }

// next returns a random number.
func (s *settings) next() uint64 { return splitmix(&s.random) }

// Host is the user of a Client. Its methods are called while the Client is, so they may not call it.
type Host interface {
	// Now reads the clock: whether a token may still be spent (Policy.StrictExpiry), or put back into
	// the pool, cannot rest on what the time was a moment ago.
	Now() clock.Instant
	// Wake asks for a Tick soon; urgent says that a request waits for it.
	Wake(urgent bool)
	// Shut says that requests for one token are denied until then, when Reopen is due; 0 ends that.
	Shut(until clock.Instant)
	// Handed says that the waiting request w has been given n tokens.
	Handed(w *Waiter, n int64, from Origin)
	// Passed says that n tokens which were drawn for w, and given to it, are to's.
	Passed(w, to *Waiter, n int64)
	// Forfeited says that what w has been given so far is lost.
	Forfeited(w *Waiter)
	// Settled ends w's wait. w is the user's again.
	Settled(w *Waiter, d Decision)
	// Breaker is that of the node that serves the key now. Several keys share it.
	Breaker() *Breaker
	// NewID returns another instance id, because another process calls under the present one.
	NewID() string
}
