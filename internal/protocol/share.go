package protocol

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// share is this process's part of a bucket that it cannot reach: docs/protocol.md section 8.14. It
// is the bucket that was heard, split by weight.
//
// Of a token bucket it keeps one instant: when the bucket would have been empty if it had filled at
// its rate ever since. That instant is the same for the bucket and for every part of it, so neither
// a seed nor a change of weights converts anything. Rounding lowers the share.
type share struct {
	limits  []lease.Limit                  // for which the rest stands; nil before the first use
	seeded  clock.Instant                  // the reply that the share knows; 0 for none
	emptyAt [lease.LimitsMax]clock.Instant // of token buckets
	windows *[lease.LimitsMax]window       // what was charged to this part; nil without a window
}

// fullAlways is the emptyAt of a full bucket: 2^62 ns is longer than any bucket takes to fill.
const fullAlways = clock.Instant(-1 << 62)

// part is the weight of this process, and of all that share the key.
type part struct{ weight, active int64 }

// of returns this part of n tokens, rounded down.
func (p part) of(n int64) int64 {
	if p.weight >= p.active {
		return n
	}
	return exact.MulDiv(p.weight, n, p.active)
}

// burst returns this part of the burst of l. A token bucket has at least 1. The parts of a window
// are no more than the window together.
func (p part) burst(l lease.Limit, burst int64) int64 {
	if l.Windowed() {
		return p.of(burst)
	}
	return max(1, p.of(burst))
}

// perToken returns the time in which this part of l makes a token, rounded up.
func (p part) perToken(l lease.Limit) time.Duration {
	d := float64(l.Per) * float64(p.active) / (float64(l.Tokens) * float64(p.weight))
	return time.Duration(min(math.Ceil(d), 1<<62))
}

// cost returns the time in which this part of l makes n tokens.
func (p part) cost(l lease.Limit, n int64) time.Duration {
	hi, d := bits.Mul64(uint64(n), uint64(p.perToken(l)))
	if hi > 0 {
		return 1 << 62
	}
	return time.Duration(min(d, 1<<62))
}

// worth returns the time in which the bucket of l makes n tokens, rounded down. A debt is negative.
func worth(l lease.Limit, n int64) time.Duration {
	d := float64(n) * float64(l.Per) / float64(l.Tokens)
	return time.Duration(max(-1<<62, min(math.Floor(d), 1<<62)))
}

// ownPart returns the part of the bucket that is this process's, as far as is known.
func (c *Client) ownPart() part { return part{c.weight, c.active()} }

// seedShare brings the local share up to date with the limits in force and the last reply. A reply
// only lowers it: what was spent in an earlier outage stays spent.
func (c *Client) seedShare(now clock.Instant) *share {
	s, h, limits := c.fallback, &c.heard, c.limitsNow()
	if s == nil {
		s = new(share)
		c.fallback = s
	}
	known := slices.Equal(limits, h.limits) && (h.at > 0 || h.of == fingerprint(limits))
	if !slices.Equal(limits, s.limits) {
		s.follow(now, limits, h.replied && !known || !h.replied && s.limits != nil || c.config.StartEmpty)
	}
	if at := max(h.at, h.executed); h.replied && known && s.seeded != at {
		s.seeded = at
		for k, l := range limits {
			if l.Windowed() {
				c.seedWindow(&s.windows[k], k, l)
			} else {
				s.emptyAt[k] = max(s.emptyAt[k], c.heardEmptyAt(now, k, l))
			}
		}
	}
	return s
}

// follow has s stand for other limits. One that s had keeps what was spent; others are full, or used
// up where nothing is known of them.
func (s *share) follow(now clock.Instant, limits []lease.Limit, usedUp bool) {
	was := *s
	*s = share{limits: limits}
	if slices.ContainsFunc(limits, lease.Limit.Windowed) {
		s.windows = new([lease.LimitsMax]window)
	}
	for k, l := range limits {
		i := slices.Index(was.limits, l)
		switch {
		case i >= 0 && l.Windowed():
			s.windows[k] = was.windows[i]
		case i >= 0:
			s.emptyAt[k] = was.emptyAt[i]
		case usedUp && l.Windowed():
			sc := shareScale(l)
			s.windows[k].advance(&sc, int64(now)/1000, 0)
			s.windows[k].charge(&sc, int64(now)/1000, l.Tokens)
		case usedUp:
			s.emptyAt[k] = now
		default:
			s.emptyAt[k] = fullAlways
		}
	}
}

// heardEmptyAt returns when the token bucket k would have been empty by what was heard of it, at
// now. Until every lease of that time has ended, it has no more than the others do not hold.
func (c *Client) heardEmptyAt(now clock.Instant, k int, l lease.Limit) clock.Instant {
	h, burst := &c.heard, c.burst(l)
	if h.at == 0 {
		return h.executed.Add(-worth(l, h.leftOf(k, burst)))
	}
	at, n := h.at, h.levels[k]
	if h.next[k] > 0 {
		at, n = at.Add(h.next[k]), n+1
	}
	empty := at.Add(-worth(l, n))
	if now < h.at.Add(h.leaseMax) {
		empty = max(empty, now.Add(-worth(l, max(0, burst+c.config.Overcommit-h.others))))
	}
	return empty
}

