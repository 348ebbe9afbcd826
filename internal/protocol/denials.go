package protocol

import (
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// denials counts denied tokens (5.14), and has the delay after a shortfall (8.11).
type denials struct {
	*settings
	sizer          *sizer
	tokens         int64         // tokens denied by Decide or at the end of a wait
	attributed     int64         // tokens of Count that were added to byLimit
	reported       int64         // tokens of Count that calls have reported to the bucket
	byLimit        []denial      // denials since the last Collect
	until          clock.Instant // the end of the delay after a shortfall; 0 for none
	deniesOneUntil atomic.Int64  // until when requests for one token are denied
}

// denial is the number of tokens that a limit has denied.
type denial struct {
	limit  lease.Limit
	tokens int64
}

// Count returns the number of tokens denied so far: by Decide, at the end of a wait, and by Pool.Miss. A
// request above the burst is not counted.
func (d *denials) Count() int64 { return d.tokens + d.holder.Pool.Missed() }

// settled counts as denied the tokens of the request a that answer does not admit.
func (d *denials) settled(a Ask, answer *Decision) {
	switch answer.Verdict {
	case VerdictWait, VerdictClosed, VerdictExceedsBurst:
		return
	case VerdictCancelled:
		if d.policy.Shadow { // in shadow mode denied tokens count as shadowed
			return
		}
	}
	if !a.Uncounted {
		d.Book(a.N - answer.Took)
	}
}

// Book counts n tokens as denied.
func (d *denials) Book(n int64) { d.tokens += n }

// attribute books the denials since the last attribute to the limit that binds now.
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

// report returns how many denied tokens no lease call has reported, and counts them as reported. No decision
// reads the number: it is lost with a call that is given up.
func (d *denials) report() int64 {
	d.attribute()
	n := min(d.attributed-d.reported, lease.WaitingMax)
	d.reported += n
	return n
}

// Collect calls f for each limit that has denied tokens since the last Collect.
func (d *denials) Collect(f func(l lease.Limit, tokens int64)) {
	d.attribute()
	for _, d := range d.byLimit {
		f(d.limit, d.tokens)
	}
	d.byLimit = d.byLimit[:0]
}

// delay returns the end of the delay that the reply g asks for; 0 if g asks for no delay.
func (d *denials) delay(now clock.Instant, g *lease.Grant) clock.Instant {
	if g.Delay <= 0 {
		return 0
	}
	// After the delay the bucket must still know the holder. The process must hear of new limits within T.
	longest := d.ttl() / 4 * 3
	delay := min(g.Delay, longest)
	switch {
	case d.large():
		// Without jitter, holders that fell short together would find the bucket empty again and again.
		delay = min(delay/2+time.Duration(d.next()%uint64(delay+1)), longest)
	case !d.alone():
		// More jitter would waste the next token of a small burst.
		span := min(delay, d.target/2) / 10
		delay = min(delay+time.Duration(d.next()%uint64(span+1)), longest)
	}
	// Count the delay from the sending, because the next call takes as long to reach the bucket. Counted from
	// the reply, the delay would end a round trip late: a small burst would be full by that time.
	return max(now+1, d.holder.firstSent.Add(delay))
}

func (d *denials) end() {
	d.until = 0
	d.denyOne(0)
}

// delayFor returns when the delay after a shortfall ends for a request for n tokens (8.11).
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

// canServe reports whether bucket and pool have n tokens together and no other process draws from the bucket.
func (d *denials) canServe(n int64) bool {
	return d.alone() && n <= d.heard.level()+d.holder.Pool.Held()
}

// judge sets until when requests for one token are denied without a call (9.2).
func (d *denials) judge(now clock.Instant, inLine int) {
	until := d.until
	if inLine == 0 {
		until = d.delayFor(1)
	}
	if now >= until || d.canServe(1) || d.admitsAll() {
		until = 0
	}
	d.denyOne(until)
}

func (d *denials) denyOne(until clock.Instant) {
	was := d.DeniesOneUntil()
	if was == 0 && until == 0 {
		return
	}
	if was == 0 || until == 0 {
		d.holder.Pool.Deny(until != 0)
	}
	d.deniesOneUntil.Store(int64(until)) // the pool must count every denied request
	d.host.DeniesOne(until)
}

// DeniesOneUntil returns until when requests for one token that do not wait in line are denied without a
// call; 0 if such requests are not denied. Such denials are frequent, so that DeniesOneUntil takes no lock.
func (d *denials) DeniesOneUntil() clock.Instant { return clock.Instant(d.deniesOneUntil.Load()) }
