package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// lineage has the facts that prove that a bucket has lost its state: docs/protocol.md, section 6.
type lineage struct {
	epoch      int64 // 0 before a reply
	counter    int64
	running    int64
	leaseMax   time.Duration // LeaseMax of the last reply, or what was left of a freeze if that is longer
	serverTime int64
	expiry     time.Duration // from serverTime to the bucket's expiry
}

// Memory keeps the state of a Client whose key is at rest. A Memory is small, since a process may have a
// million keys at rest. The zero Memory is that of a key without a reply.
type Memory struct {
	lineage
	executed clock.Instant // earliest time at which the bucket can have executed the last call
	ttl      time.Duration // T in force
	config   *lease.Config // at rest: the configuration in force, if it differs from the proposal
	pace     pace          // at rest: the demand of the key's draws
	calls    float32       // mean calls to the bucket per call of this process; below 0 if guessed
	replied  bool          // a reply has ever arrived
	conflict bool          // see Client.Conflict
	// At rest: the part of each burst that was left (8.14), and a fingerprint of the limits.
	left [lease.LimitsMax]uint8
	of   uint16
}

func (m *Memory) expired(now clock.Instant) bool { return now >= m.executed.Add(m.expiry) }

// prove writes the lineage to r, unless the bucket may have expired.
func (m *Memory) prove(now clock.Instant, r *lease.Request) {
	if m.epoch > 0 && !m.expired(now) {
		r.Epoch, r.Counter, r.LeaseMax = m.epoch, m.counter, m.leaseMax
		// The age is a 15th longer, because the process's clock may be slow by a 16th (5.11).
		age := max(0, now.Sub(m.executed))
		r.HeardAt, r.HeardAge, r.HeardExpiry = m.serverTime, age+age/15, m.expiry
	}
}

// hear records the reply g to a call of a holder of this weight; counted is the result of Heard.counts.
func (m *Memory) hear(sent clock.Instant, weight int64, counted bool, g *lease.Grant) {
	m.count(weight, counted, g)
	counter := g.Counter
	if g.Epoch == m.epoch {
		counter = max(m.counter, counter)
	}
	m.lineage = lineage{
		epoch: g.Epoch, counter: counter, running: g.Running, leaseMax: max(g.LeaseMax, g.Frozen),
		serverTime: g.ServerTime, expiry: g.Expiry,
	}
	m.executed, m.replied = sent, true
}

// count updates m.calls from the reply g to a holder of this weight (docs/protocol.md section 8.14).
func (m *Memory) count(weight int64, counted bool, g *lease.Grant) {
	if !counted && g.Epoch != m.epoch {
		calls, span := g.ActiveWeight/weight, max(1, exact.Micros(activeFor*g.Config.TTL))
		if calls <= 1 {
			calls = 1 + exact.MulDiv(max(0, min(g.Counter-1, callsMost)), span, max(span, g.ServerTime-g.Epoch))
		}
		if m.calls = 0; calls > 1 {
			m.calls = -float32(calls)
		}
		return
	}
	calls, last := float32(1), float32(8)
	if !counted {
		calls, last = float32(max(1, min(g.Counter-m.counter, callsMost))), 4
	}
	if m.calls <= 0 {
		m.calls = calls
	}
	m.calls += (calls - m.calls) / last
}

const callsMost = 1 << 30

// byCalls estimates the active weight, as if all processes had this weight and called alike; 0 if unknown.
func (m *Memory) byCalls(weight int64) int64 {
	return weight * int64(math.Round(math.Abs(float64(m.calls))))
}

// recent reports whether the last answered call was sent within the last T, so that the key counts as in use.
func (m *Memory) recent(now clock.Instant) bool { return m.replied && now < m.executed.Add(m.ttl) }

// propose records before, the former proposal, as the configuration in force until a reply names another.
func (m *Memory) propose(before *lease.Config) {
	if m.replied && m.config == nil {
		m.config = before
	}
}

// inForce returns the configuration in force of a process with this proposal.
func (m *Memory) inForce(proposed *lease.Config) *lease.Config {
	if m.config != nil {
		return m.config
	}
	return proposed
}

// keep stores, for each limit, the fraction of burst - headroom that was left at a reply.
func (m *Memory) keep(limits []lease.Limit, levels *[lease.LimitsMax]int64, headroom float64) {
	m.of = fingerprint(limits)
	for k, l := range limits {
		burst := grantable(l, headroom)
		m.left[k] = uint8(exact.MulDiv(max(0, min(levels[k], burst)), min(burst, 255), max(burst, 1)))
	}
}

