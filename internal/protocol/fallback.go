package protocol

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// failures counts the failed calls of a key: docs/protocol.md section 8.12.
type failures struct {
	*settings
	inARow  int
	stales  int           // number of calls in a row that failed with ErrStale
	probeAt clock.Instant // when the next call may be sent after failures in a row
	turn    clock.Instant // when to call turnOf.Admit again
	turnOf  *Breaker
}

// Degraded reports whether the fallback decides: the node is away or recovering, or the key's last call
// failed.
func (f *failures) Degraded() bool {
	b := f.host.Breaker()
	if f.inARow == 0 && b.well() {
		return false
	}
	return f.inARow > 0 || b.Away() || !f.holder.calling && b.Holds(f.host.Now())
}

// Turn returns when to call Breaker.Admit again after it refused the key's call. While the node is away, a
// turn in the future stays as it is: otherwise a key that asks for another turn would lose the probe.
func (f *failures) Turn(now clock.Instant) clock.Instant {
	if b := f.host.Breaker(); f.turn <= now || f.turnOf != b || !b.Away() {
		f.turn, f.turnOf = b.Turn(now), b
	}
	return f.turn
}

// InARow returns how many calls of the key have failed in a row although its node answered.
func (f *failures) InARow() int { return f.inARow }

// add delays the next call after a failure, with full jitter. The Breaker delays the calls to a node that is
// away.
func (f *failures) add(now clock.Instant) {
	if f.host.Breaker().Away() {
		f.inARow = 0
		return
	}
	f.inARow++
	most := backoff(f.inARow, f.config.Target, f.ttl())
	f.probeAt = now.Add(time.Duration(f.next() % uint64(most)))
}

// fallback decides requests without the store: docs/protocol.md section 8.14.
type fallback struct {
	*settings
	failures *failures
	seeded   *seeded // nil before the first outage

	mostActive int64         // the largest active weight in replies of the last activeFor TTLs
	mostAt     clock.Instant // when a reply named mostActive
}

// take admits up to n tokens without the store and returns their number: at least the number least, or 0. The
// next successful call reports these tokens as debt, except under Unlimited.
func (f *fallback) take(now clock.Instant, least, n int64) (took int64) {
	switch {
	case f.admitsNone():
	case f.admitsAll():
		return n
	case f.coldDecides():
		if f.policy.ColdStart == lease.ColdStartAllow {
			took = n
		}
	case !f.failures.Degraded():
	case f.policy.Fallback == lease.FallbackAllowAll:
		took = n
	case f.policy.Fallback == lease.FallbackLocalShare:
		if f.most() >= max(1, least) {
			took = f.seed(now).take(now, f.part(), least, n)
		}
	}
	if took > 0 {
		f.holder.debt.add(took, int64(now), f.dates(now))
	}
	return took
}

func (f *fallback) dates(now clock.Instant) dating {
	return usedBy(now, f.host.Breaker().Server(now), f.limitsNow())
}

// coldDecides reports whether Policy.ColdStart decides, because the key has had no reply. If the node has
// replied for other keys before its outage, Policy.Fallback decides.
func (f *fallback) coldDecides() bool {
	return !f.heard.replied && !(f.failures.Degraded() && f.host.Breaker().Active() > 0)
}

// at returns when the local share can serve n tokens; ok is false if waiting does not help. The time is at
// least fallbackPause ahead, so that a refusal for another reason causes no busy loop.
func (f *fallback) at(now clock.Instant, n int64) (at clock.Instant, ok bool) {
	if f.seeded == nil || !f.failures.Degraded() || n > f.most() || f.admitsNone() {
		return Never, false
	}
	s, p := f.seed(now), f.part()
	at = now.Add(fallbackPause)
	for k := range s.limits {
		at = max(at, s.at(now, k, p, n))
	}
	return at, true
}

func (f *fallback) hear(now clock.Instant, g *lease.Grant) {
	if g.ActiveWeight >= f.mostActive || now > f.mostAt.Add(activeFor*f.ttl()) {
		f.mostActive, f.mostAt = g.ActiveWeight, now
	}
}

