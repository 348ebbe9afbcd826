package lease

import (
	"errors"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/violation"
)

const (
	// leaseMaxMost bounds the freeze that a buggy caller can cause. leaseMaxMost is above any valid
	// Grant.LeaseMax, which is at most exact.MaxTTL and one slice of the ring.
	leaseMaxMost = 2 * exact.MaxTTL
	// weightMax keeps the sum of a million holders' weights exact.
	weightMax = 1 << 20
	// targetMin is about a round trip: a shorter lease gains no accuracy.
	targetMin = time.Millisecond
	// callsMax is far above what any store executes in a second.
	callsMax = 1_000_000_000
	// overshootMost is a million bursts, far above any useful bound.
	overshootMost = 1_000_000
)

const (
	// With defaultTarget a busy process makes ten lease calls per second, a small load for Redis, and a
	// process that stops loses at most the tokens of a tenth of a second.
	defaultTarget = 100 * time.Millisecond
	// DefaultCallTimeout bounds a request's wait for a lease. A healthy Redis needs a hundredth of that time.
	DefaultCallTimeout = 100 * time.Millisecond
	// defaultCalls is a sixteenth of the calls per second that one Redis can answer.
	defaultCalls = 3_125
)

// Violation describes an invalid field. Path names the field ("Policy.TTL", "Limits[0].Burst"). Value is the
// field's value, or nil if Want says everything. Want is the bound and the remedy. Each Violation wraps the
// sentinel of its package. The errors of Validate, here and in other packages, join Violations: errors.As
// with a *Violation finds the first one, and Unwrap() []error returns all.
type Violation = violation.Violation

// ErrInvalidPolicy is wrapped by every error about an invalid Policy.
var ErrInvalidPolicy = errors.New("lease: invalid policy")

// ColdStart selects the answer before the first reply for a key. In an outage ColdStart applies only to a
// Limiter that has had no reply for any key of the node, and Policy.Fallback to other Limiters. A Ping does
// not count as a reply.
type ColdStart int

const (
	// ColdStartDeny, the default, denies: no request is admitted without a grant of the bucket.
	ColdStartDeny ColdStart = iota
	// ColdStartAllow admits, and reports the tokens as debt with the first call.
	ColdStartAllow
)

// Fallback selects the answer while the store is away and the holding is spent or void. A node of the store
// is away when a call fails or takes longer than 15/16 of CallTimeout, until the node answers a call sent at
// that time or later.
type Fallback int

const (
	// FallbackLocalShare, the default, admits this process's part, by weight, of the tokens left at the last
	// reply and of the rate, so that an outage of Redis does not become an outage of the service. All
	// processes together may exceed the limit a little, mainly when Redis answers again: docs/protocol.md
	// section 1.
	FallbackLocalShare Fallback = iota
	// FallbackDeny denies: the bound holds through any outage. FallbackDeny suits a limit in a contract.
	FallbackDeny
	// FallbackAllowAll admits everything.
	FallbackAllowAll
)

// Source names the side that decided a request.
type Source int

const (
	// SourceLocal means tokens that this process held, or the last reply of the bucket.
	SourceLocal Source = iota
	// SourceStore means the answer to a lease call for this request.
	SourceStore
	// SourceFallback means Policy.Fallback or Policy.ColdStart, because the store did not answer.
	SourceFallback
)

// String returns "local", "store" or "fallback".
func (s Source) String() string { return nameOf("Source", int(s), "local", "store", "fallback") }

// Policy tunes leasing. The zero Policy is a good default, and a zero field means its default. A Policy is a
// value: any goroutine may use a copy.
type Policy struct {
	// Target is how long one lease should last at the observed demand; a process makes about 1/Target lease
	// calls per second. A Target of 0 means 100 ms, or Burst/(4*Rate) if that is less, because longer leases
	// would hold the whole burst. A default Target grows up to 250 ms if more than nine processes share a
	// key: see CallsPerSecond. An explicit Target is reduced to at most (Burst+Overcommit)/(4*Rate).
	Target time.Duration
	// TTL is the time for which a holding is valid without renewal. Tokens held by a process that dies count
	// as spent when the TTL has passed. A TTL of 0 means the larger of 4*Target (three missed renewals) and
	// 2*CallTimeout (a renewal and its retry).
	TTL time.Duration
	// MinBatch is the least number of tokens that a call asks for ahead of demand; 0 means 1. With a MinBatch
	// above 1, rarely used keys lease tokens too, which no other process can use meanwhile.
	MinBatch int64
	// Overcommit is E: the extra tokens by which level and leases together may exceed Burst; 0 keeps the
	// bound of one central bucket. If the burst is small compared with the tokens that all processes hold, an
	// overcommit as large as the burst reduces false rejects; a larger one has no further effect.
	Overcommit int64
	// Weight is this process's share under contention, relative to other weights; 0 means 1.
	Weight int64
	// CallsPerSecond is the number of lease calls per second that all processes together should make for a
	// key. If a fleet would make more calls with its Target, its leases last longer: for n processes at most
	// n/(2n+40) of (Burst+Overcommit)/Rate. To keep to CallsPerSecond, a fleet needs a Burst of about
	// (2n+40)*Rate/CallsPerSecond. The default, 0, means at most 3,125 calls, a sixteenth of the calls that
	// one Redis can answer. If Target is 0 too and no limit is a window, fleets of more than nine processes
	// make fewer calls, as far as that costs no accuracy.
	CallsPerSecond int64 `json:",omitzero"`
	// ColdStart is the answer before the first reply for a key; 0 means ColdStartDeny.
	ColdStart ColdStart
	// Fallback is the answer while the store is away; 0 means FallbackLocalShare.
	Fallback Fallback
	// StartEmpty makes a new bucket start empty and live for 30 days. The loss of a bucket then admits no
	// second burst, only the tokens that were leased.
	StartEmpty bool
	// StrictExpiry reads the monotonic clock on every take, which costs 40 ns, so that a process that was
	// stopped past its lease's deadline spends none of that lease.
	StrictExpiry bool
	// Headroom is the part of every burst, 0 to below 1, that this process leaves in the bucket, so that
	// other processes still get tokens when the level is low. Headroom only lowers grants. The largest
	// possible request is the burst less the headroom.
	Headroom float64 `json:",omitzero"`
	// MaxOvershoot is the most that one request may be charged beyond its reservation, as a multiple of the
	// burst of the key's smallest limit. Without this bound one wrong number could block a key for years. 0
	// means 10, and the largest MaxOvershoot is a million.
	MaxOvershoot int64 `json:",omitzero"`
	// Shadow draws as usual but admits every request, and counts the tokens that would have been denied, to
	// show the effect of limits in advance. Tokens that only Shadow admits are no debt.
	Shadow bool `json:",omitzero"`
}

