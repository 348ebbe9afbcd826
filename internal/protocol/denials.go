package protocol

import (
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// denials counts what is denied, and knows for how long the bucket has too little: docs/protocol.md sections
// 5.14 and 8.11.
type denials struct {
	*settings
	sizer      *sizer
	tokens     int64         // of requests that Decide or the end of a wait has denied
	attributed int64         // of Count: those that are, or were, in byLimit
	told       int64         // of attributed: what calls have carried to the bucket
	byLimit    []denial      // until Collect
	until      clock.Instant // the bucket is known to have too little until then; 0 where it is not
	shutUntil  atomic.Int64  // the same, as far as it concerns requests for one token
}

// denial has the tokens that a limit has denied.
type denial struct {
	limit  lease.Limit
	tokens int64
}

// Count counts the tokens that requests asked for and did not get so far: by Decide, at the end of a
// wait, and by Pool.Miss. A request above the burst counts none.
func (d *denials) Count() int64 { return d.tokens + d.holder.Pool.Missed() }

// settled counts as denied what the answer leaves of the request a.
func (d *denials) settled(a Ask, answer *Decision) {
	switch answer.Verdict {
	case VerdictWait, VerdictClosed, VerdictExceedsBurst:
		return
	case VerdictCancelled:
		if d.policy.Shadow { // which counts as shadowed what was denied
			return
		}
	}
	if !a.Uncounted {
		d.Book(a.N - answer.Took)
	}
}

// Book counts n tokens as denied.
func (d *denials) Book(n int64) { d.tokens += n }

// attribute counts what was denied since it was last called to the limit that binds, by what is known now.
func (d *denials) attribute() {
	n := d.Count() - d.attributed
	if n <= 0 {
		return
	}
	d.attributed += n
	l := d.heard.limits[d.heard.binding()]
	for i := range d.byLimit {
		if d.byLimit[i].limit == l {
			d.byLimit[i].tokens += n
			return
		}
	}
	d.byLimit = append(d.byLimit, denial{l, n})
}

// tell is how many tokens were denied since it was last called, for one call to report. They
// decide nothing, so they are lost where that call is given up or the key rests before it.
func (d *denials) tell() int64 {
	d.attribute()
	n := min(d.attributed-d.told, lease.WaitingMax)
	d.told += n
	return n
}

// Collect calls f with the tokens that were denied since it was last called, and the limit
// that was the reason, as far as was known when they were: that with the longest wait.
func (d *denials) Collect(f func(l lease.Limit, tokens int64)) {
	d.attribute()
	for _, d := range d.byLimit {
		f(d.limit, d.tokens)
	}
	d.byLimit = d.byLimit[:0]
}

// delay is when the delay ends that the reply g asks for; 0 where it asks for none.
func (d *denials) delay(now clock.Instant, g *lease.Grant) clock.Instant {
	if !g.Short || g.Delay <= 0 {
		return 0
	}
	// Limits that are changed or reset elsewhere are to be followed within T, and what was drawn for a
	// request that has gone can be given back only while the bucket knows the holder.
	longest := d.heard.ttl / 4 * 3
	delay := min(g.Delay, longest)
	switch {
	case d.large():
		delay = min(d.spreadDelay(delay), longest)
	case !d.alone():
		// Not more: a tenth of a long delay would leave the next token of a small burst lying about.
		span := min(delay, d.target/2) / 10
		delay = min(delay+time.Duration(d.next()%uint64(span+1)), longest)
	}
	// Counted from the sending, as the next call takes as long to the bucket as this one did: from the
	// reply on, a round trip of a small burst's refill would be lost with each token.
	return max(now+1, d.holder.firstSent.Add(delay))
}

// spreadDelay moves a delay by up to half of itself. The members of a large fleet that are short at
// one moment would otherwise come back at one moment, and so find the bucket empty again for ever.
func (d *denials) spreadDelay(delay time.Duration) time.Duration {
	return delay/2 + time.Duration(d.next()%uint64(delay+1))
}

// end ends the delay after a shortfall.
func (d *denials) end() {
	d.until = 0
	d.shut(0)
}

// delayFor is when the delay after a shortfall ends for n tokens. It is sooner for fewer than fell short,
// which the bucket had left then, or, where no other process draws from it, will have by refill: but at least
// half a Target after the call, unless others draw from it and a lease would hold no more than one token.
func (d *denials) delayFor(n int64) clock.Instant {
	missing := n - d.holder.Pool.Held()
	if d.until == 0 || d.heard.shortOf == 0 || missing >= d.heard.shortOf {
		return d.until
	}
	alone, lacking := d.alone(), max(0, missing-d.heard.level())
	if !alone && (missing <= 0 || lacking > 0 || d.large()) {
		return d.until
	}
	at := d.holder.firstSent
	if alone || !d.sizer.slow() {
		at = at.Add(d.target / 2)
	}
	for k := range d.config.Limits {
		at = max(at, d.holder.firstSent.Add(d.heard.until(k, d.heard.levels[k]+lacking)))
	}
	return min(d.until, at)
}

// spares reports whether the bucket, from which no other process draws, and this one are known to have n
// tokens: it was a larger request that they did not have enough for.
func (d *denials) spares(n int64) bool {
	return d.alone() && n <= d.heard.level()+d.holder.Pool.Held()
}

// judge decides whether requests for one token are denied in advance: while the bucket is known to be empty,
// and inLine requests wait in line. It is called after everything that changes what is known.
func (d *denials) judge(now clock.Instant, inLine int) {
	until := d.until
	if inLine == 0 {
		until = d.delayFor(1)
	}
	if now >= until || d.spares(1) || d.admitsAll() {
		until = 0
	}
	d.shut(until)
}

// shut has requests for one token denied until then; 0 lets them ask again.
func (d *denials) shut(until clock.Instant) {
	was := d.ShutUntil()
	if was == 0 && until == 0 {
		return
	}
	if was == 0 || until == 0 {
		d.holder.Pool.Deny(until != 0)
	}
	d.shutUntil.Store(int64(until)) // after Deny, as a request that reads this counts itself in the stripes
	d.host.Shut(until)
}

// ShutUntil is until when requests for one token that do not wait in line are denied, because the
// bucket is known to be empty; 0 where it is not. It is the commonest denial, so it needs no lock.
func (d *denials) ShutUntil() clock.Instant { return clock.Instant(d.shutUntil.Load()) }
