package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// settings has a Client's host and policy, the proposal of its process, and the configuration in force by the
// last reply. All parts of the Client embed it.
type settings struct {
	host        Host
	policy      *lease.Policy // may be shared
	callTimeout time.Duration
	random      uint64

	own    *lease.Config // this process's proposal
	config lease.Config  // configuration in force; if it is not own, with the TTL that it came with
	target time.Duration // Target in force
	rtt    time.Duration // 99th percentile, of the key's node
	weight int64         // weight in the last call
	change change        // change of the bucket other than by its calls
	setTo  []lease.Limit // the limits in force since that change
	// A configuration in a reply to a call sent before then may be this process's earlier one.
	conflictsFrom clock.Instant

	holder *holder
	heard  *Heard // the holder's last reply
}

// change says whether the last reply still holds for the bucket.
type change int8

const (
	unchanged change = iota
	outdated         // limits were set, or the bucket was reset, since the last call was executed
	overtaken        // the same while a call was open: its reply may be outdated too
)

// adopt puts another configuration in force.
func (s *settings) adopt(in lease.Config) {
	s.config, s.target = in, in.Target
	s.heard.limits = in.Limits
}

// follow applies the configuration in the reply g to a call that was first sent at sent.
func (s *settings) follow(g *lease.Grant, sent clock.Instant) {
	in := g.Config
	s.heard.ttl = in.TTL
	if !equal(&in, &s.config) {
		s.adopt(in)
	}
	own := *s.own
	if in.Version.Deploy == own.Version.Deploy && !IsSet(in.Version) {
		own.Version = in.Version
	}
	s.heard.conflict = in.Version == own.Version && !equal(&in, &own) && sent >= s.conflictsFrom
	// An explicit TTL bounds the leases.
	s.target = max(g.Target, s.config.Target)
	if s.policy.TTL > 0 {
		s.target = max(s.config.Target, min(s.target, s.config.TTL/2))
	}
}

// large reports whether the Target in force is longer than the configured one, to save calls.
func (s *settings) large() bool { return s.target > s.config.Target }

// proposal returns the configuration that a call proposes (5.13), with a T that is long enough for the
// present network (8.4): a client whose leases spend more than a quarter of their time in transit starves.
func (s *settings) proposal() lease.Config {
	p := propose(s.own, &s.config, s.rtt)
	if s.large() && s.policy.TTL == 0 {
		p.TTL = max(p.TTL, min(exact.TTLPerTarget*s.target, exact.MaxTTL))
	}
	return p
}

// outdated reports whether the bucket is known to have changed since the last reply.
func (s *settings) outdated() bool { return s.change != unchanged }

// limitsNow returns the limits in force by the last reply, or those set since.
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

// burst returns the part of l's burst that this process can be granted.
func (s *settings) burst(l lease.Limit) int64 { return grantable(l, s.policy.Headroom) }

// perTarget returns R*Target of the tightest limit, at least 1.
func (s *settings) perTarget() float64 {
	n := math.Inf(1)
	for _, l := range s.config.Limits {
		n = min(n, l.Rate()*s.target.Seconds())
	}
	return max(n, 1)
}

// cramped reports whether most of some burst would be in transit (8.6).
func (s *settings) cramped() bool { return crampedBy(s.policy, &s.config, s.rtt) }

// next returns a random number.
func (s *settings) next() uint64 { return splitmix(&s.random) }

// Host is the user of a Client. A Client calls these methods within its own: they must not call back.
type Host interface {
	// Now reads the clock. A check whether a token may still be spent (Policy.StrictExpiry) or put back into
	// the pool needs the present time.
	Now() clock.Instant
	// Wake asks for a Tick soon; urgent reports that a request waits for it.
	Wake(urgent bool)
	// DeniesOne reports that requests for one token are denied until then, when Reopen is due; 0 ends that.
	DeniesOne(until clock.Instant)
	// Handed reports that the waiting request w has been given n tokens.
	Handed(w *Waiter, n int64, from Origin)
	// Passed reports that n tokens drawn for w, and given to it, now belong to to.
	Passed(w, to *Waiter, n int64)
	// Forfeited reports that the tokens given to w so far are lost.
	Forfeited(w *Waiter)
	// Settled ends w's wait. The user may reuse w.
	Settled(w *Waiter, d Decision)
	// Breaker returns the Breaker of the key's present node. Several keys share it.
	Breaker() *Breaker
	// NewID returns another instance id, because another process uses the present one.
	NewID() string
}
