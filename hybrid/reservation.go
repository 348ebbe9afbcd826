package hybrid

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Reservation is tokens that were taken for something whose cost is known only afterwards, such as
// the tokens of a language model, bytes or rows: take an estimate, do it, and Settle what it has
// cost; or Cancel where it did not happen. The first of the two counts, and later calls do nothing.
// A Reservation that is abandoned has spent its estimate. Goroutines may share one.
//
// It is not that of golang.org/x/time/rate, which promises tokens of the future and says when to
// use them. A process cannot promise what its bucket has not leased to it, so this one has its
// tokens now, or is not OK; who wants to come later uses Wait.
type Reservation struct {
	result   Result
	estimate int64
	settled  atomic.Bool
	parts    []reserved
	one      [1]reserved // of parts, where there is one key
}

// reserved is what a Reservation has of one key, of which it asked for times*estimate tokens.
type reserved struct {
	l     *Limiter
	name  string
	key   *Key // by which the request came; nil where it came by name
	times int64
	hold  hold
}

// Reserve takes estimate tokens of key or none, as Take does, for something whose cost is known
// afterwards. The Reservation is never nil, and OK says whether there is one. An estimate of 0 is
// always OK and takes nothing, for a cost that nobody can guess. Errors are those of Take.
func (l *Limiter) Reserve(ctx context.Context, key string, estimate int64) (*Reservation, error) {
	r := request{name: key, n: estimate, tried: l.keys.glance(key), patience: protocol.OneCall, ctx: ctx}
	return l.reserve(r)
}

// Reserve takes estimate tokens for what is settled later; see Limiter.Reserve.
func (k *Key) Reserve(ctx context.Context, estimate int64) (*Reservation, error) {
	r := request{name: k.name, key: k, n: estimate, tried: k.e.Load(), patience: protocol.OneCall, ctx: ctx}
	return k.l.reserve(r)
}

// Reserve takes estimate tokens of every key or none, for what is settled later; see
// Limiter.Reserve. What is settled counts for every key alike.
func (j *Joined) Reserve(ctx context.Context, estimate int64) (*Reservation, error) {
	a := j.take(ctx, estimate, protocol.OneCall)
	r := &Reservation{result: a.result, estimate: estimate}
	for i, d := range a.told {
		p := &j.parts[i]
		r.parts = append(r.parts, reserved{p.l, p.name, p.Key, p.times, d.hold})
	}
	return r, a.err
}

func (l *Limiter) reserve(r request) (*Reservation, error) {
	result, hold, err := l.takeHold(r)
	made := &Reservation{result: result, estimate: r.n}
	made.one[0] = reserved{l, r.name, r.key, 1, hold}
	made.parts = made.one[:]
	return made, err
}

// OK reports whether the estimate was admitted. If not, Settle and Cancel do nothing.
func (r *Reservation) OK() bool { return r.result.OK }

// Result is what Take would have said.
func (r *Reservation) Result() Result { return r.result }

// Settle says what it has cost. Less than the estimate is a Refund of the difference. More is a
// debt: the bucket takes the difference also where it has less, and then grants nobody anything
// before the rate has paid for it. Both travel with the key's next lease call, within a Target. A
// debt is at most Policy.MaxOvershoot bursts of each key, 10 by default: that much is charged of a
// larger one, and the error wraps ErrOvershoot.
//
// Errors also wrap ErrInvalidN for a negative actual, which settles nothing; and where a debt could
// not be noted and is lost, ErrClosed, ErrUnavailable if the table is full of keys in use, or
// ErrInvalidConfig if the key is not in use and LimitsFor gives limits that cannot be used.
func (r *Reservation) Settle(actual int64) error {
	if actual < 0 {
		return fmt.Errorf("%w: settled with %d, must be at least 0", ErrInvalidN, actual)
	}
	if !r.ends() {
		return nil
	}
	var errs []error
	for i := range r.parts {
		p := &r.parts[i]
		l := p.l
		// Within this bound no product overflows, and no bucket can count more.
		switch more := min(actual-r.estimate, lease.WaitingMax/joinMax) * p.times; {
		case more > 0:
			charged, err := l.charge(p.name, p.key, more)
			if err == nil && charged < more {
				err = fmt.Errorf("%w: key %s: settled with %d, estimate %d, Policy.MaxOvershoot charges at most %d more",
					ErrOvershoot, brief(p.name), actual, r.estimate, charged/p.times)
			}
			errs = append(errs, err)
		case more < 0 && p.hold.n > 0: // what a fallback has admitted was taken from no bucket
			l.refund(p.name, p.key, -more)
		}
	}
	return errors.Join(errs...)
}

// Cancel says that it did not happen. The tokens go back as if nobody had asked for them: the
// bucket credits what it has not refilled since, which is less the later Cancel comes, and nothing
// where the limits were changed or somebody's refund has raised the level since. So it never
// exceeds the limit, where Settle(0) is a Refund of all and as such a new permit. After Close the
// tokens are burnt.
func (r *Reservation) Cancel() {
	if !r.ends() {
		return
	}
	for i := range r.parts {
		p := &r.parts[i]
		p.hold.giveBack(p.l, p.name, p.key, p.hold.n)
	}
}

// ends reports whether r is to end now, which it does once.
func (r *Reservation) ends() bool { return r.OK() && !r.settled.Swap(true) }

// charge has a key's bucket take n tokens more than it has granted, or as many as may be charged.
func (l *Limiter) charge(name string, k *Key, n int64) (charged int64, err error) {
	for l.state.Load() == stateOpen {
		e, err := l.entryOf(name, true, k)
		if err != nil {
			return 0, err
		}
		if charged, ok := e.charge(n); ok {
			l.counters.charged.Add(charged)
			return charged, nil
		}
	}
	return 0, ErrClosed
}

// charge reports how many of n tokens it charges, and is not ok where e has ended since it was found.
func (e *entry) charge(n int64) (charged int64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return 0, false
	}
	charged = e.client.Charge(n)
	e.Wake(false)
	return charged, true
}
