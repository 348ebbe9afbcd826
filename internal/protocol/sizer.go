package protocol

import (
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// sizer decides how many tokens to ask for, and when to report or give tokens back (8.1, 8.5 to 8.10).
type sizer struct {
	*settings
	demand demand
	missed int64         // tokens of requests passed to Decide
	stock  int64         // tokens in the bucket and in leases, by the last reply
	lasts  time.Duration // how long the level of the last reply lasts; see gauge
	leased int64         // tokens held after the last reply

	seenAtReply  int64 // attempts up to the last reply
	seenAtReview int64 // attempts up to the last review of a spent lease
	missedAtAsk  int64 // result of lacked at the last Build

	reviewAt  clock.Instant // when to check next for an excess
	reviewing bool          // reviewAt has passed
	staleAt   clock.Instant // when the bucket is full if no spending is reported
}

// lastsAlways is the value of lasts for a level that does not fall.
const lastsAlways = time.Duration(math.MaxInt64)

// lacked returns how many tokens requests have not found in the pool.
func (s *sizer) lacked() int64 { return s.missed + s.holder.Pool.Missed() }

// size returns how many tokens to ask for (8.6 to 8.8). A grant of less than need serves no waiting request.
func (s *sizer) size(held int64, n needs, need int64) (want, least, waiting int64) {
	asked := n.waiting + n.refused
	if n.refused > 0 && cramped(s.policy, &s.config, s.rtt) {
		// Ask for all refused tokens, because refused requests may retry and nothing is leased ahead.
		asked = max(asked, min(s.lacked()-s.missedAtAsk, s.ceiling()))
	}
	want = asked
	if !s.slow() {
		want = max(want, s.ahead(held, n.waiting))
	}
	want = min(want, pool.Most-held)
	least = min(want, 1)
	if n.waiting > 0 {
		least = min(max(least, need), want)
	}
	return want, least, min(n.waiting, want)
}

// ahead returns how many tokens the next Target needs (8.7). While a request waits, the fast mean of demand
// is a guess from a few milliseconds: a lease of that size would take tokens from processes that call at the
// same time. While the level falls, such a lease would keep the last tokens of a burst from others.
func (s *sizer) ahead(held, waiting int64) int64 {
	most := s.ceiling()
	n := float64(most)
	whole := s.target + s.rtt
	if s.heard.replied {
		span := min(whole, s.lasts)
		ask := s.demand.expected(span)
		if slides(s.config.Limits) {
			ask = float64(s.demand.rate() * span.Seconds())
		}
		n = s.fleetPart(ask+s.watermark(), span) - float64(held)
	} else {
		n = min(n, s.perTarget())
	}
	switch {
	case waiting == 0:
	case s.lasts < whole:
		n = min(n, float64(waiting))
	default:
		steady := spread(float64(s.demand.slow*whole.Seconds())) + s.watermark() - float64(held)
		n = min(n, max(steady, float64(max(waiting, s.lacked()-s.missedAtAsk))))
	}
	least := max(s.policy.MinBatch, 1)
	return min(max(int64(math.Ceil(min(n, float64(most)))), least), most)
}

// fleetPart limits a lease of n tokens in a large fleet (8.7). The fast mean often shows a load that has
// ended.
func (s *sizer) fleetPart(n float64, span time.Duration) float64 {
	if !s.large() {
		return n
	}
	steady := float64(s.demand.slow * span.Seconds())
	least := steady + float64(math.Sqrt(steady)/2) + s.watermark()
	part := float64(fleetLeased*float64(s.all())) * float64(s.weight)
	return min(n, max(least, part/float64(max(s.heard.active, s.weight))))
}

// ceiling returns the most tokens to request in advance (8.8). At a low level a lease must not take tokens
// from others.
func (s *sizer) ceiling() int64 {
	most := int64(pool.Most)
	for k, l := range s.config.Limits {
		burst := s.burst(l)
		alone := s.heard.active <= s.weight
		part, divisor := ceilingOf(s.policy, &s.config, s.target, l, alone)
		if s.heard.replied && s.heard.levels[k] < burst/2 {
			perTarget := int64(math.Ceil(l.Rate() * s.target.Seconds()))
			part = min(part, max(s.heard.levels[k]/divisor, perTarget))
		}
		most = min(most, max(part, 1))
	}
	return most
}

// portion returns the fewest tokens to grant at once to a request in line (9.5). If no other process draws,
// the level can rise to all tokens of the request. The level of a shared bucket stays around its set point.
func (s *sizer) portion() int64 {
	if s.alone() {
		return exact.MaxUnits
	}
	n := int64(exact.MaxUnits)
	for _, l := range s.config.Limits {
		point := min(float64(s.burst(l))/2, max(1, l.Rate()*s.target.Seconds()/2))
		n = min(n, int64(point/2))
	}
	return max(1, n)
}

// slow reports whether tokens leased ahead would mostly stay unused (8.6). A lease of one token saves no
// call, and delays the refill of that token until the next call.
func (s *sizer) slow() bool {
	return cramped(s.policy, &s.config, s.rtt) || s.ceiling() < 2 ||
		s.heard.replied && s.demand.rate()*(s.target+s.rtt).Seconds() < slowBelow
}

func (s *sizer) watermark() float64 { return s.demand.expected(s.rtt) + 1 }

func (s *sizer) arm() {
	n := int64(0)
	if !s.slow() {
		n = int64(min(s.watermark(), pool.Most))
	}
	s.holder.Pool.Arm(n)
}

// gauge sets how long the level lasts if it falls as before (8.7). before is the previous reply's running
// time.
func (s *sizer) gauge(g *lease.Grant, before int64) {
	level := max(0, s.heard.level())
	stock := level + g.Ledger
	fell, took := s.stock-stock, g.Running-before
	s.stock, s.lasts = stock, lastsAlways
	if fell > 0 && took > 0 && g.Delay == 0 && !s.alone() && Spacing(g, s.weight) == 0 {
		s.lasts = time.Duration(1e3 * min(float64(level)/float64(fell)*float64(took), 1e12))
	}
}

func (s *sizer) hear(now clock.Instant, g *lease.Grant, before int64) {
	s.seenAtReply = s.demand.seen
	s.leased = s.holder.Pool.Held()
	s.gauge(g, before)
	s.staleAt = s.fullAt(g)
	// A holder of far too many tokens must not postpone the review with every call.
	if now >= s.reviewAt || s.leased <= 2*s.keep() {
		s.reviewAt = now.Add(s.reviewIn())
	}
}

// reports reports whether to make a call only for a report or an excess.
func (s *sizer) reports(now clock.Instant) bool {
	held := s.holder.Pool.Held()
	return s.heard.replied && now >= s.reviewAt && (held == 0 || s.excess(held) > 0)
}

// owes reports whether the holder must still report late tokens or a fully spent lease. Until the report the
// bucket counts the spent tokens as held.
func (s *sizer) owes() bool {
	return s.holder.owes() || s.leased > 0 && s.heard.replied && s.holder.Pool.Held() == 0
}

// reviewSpent postpones the report of a spent lease while requests arrive, because requests cause calls.
func (s *sizer) reviewSpent(now clock.Instant) {
	if s.owes() && !s.holder.owes() && now >= s.reviewAt && s.seenAtReview != s.demand.seen {
		s.seenAtReview, s.reviewAt = s.demand.seen, now.Add(s.ttl()/2)
	}
}

// reviewIn returns how long after a reply to check for an excess. In a large fleet a call costs more than an
// unused token, so that the check comes shortly before the bucket forgets the lease.
func (s *sizer) reviewIn() time.Duration {
	if s.large() {
		return s.ttl() / 4 * 3
	}
	return s.target
}

// renewal reports whether a call is due although the lease covers all requests (8.9), or when to check again.
func (s *sizer) renewal(now clock.Instant, held int64, next clock.Instant) (bool, clock.Instant) {
	if s.reviewing && s.excess(held) > 0 {
		return true, now
	}
	if now < s.staleAt && s.isLarge(s.leased) {
		next = min(next, s.staleAt)
	} else if s.isLarge(s.leased - held) {
		perTarget := s.demand.rate() * s.target.Seconds()
		if s.reviewing || slides(s.config.Limits) || perTarget > s.perTarget() {
			// Demand above the rate empties the bucket: a report per Target is worth a call.
			return true, now
		}
	}
	if s.demand.seen != s.seenAtReply {
		renewAt := s.holder.Deadline().Add(-(s.target/2 + 2*s.rtt))
		if now >= renewAt {
			return true, now
		}
		next = min(next, renewAt)
	}
	return false, min(next, s.reviewAt)
}

// all returns how many tokens all holders may lease at once.
func (s *sizer) all() int64 { return s.holder.Pool.Capacity() + s.config.Overcommit }

// isLarge reports whether n spent tokens are worth a report: a full bucket does not refill tokens that it
// counts as held. A sliding window counts a spent token from its report on, so every spent token is worth a
// report.
func (s *sizer) isLarge(n int64) bool {
	if slides(s.config.Limits) {
		return n > 0
	}
	return float64(n) >= min(float64(s.all())/16, s.perTarget())
}

// excess returns how many of the held tokens to give back (8.10). While no other process is short, an excess
// up to the need stays, so that fluctuation causes no calls.
func (s *sizer) excess(held int64) int64 {
	if s.demand.seen == s.seenAtReply {
		return held
	}
	if keep := s.keep(); s.heard.contended || held > 2*keep {
		return max(0, held-keep)
	}
	return 0
}

// keep returns the tokens needed for a Target and a round trip, plus the watermark.
func (s *sizer) keep() int64 {
	return int64(math.Ceil(s.demand.expected(s.target+s.rtt) + s.watermark()))
}

// fullAt returns when the bucket will be full if no call comes, at least half a Target after the last call.
func (s *sizer) fullAt(g *lease.Grant) clock.Instant {
	at := Never
	for k, l := range g.Config.Limits {
		full := reportIn(l, float64(s.burst(l)+g.Config.Overcommit-g.Levels[k]-g.Ledger))
		at = min(at, s.holder.firstSent.Add(max(min(full, s.holder.open.Config.TTL), s.target/2)))
	}
	return at
}

// reportIn returns for how long a report of spent tokens may wait while the bucket lacks missing tokens.
func reportIn(l lease.Limit, missing float64) time.Duration {
	switch l.Kind {
	case lease.KindSliding:
		return l.Per / 128 // a window counts a token from its report on
	case lease.KindCalendar:
		return exact.MaxTime
	}
	// Refill of a full bucket is lost, so spent tokens begin to refill only after they are reported.
	return time.Duration(min(missing/l.Rate(), exact.MaxTime.Seconds()) * 1e9)
}

// slides reports whether one of limits is a sliding window.
func slides(limits []lease.Limit) bool {
	return slices.ContainsFunc(limits, func(l lease.Limit) bool { return l.Kind == lease.KindSliding })
}

type needs struct {
	waiting int64 // tokens that waiting requests lack, less the holding
	refused int64 // see line.refused
	closing bool  // give everything back
}

// demand estimates attempts per second (8.1). The fast mean follows a rise at once. The slow mean keeps a
// pause between two bursts from looking like the end of the load.
type demand struct {
	fast, slow float64 // attempts per second
	seen       int64   // attempts counted so far
	at         clock.Instant
}

// observe adds the total number of attempts up to now. A sample over no time is merged into the next sample.
func (d *demand) observe(now clock.Instant, attempts int64, target time.Duration) {
	dt := now.Sub(d.at).Seconds()
	if dt <= 0 {
		return
	}
	rate := float64(max(0, attempts-d.seen)) / dt
	d.fast += float64(weigh(dt, target.Seconds()/2) * (rate - d.fast))
	d.slow += float64(weigh(dt, target.Seconds()*4) * (rate - d.slow))
	d.seen = attempts
	d.at = now
}

// rate returns the demand d of docs/protocol.md section 8.1.
func (d *demand) rate() float64 { return max(d.fast, d.slow) }

// expected returns a number of attempts that a Poisson process of the present rate exceeds in one of about a
// thousand spans: the mean plus three standard deviations.
func (d *demand) expected(span time.Duration) float64 {
	return spread(float64(d.rate() * span.Seconds()))
}

func spread(mean float64) float64 { return mean + float64(3*math.Sqrt(mean)) }