// seedWindow charges w with all that this process's part of what window k has left does not cover,
// at the reply: it waits for a whole window. Of a calendar it waits until the boundary.
func (c *Client) seedWindow(w *window, k int, l lease.Limit) {
	h, p, burst, sc := &c.heard, c.ownPart(), c.burst(l), shareScale(l)
	now, left := int64(h.at)/1000, max(0, h.levels[k])
	at := now
	if h.at == 0 {
		now = int64(h.executed) / 1000
		at, left = now, h.leftOf(k, burst)
	} else if l.Kind == lease.KindCalendar && h.next[k] > 0 {
		at = max(0, min(at, at+exact.Micros(h.next[k])-sc.Tick))
	}
	w.advance(&sc, now, 0)
	w.charge(&sc, at, p.of(burst)-p.of(left)-w.sum)
}

// shareScale is that of a local share of the window l, which slides: no process knows the server's
// clock by itself.
func shareScale(l lease.Limit) lease.Scale {
	s, _ := lease.Sliding(l.Tokens, l.Per).Scale(0)
	return s
}

// takeShare takes up to n tokens from the local share. It takes none where there are fewer than least.
func (c *Client) takeShare(now clock.Instant, least, n int64) (took int64) {
	if c.shareMost() < max(1, least) {
		return 0
	}
	s, p := c.seedShare(now), c.ownPart()
	took = n
	for k, l := range s.limits {
		took = min(took, s.has(now, k, p, c.burst(l)))
	}
	if took < max(1, least) {
		return 0
	}
	for k, l := range s.limits {
		if l.Windowed() {
			sc := shareScale(l)
			s.windows[k].charge(&sc, int64(now)/1000, took)
		} else {
			s.emptyAt[k] = s.empty(now, k, p, c.burst(l)).Add(p.cost(l, took))
		}
	}
	return took
}

// empty returns when the part p of token bucket k would have been empty: it holds no more than its
// burst.
func (s *share) empty(now clock.Instant, k int, p part, burst int64) clock.Instant {
	l := s.limits[k]
	return max(s.emptyAt[k], now.Add(-p.cost(l, p.burst(l, burst))))
}

// has returns the whole tokens that s has of limit k, whose burst this is.
func (s *share) has(now clock.Instant, k int, p part, burst int64) int64 {
	l := s.limits[k]
	if l.Windowed() {
		sc := shareScale(l)
		s.windows[k].advance(&sc, int64(now)/1000, 0)
		return p.of(burst) - s.windows[k].sum
	}
	return int64(max(0, now.Sub(s.empty(now, k, p, burst))) / p.perToken(l))
}

// shareIn returns how long after now the local share has n tokens, of which it can have as many.
func (c *Client) shareIn(now clock.Instant, n int64) (longest time.Duration) {
	s, p := c.seedShare(now), c.ownPart()
	for k, l := range s.limits {
		in := s.empty(now, k, p, c.burst(l)).Add(p.cost(l, n)).Sub(now)
		if l.Windowed() {
			sc := shareScale(l)
			in = exact.Duration(s.windows[k].dropsAt(&sc, n-s.has(now, k, p, c.burst(l))) - int64(now)/1000)
		}
		longest = max(longest, in)
	}
	return longest
}

// shareMost returns the most tokens that the local share ever has.
func (c *Client) shareMost() int64 {
	most, p := int64(exact.MaxUnits), c.ownPart()
	for _, l := range c.limitsNow() {
		most = min(most, p.burst(l, c.burst(l)))
	}
	return most
}

// keep has m remember how much of the bursts of limits a reply has left, for a process that sees
// them less the headroom.
func (m *Memory) keep(limits []lease.Limit, levels *[lease.LimitsMax]int64, headroom float64) {
	m.of = fingerprint(limits)
	for k, l := range limits {
		burst := grantable(l, headroom)
		m.left[k] = uint8(exact.MulDiv(max(0, min(levels[k], burst)), min(burst, 255), max(burst, 1)))
	}
}

// leftOf returns how much of the burst of limit k was left when its key came to rest.
func (m *Memory) leftOf(k int, burst int64) int64 {
	return exact.MulDiv(int64(m.left[k]), burst, max(1, min(burst, 255)))
}

// fingerprint tells the limits of a key at rest from others that were configured since.
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

// forgive drops the debt that the local share has made good by refilling: the bucket has refilled,
// too. It does so only where the share has most of its burst. A share that is used up belongs to a
// process that wants more than its part, and what the debt takes too much makes up for what others
// have not reported yet.
func (c *Client) forgive(now clock.Instant) {
	cold := !c.heard.replied && c.policy.ColdStart == lease.ColdStartAllow // what that admitted is in no share
	if c.debt == 0 || c.fallback == nil || cold || c.policy.Fallback != lease.FallbackLocalShare {
		return
	}
	s, p := c.seedShare(now), c.ownPart()
	missing := int64(0)
	for k, l := range s.limits {
		burst := p.burst(l, c.burst(l))
		lacks := burst - s.has(now, k, p, c.burst(l))
		if 2*lacks > burst {
			return
		}
		missing = max(missing, lacks)
	}
	c.debt = min(c.debt, missing)
}
