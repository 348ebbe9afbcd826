package xtime

import (
	"time"

	"golang.org/x/time/rate"
)

// Reservation is rate's, of tokens that were taken when it was made. One goroutine at a time.
type Reservation struct {
	limiter *Limiter
	ok      bool
	n       int64 // that Cancel can give back
	at      time.Time
}

// Reserve is ReserveN of one event, now.
func (l *Limiter) Reserve() *Reservation { return l.ReserveN(time.Now(), 1) }

// ReserveN takes n tokens now; the Reservation is not OK where they are not there now. It takes
// them whatever t is, which says when the events may happen as far as Reservation is concerned.
func (l *Limiter) ReserveN(t time.Time, n int) *Reservation {
	ok := l.key.AllowN(int64(n))
	return &Reservation{limiter: l, ok: ok, n: int64(n), at: t}
}

// OK reports whether the tokens were taken. If not, Delay is rate.InfDuration and Cancel does
// nothing.
func (r *Reservation) OK() bool { return r.ok }

// Delay is DelayFrom now: 0, unless r was made for a time to come.
func (r *Reservation) Delay() time.Duration { return r.DelayFrom(time.Now()) }

// DelayFrom is how long after t the events may happen; rate.InfDuration where r is not OK.
func (r *Reservation) DelayFrom(t time.Time) time.Duration {
	if !r.ok {
		return rate.InfDuration
	}
	return max(0, r.at.Sub(t))
}

// Cancel is CancelAt now, which comes too late unless r was made for a time to come.
func (r *Reservation) Cancel() { r.CancelAt(time.Now()) }

// CancelAt gives the tokens back, unless t is after the time for which r was made: then, as with
// rate, the events count as having happened.
func (r *Reservation) CancelAt(t time.Time) {
	if r.ok && !r.at.Before(t) {
		r.limiter.key.Refund(r.n)
		r.n = 0
	}
}
