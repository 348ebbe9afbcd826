package xtime

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Reservation is rate's, of tokens that were taken when it was made. Goroutines may share it.
type Reservation struct {
	taken *hybrid.Reservation
	at    time.Time // when the events may happen
}

// Reserve is ReserveN of one event, now.
func (l *Limiter) Reserve() *Reservation { return l.ReserveN(time.Now(), 1) }

// ReserveN takes n tokens now; the Reservation is not OK where they are not there now. It takes
// them whatever t is, which says when the events may happen as far as Reservation is concerned.
func (l *Limiter) ReserveN(t time.Time, n int) *Reservation {
	taken, _ := l.key.Reserve(context.Background(), int64(n)) // not OK where there is an error
	return &Reservation{taken, t}
}

// OK reports whether the tokens were taken. If not, Delay is rate.InfDuration and Cancel does
// nothing.
func (r *Reservation) OK() bool { return r.taken.OK() }

// Delay is DelayFrom now: 0, unless r was made for a time to come.
func (r *Reservation) Delay() time.Duration { return r.DelayFrom(time.Now()) }

// DelayFrom is how long after t the events may happen; rate.InfDuration where r is not OK.
func (r *Reservation) DelayFrom(t time.Time) time.Duration {
	if !r.OK() {
		return rate.InfDuration
	}
	return max(0, r.at.Sub(t))
}

// Cancel is CancelAt now, which comes too late unless r was made for a time to come.
func (r *Reservation) Cancel() { r.CancelAt(time.Now()) }

// CancelAt gives the tokens back, unless t is after the time for which r was made: then, as with
// rate, the events count as having happened.
func (r *Reservation) CancelAt(t time.Time) {
	if !r.at.Before(t) {
		r.taken.Cancel()
	}
}
