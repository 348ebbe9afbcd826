package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// settings has a Client's host, policy and proposal, and the configuration in force by the last reply. All
// parts of a Client except holder embed settings.
type settings struct {
	host        Host
	policy      *lease.Policy // may be shared
	callTimeout time.Duration
	random      uint64

	own    *lease.Config // this process's proposal
	config lease.Config  // configuration in force, with the TTL of the first reply that named it
	target time.Duration // Target in force
	rtt    time.Duration // 99th percentile of the round trips to the key's node
	weight int64         // this process's weight
	change change        // whether the last reply still describes the bucket
	setTo  []lease.Limit // the limits in force since the change
	// The reply to a call sent before conflictsFrom may name an earlier proposal.
	conflictsFrom clock.Instant

	holder *holder
	heard  *Heard // the last reply to the holder
}

// change says whether the last reply still describes the bucket.
type change int8

const (
	unchanged change = iota
	outdated         // limits were set, or the bucket was reset, since the last reply
	overtaken        // outdated, and the reply to the open call may be outdated too
)

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
	// An explicit Policy.TTL bounds the Target in force (8.3).
	s.target = max(g.Target, s.config.Target)
	if s.policy.TTL > 0 {
		s.target = max(s.config.Target, min(s.target, s.config.TTL/2))
	}
}

// ttl returns the T in force.
func (s *settings) ttl() time.Duration { return s.heard.ttl }

// large reports whether a large fleet makes the Target in force longer than the configured Target (7.8).
func (s *settings) large() bool { return s.target > s.config.Target }

// proposal returns the configuration that a call proposes (5.13, 8.4).
func (s *settings) proposal() lease.Config {
	p := propose(s.own, &s.config, s.rtt)
	if s.large() && s.policy.TTL == 0 {
		p.TTL = max(p.TTL, min(exact.TTLPerTarget*s.target, exact.MaxTTL))
	}
	return p
}

// ask returns the demand of a call that wants no tokens yet.
func (s *settings) ask(now clock.Instant) ask {
	return ask{
		Config: s.proposal(), Weight: s.weight, Headroom: s.policy.Headroom,
		Server: s.host.Breaker().Server(now),
	}
}

// outdated reports whether the bucket was reset or reconfigured since the last reply.
func (s *settings) outdated() bool { return s.change != unchanged }

// limitsNow returns the limits set since the last reply or, if none were set, the limits of that reply.
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

// burst returns the burst of l less the headroom.
func (s *settings) burst(l lease.Limit) int64 { return grantable(l, s.policy.Headroom) }

// perTarget returns how many tokens the slowest limit refills in a Target, at least 1.
func (s *settings) perTarget() float64 {
	n := math.Inf(1)
	for _, l := range s.config.Limits {
		n = min(n, l.Rate()*s.target.Seconds())
	}
	return max(n, 1)
}

func (s *settings) next() uint64 { return splitmix(&s.random) }

// Host is the user of a Client. The methods of a Client call the Host, which must not call the Client.
type Host interface {
	// Now reads the clock, for checks that need the present time: whether a token may be spent
	// (Policy.StrictExpiry) or put back into the pool.
	Now() clock.Instant
	// Wake asks for a Tick soon; urgent means that a request waits.
	Wake(urgent bool)
	// DeniesOne reports that requests for one token are denied until Reopen is due; 0 ends the denial.
	DeniesOne(until clock.Instant)
	// Handed reports that the waiting request w has got n tokens.
	Handed(w *Waiter, n int64, from Origin)
	// Passed reports that n tokens that were handed to w now belong to the request to.
	Passed(w, to *Waiter, n int64)
	// Forfeited reports that the tokens handed to w so far are lost.
	Forfeited(w *Waiter)
	// Settled reports that w no longer waits, and d is the answer. The user may reuse w.
	Settled(w *Waiter, d Decision)
	// Breaker returns the Breaker of the key's present node, which all keys on the node share.
	Breaker() *Breaker
	// NewID returns a new instance id, because another process uses the present one.
	NewID() string
}