// leftOf returns how many tokens of the burst of limit k were left at the last keep.
func (m *Memory) leftOf(k int, burst int64) int64 {
	return exact.MulDiv(int64(m.left[k]), burst, max(1, min(burst, 255)))
}

// fingerprint returns a hash by which a key at rest recognises its limits.
func fingerprint(limits []lease.Limit) uint16 {
	h := uint64(0)
	for _, l := range limits {
		for _, x := range [...]int64{l.Tokens, int64(l.Per), l.Capacity(), int64(l.Kind), int64(l.Offset)} {
			h ^= uint64(x)
			h = splitmix(&h)
		}
	}
	return uint16(h)
}

func propose(own, inForce *lease.Config, rtt time.Duration) lease.Config {
	p := *own
	if v := inForce.Version; Wins(v, p.Version) {
		if v.Deploy == p.Version.Deploy && !IsSet(v) {
			p.Version = v // limits set at run time were cleared (6.9)
		} else {
			p = *inForce
		}
	}
	p.TTL = max(p.TTL, 2*inForce.Target)
	for p.TTL < 4*rtt && p.TTL <= exact.MaxTTL/2 {
		p.TTL *= 2
	}
	return p
}

// pace is the demand of a key at rest: both means of type demand, in requests per second.
type pace struct{ fast, slow float32 }

// after returns p, updated for an interval of length since, at whose end 0 or 1 requests arrived.
func (p pace) after(since time.Duration, requests float64, target time.Duration) pace {
	dt := max(since, 0).Seconds()
	mean := func(old float32, halfLife float64) float32 {
		w := weigh(dt, halfLife)
		return float32(float64((1-w)*float64(old)) + float64((1-w)*requests)/float64(halfLife*math.Log2E))
	}
	return pace{mean(p.fast, target.Seconds()/2), mean(p.slow, target.Seconds()*4)}
}

// weigh returns the weight of a sample over dt seconds: about 1 - 2^(-dt/halfLife) for a short dt. A
// conversion rounds each product: no processor may fuse it with a sum, because the simulator needs equal
// bits.
func weigh(dt, halfLife float64) float64 {
	return dt / (dt + float64(halfLife*math.Log2E))
}

// slowBelow is the fewest expected requests per lease: a key with fewer gets no lease.
const slowBelow = 2

// rttUnknown is the round trip assumed before the first call to a node.
const rttUnknown = time.Millisecond

// Heard is the last reply about the bucket; the zero Heard means no reply. Any goroutine may read a copy.
type Heard struct {
	Memory
	headroom  float64 // Policy.Headroom: the part of each burst left to others
	contended bool    // the bucket was contended (7.6)
	active    int64   // the active weight
	limits    []lease.Limit
	levels    [lease.LimitsMax]int64         // whole tokens
	next      [lease.LimitsMax]time.Duration // time until a level has one token more; 0 for a full level
	at        clock.Instant                  // time of the reply; 0 before the first reply to this Client
	others    int64                          // tokens that other processes held and may give back
	frozen    time.Duration                  // time from the reply to the end of a freeze
	// Until shortUntil the bucket lacks the shortOf tokens that the call needed; 0 if it had enough.
	// shortUntil is more exact than levels and next, because the bucket counts fractions of tokens.
	shortOf    int64
	shortUntil clock.Instant
}

// hear records the reply g to the call open, which was first sent at sent.
func (h *Heard) hear(now, sent clock.Instant, open *lease.Request, g *lease.Grant) {
	h.Memory.hear(sent, open.Weight, h.counts(sent, open), g)
	h.at, h.frozen, h.contended, h.active = now, g.Frozen, g.Contended, g.ActiveWeight
	h.levels, h.next = g.Levels, g.Next
	h.others = max(0, g.Ledger-open.Remaining-(g.Granted-g.Waited))
	h.shortOf, h.shortUntil = 0, 0
	if g.RetryAfter > 0 {
		h.shortOf, h.shortUntil = max(1, open.Need), sent.Add(g.RetryAfter)
	}
}

// Replied reports whether a reply has ever arrived.
func (h *Heard) Replied() bool { return h.replied }

// Frozen reports whether the bucket was frozen at the time of the reply (6.5).
func (h *Heard) Frozen() bool { return h.frozen > 0 }

// counts reports whether the reply to open names all processes that call as often as this one (8.14).
func (h *Heard) counts(sent clock.Instant, open *lease.Request) bool {
	return !open.Draw && h.at > 0 && sent.Sub(h.executed) <= h.ttl
}