// Validate reports every Violation in one error that wraps ErrInvalidPolicy.
func (p Policy) Validate() error {
	v := violation.List{Kind: ErrInvalidPolicy}
	orDefault(&v, "Target", p.Target, targetMin, exact.MaxTTL/2)
	orDefault(&v, "TTL", p.TTL, 2*targetMin, exact.MaxTTL)
	if p.TTL >= 2*targetMin && p.TTL < 2*p.target() && p.Target <= exact.MaxTTL/2 {
		v.Add("TTL", p.TTL, "must be at least %v, two targets", 2*p.target())
	}
	if p.MinBatch < 0 {
		v.Add("MinBatch", p.MinBatch, "must be at least 1")
	}
	violation.Between(&v, "Overcommit", p.Overcommit, 0, exact.MaxUnits-1)
	orDefault(&v, "Weight", p.Weight, 1, weightMax)
	orDefault(&v, "CallsPerSecond", p.CallsPerSecond, 1, callsMax)
	orDefault(&v, "MaxOvershoot", p.MaxOvershoot, 1, overshootMost)
	if !(p.Headroom >= 0 && p.Headroom < 1) {
		v.Add("Headroom", p.Headroom, "must be 0 to below 1")
	}
	if p.ColdStart < ColdStartDeny || p.ColdStart > ColdStartAllow {
		v.Add("ColdStart", p.ColdStart, "must be ColdStartDeny (%d) or ColdStartAllow (%d)",
			ColdStartDeny, ColdStartAllow)
	}
	if p.Fallback < FallbackLocalShare || p.Fallback > FallbackAllowAll {
		v.Add("Fallback", p.Fallback, "must be FallbackLocalShare (%d), FallbackDeny (%d) or FallbackAllowAll (%d)",
			FallbackLocalShare, FallbackDeny, FallbackAllowAll)
	}
	return v.Err()
}

// orDefault demands that value is 0, which means a default, or within its bounds.
func orDefault[T int64 | time.Duration](v *violation.List, path string, value, least, most T) {
	if value != 0 {
		violation.Between(v, path, value, least, most)
	}
}

func (p Policy) target() time.Duration {
	if p.Target == 0 {
		return defaultTarget
	}
	return p.Target
}

// windowTarget is the shortest default Target of a sliding window that is at least a second long.
const windowTarget = 40 * time.Millisecond

// TargetFor returns the Target for limits, reduced as the comment of Target says, and at least 1 ms. The
// default for a sliding window is a 25th of the window, at most 40 ms, but at least a 100th of the window.
func (p Policy) TargetFor(limits []Limit) time.Duration {
	t := p.target()
	for _, l := range limits {
		if l.Kind == KindSliding && p.Target == 0 {
			t = min(t, max(l.Per/100, min(l.Per/25, windowTarget)))
			continue
		}
		room := l.Capacity()
		if p.Target != 0 { // longer default leases would cost more false rejects than the overcommit saves
			room += p.Overcommit
		}
		t = min(t, time.Duration(float64(room)/(4*l.Rate())*float64(time.Second)))
	}
	return max(t.Truncate(time.Microsecond), targetMin)
}

// ConfigFor returns the configuration that a holder proposes; callTimeout 0 means DefaultCallTimeout.
func (p Policy) ConfigFor(limits []Limit, version int64, callTimeout time.Duration) Config {
	if callTimeout == 0 {
		callTimeout = DefaultCallTimeout
	}
	target := p.TargetFor(limits)
	ttl := p.TTL
	if ttl == 0 {
		ttl = min(max(exact.TTLPerTarget*target, 2*min(callTimeout, exact.MaxTTL)), exact.MaxTTL)
	}
	calls := p.CallsPerSecond
	if calls == 0 && p.Target != 0 {
		calls = defaultCalls // an explicit Target grows only for the call budget
	}
	return Config{
		Limits: limits, Overcommit: p.Overcommit, StartEmpty: p.StartEmpty,
		TTL: ttl.Truncate(time.Microsecond), Target: target, Version: Version{Deploy: version},
		CallsPerSecond: calls,
	}
}
