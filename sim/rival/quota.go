package rival

import (
	"math/bits"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// quota counts exactly the used tokens of a central limiter's sliding window or calendar period.
type quota struct {
	sum    int64
	log    []admission // for a sliding window: the admissions in sum, by rising time
	period int64       // for a calendar: the number of the period
}

// pass drops the tokens that have left the window at now. A caller never decreases now.
func (q *quota) pass(r *rate, now int64) {
	if r.kind == lease.KindCalendar {
		if p := exact.FloorDiv(now-r.origin, r.window); p > q.period {
			q.sum, q.period = 0, p
		}
		return
	}
	for len(q.log) > 0 && q.log[0].at <= now-r.window {
		q.sum -= q.log[0].n
		q.log = q.log[1:]
	}
}

// roomAt returns the first time, at or after now, with room for n tokens; n is at most the window's tokens.
func (q *quota) roomAt(r *rate, now, n int64) int64 {
	left := r.burst - q.sum
	switch {
	case left >= n:
		return now
	case r.kind == lease.KindCalendar:
		return r.origin + (q.period+1)*r.window
	}
	for _, a := range q.log {
		if left += a.n; left >= n {
			return a.at + r.window
		}
	}
	return now + r.window // unreachable: the log has all used tokens
}

// after returns the tokens of sum that still count at a time after now.
func (q *quota) after(r *rate, now int64) (n int64) {
	if r.kind == lease.KindCalendar {
		if r.origin+q.period*r.window > now {
			n = q.sum
		}
		return n
	}
	for i := len(q.log) - 1; i >= 0 && q.log[i].at > now; i-- {
		n += q.log[i].n
	}
	return n
}

// add counts n more tokens at now, even beyond the window's. A negative n returns the oldest -n tokens.
func (q *quota) add(r *rate, now, n int64) {
	if n < 0 {
		q.back(-n)
		return
	}
	q.sum += n
	if r.kind == lease.KindCalendar {
		return
	}
	if last := len(q.log) - 1; last >= 0 && q.log[last].at == now {
		q.log[last].n += n
	} else {
		q.log = append(q.log, admission{now, n})
	}
}

func (q *quota) back(n int64) {
	n = min(n, q.sum)
	q.sum -= n
	for len(q.log) > 0 && n > 0 {
		took := min(n, q.log[0].n)
		q.log[0].n, n = q.log[0].n-took, n-took
		if q.log[0].n == 0 {
			q.log = q.log[1:]
		}
	}
}

// left returns the number of whole tokens that limit i has left.
func (c *Central) left(i int) int64 {
	r := &c.rates[i]
	if r.kind != lease.KindBucket {
		return max(0, r.burst-c.quotas[i].sum)
	}
	units := r.full.Minus(c.used[i])
	whole, _ := bits.Div64(units.Hi, units.Lo, r.unit) // the quotient is at most the burst
	return int64(whole)
}