func (h *Heard) level() int64 {
	least := h.levels[0]
	for k := range h.limits {
		least = min(least, h.levels[k])
	}
	return least
}

// Limits returns the bucket's limits by the last reply. The caller must not change the slice.
func (h *Heard) Limits() []lease.Limit { return h.limits }

// binding returns the index of the limit with the longest wait for the tokens that the last call needed.
func (h *Heard) binding() (k int) {
	n := max(1, h.shortOf)
	for i := range h.limits {
		if h.until(i, n) > h.until(k, n) {
			k = i
		}
	}
	return k
}

// earliest returns a time before which n tokens cannot exist, even if the other holders gave all tokens back.
func (h *Heard) earliest(n int64) clock.Instant {
	at := h.executed
	n -= h.others
	further := time.Duration(math.MaxInt64) // least refill time of the tokens beyond shortOf
	for k, l := range h.limits {
		at = max(at, h.executed.Add(h.until(k, n)))
		further = min(further, timeFor(l, n-h.shortOf))
	}
	if h.shortOf > 0 && n >= h.shortOf {
		at = max(at, h.shortUntil.Add(further))
	}
	return at
}

// Outlook is the information about a key that comes with a decision.
type Outlook struct {
	Limit      lease.Limit   // the limit with the least of its burst left; if denied, with the longest wait
	Remaining  int64         // tokens of Limit in process and bucket, at most the burst less the headroom
	RetryAfter time.Duration // time until the requested tokens can exist, at least 1 ns
	ResetAfter time.Duration // time until Remaining is at its largest, if nothing more is drawn
}

// Outlook returns the Outlook at now of a request for n tokens by a process that held held tokens.
func (h *Heard) Outlook(now clock.Instant, n, held int64, admitted bool) Outlook {
	var o Outlook
	since := now.Sub(h.at)
	least := 2.0 // above any part of a burst
	longest := time.Duration(math.MinInt64)
	for k, l := range h.limits {
		capacity := grantable(l, h.headroom)
		left := min(capacity, h.levels[k]+held)
		wait := h.until(k, n-held) - since
		if h.shortOf > 0 && len(h.limits) == 1 && n-held >= h.shortOf {
			// Count from the reply, as the bucket may have executed the call that late.
			wait = h.shortUntil.Sub(h.executed) + timeFor(l, n-held-h.shortOf) - since
		}
		part := float64(left) / float64(capacity)
		binding := part < least
		if !admitted {
			binding = wait > longest
		}
		if binding {
			least, longest = part, wait
			o.Limit, o.Remaining = l, max(left, 0)
			reset := h.until(k, capacity-held)
			if capacity-held > h.levels[k] && l.Kind == lease.KindSliding {
				reset = l.TimeToFull() // by that time the latest charge is dropped
			}
			o.ResetAfter = max(0, reset-since)
		}
	}
	o.RetryAfter = max(longest, 1)
	return o
}

// until returns how long after the reply level k has n tokens, if nothing more is drawn.
func (h *Heard) until(k int, n int64) time.Duration {
	l, missing := h.limits[k], n-h.levels[k]
	if missing > 0 && h.next[k] > 0 {
		return h.next[k] + timeFor(l, missing-1)
	}
	return timeFor(l, missing)
}

// timeFor returns how long the limit l takes to refill n tokens, at most 292 years. The result is 0 for a
// window, which may regain all tokens at once.
func timeFor(l lease.Limit, n int64) time.Duration {
	d := float64(max(n, 0)) / float64(l.Tokens) * float64(l.Per)
	switch {
	case l.Windowed():
		return 0
	case d >= math.MaxInt64:
		return math.MaxInt64
	}
	return time.Duration(d)
}

// GrantOutlook returns the Outlook of a request for n tokens that g admitted, if the process holds no tokens.
func GrantOutlook(g *lease.Grant, n int64, headroom float64) Outlook {
	h := Heard{limits: g.Config.Limits, levels: g.Levels, next: g.Next, headroom: headroom}
	return h.Outlook(0, n, 0, true)
}

// StateOutlook returns the Outlook of a request for n tokens when s was read, where s is the Status of a
// State. held is the number of tokens in the process, and headroom its Policy.Headroom.
func StateOutlook(s *lease.Status, n, held int64, headroom float64, admitted bool) Outlook {
	h := Heard{limits: s.Config.Limits, levels: s.Levels, next: s.Next, headroom: headroom}
	for k, l := range h.limits {
		h.levels[k] -= l.Capacity() - grantable(l, headroom)
	}
	return h.Outlook(0, n, held, admitted)
}