// part divides by the active weight of the key or, if unknown, of the node (8.14).
func (f *fallback) part() part {
	byCalls := f.heard.byCalls(f.weight)
	active := max(f.heard.active, f.mostActive, byCalls)
	if byCalls == 0 {
		active = max(active, f.host.Breaker().Active())
	}
	return partOf(f.policy, f.limitsNow(), active)
}

// seed returns the local share, which each reply can only lower (8.14).
func (f *fallback) seed(now clock.Instant) *seeded {
	s, h, limits := f.seeded, f.heard, f.limitsNow()
	if s == nil {
		s = new(seeded)
		f.seeded = s
	}
	known := slices.Equal(limits, h.limits) && (h.at > 0 || h.of == fingerprint(limits))
	if !slices.Equal(limits, s.limits) {
		usedUp := h.replied && !known || !h.replied && s.limits != nil || f.config.StartEmpty
		s.follow(now, f.part(), usedUp)
	}
	if at := max(h.at, h.executed); h.replied && known && s.reply != at {
		s.reply = at
		for k, l := range limits {
			if l.Windowed() {
				f.seedWindow(s, k, l)
			} else if empty := f.heardEmptyAt(now, k, l); s.emptyAt[k] == 0 || empty > s.emptyAt[k] {
				s.emptyAt[k] = empty
			}
		}
	}
	return s
}

// heardEmptyAt returns the time at which token bucket k would have been empty, according to the last reply;
// see share. Tokens that other holders held count as used until their leases have ended.
func (f *fallback) heardEmptyAt(now clock.Instant, k int, l lease.Limit) clock.Instant {
	h, burst := f.heard, f.burst(l)
	if h.at == 0 {
		return h.executed.Add(-worth(l, h.leftOf(k, burst)))
	}
	at, n := h.at, h.levels[k]
	if h.next[k] > 0 {
		at, n = at.Add(h.next[k]), n+1
	}
	empty := at.Add(-worth(l, n))
	if now < h.at.Add(h.leaseMax) {
		empty = max(empty, now.Add(-worth(l, max(0, burst+f.config.Overcommit-h.others))))
	}
	return empty
}

// seedWindow charges s with this process's part of the tokens that window k had spent at the last reply. The
// charge counts for the length of a sliding window, or until the boundary of a calendar.
func (f *fallback) seedWindow(s *seeded, k int, l lease.Limit) {
	h, p, replied := f.heard, f.part(), f.heard.at
	left := max(0, h.levels[k])
	if h.at == 0 {
		replied, left = h.executed, h.leftOf(k, f.burst(l))
	}
	used := int64(replied) / 1000
	if l.Kind == lease.KindCalendar && h.at > 0 && h.next[k] > 0 {
		used = max(0, min(used, used+exact.Micros(h.next[k])-exact.Micros(l.Per)))
	}
	w := s.window(replied, k, p)
	w.charge(used, p.burst(l)-p.of(left)-w.sum)
}

func (f *fallback) most() int64 { return f.part().most() }

// forgive drops the debt that the local share has refilled (8.14), because the bucket has refilled it too. If
// the share lacks more than half its burst, forgive drops nothing, to offset debt that others do not report.
func (f *fallback) forgive(now clock.Instant) {
	policy := f.policy
	cold := !f.heard.replied && policy.ColdStart == lease.ColdStartAllow // a cold start uses no share
	if len(f.holder.debt) == 0 || f.seeded == nil || cold || policy.Fallback != lease.FallbackLocalShare {
		return
	}
	s, p := f.seed(now), f.part()
	missing := int64(0)
	for k, l := range s.limits {
		burst := p.burst(l)
		lacks := burst - s.has(now, k, p)
		if 2*lacks > burst {
			return
		}
		missing = max(missing, lacks)
	}
	f.holder.debt.trim(missing)
}
