package hybrid

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Reservation has tokens that were taken for work whose cost is known only afterwards, such as bytes, rows or
// the tokens of a language model. The caller reserves an estimate, does the work, and calls Settle with the
// actual cost, or Cancel if the work was not done. Only the first Settle or Cancel has an effect. An
// abandoned Reservation has spent its estimate. Goroutines may share a Reservation.
//
// The Reservation of golang.org/x/time/rate promises future tokens and a time to use them. A process of this
// package cannot promise tokens that its bucket has not leased to it. A Reservation of this package has its
// tokens now, or is not OK; to get tokens later, use Wait.
type Reservation struct {
	result   Result
	settled  atomic.Bool
	parts    []reserved
	argParts []int       // index in parts of each argument of Join
	one      [1]reserved // space for the parts of a single key
}

type reserved struct {
	m        *member
	name     string
	own      *proposal // proposal of KeyWithLimits; nil for other requests
	times    int64     // number of arguments of Join with this key
	estimate int64
	hold     hold
}

// leastEstimate returns the tokens to take for an estimate: at least one, because a key in debt admits a
// request for 0 tokens.
func leastEstimate(estimate int64) int64 {
	if estimate == 0 {
		return 1
	}
	return estimate
}

// Reserve takes estimate tokens of every key or none; see Key.Reserve. Settle then charges the same cost to
// every key.
func (j *Joined) Reserve(ctx context.Context, estimate int64) (*Reservation, error) {
	return j.reserve(ctx, j, leastEstimate(estimate))
}

// ReserveEach reserves estimate[i] tokens of the i-th key of Join, for all keys or for none; see TakeEach. An
// estimate of 0 takes one token, as in Key.Reserve. End with SettleEach, which has a cost for each key:
// Settle would charge one cost to every key. Errors of ReserveEach are those of TakeEach.
func (j *Joined) ReserveEach(ctx context.Context, estimate ...int64) (*Reservation, error) {
	e, err := j.eachOf(estimate)
	if err != nil {
		return &Reservation{}, err
	}
	for i := range e.parts {
		e.parts[i].times = leastEstimate(e.parts[i].times)
	}
	return j.reserve(ctx, e, 1)
}

// reserve takes n tokens of asks, which is j, or a copy of j with other numbers of tokens for its keys.
func (j *Joined) reserve(ctx context.Context, asks *Joined, n int64) (*Reservation, error) {
	a := asks.take(ctx, n, protocol.OneCall)
	r := &Reservation{result: a.result, argParts: j.argParts}
	for i, d := range a.answers {
		p := &j.parts[i]
		r.parts = append(r.parts, reserved{p.m, p.name, p.own, p.times, asks.parts[i].tokens(n), d.hold})
	}
	return r, a.err
}

var onlyKey = []int{0}

func reserve(ctx context.Context, m *member, r request) (*Reservation, error) {
	r.n = leastEstimate(r.n)
	result, hold, err := m.takeHold(ctx, r)
	made := &Reservation{result: result, argParts: onlyKey}
	made.one[0] = reserved{m, r.name, r.own, 1, r.n, hold}
	made.parts = made.one[:]
	return made, err
}

// OK reports whether the estimate was admitted. If OK is false, Settle and Cancel do nothing.
func (r *Reservation) OK() bool { return r.result.OK }

// Result returns the Result that Take would have returned.
func (r *Reservation) Result() Result { return r.result }

// Settle replaces the estimate by the actual cost, the same cost for every key of a Joined; see SettleEach.
// If the actual cost is lower, Settle refunds the difference; a window credits the refund only while it
// counts the reservation. If the actual cost is higher, the bucket owes the difference: it pays with its
// tokens, and grants nothing to any process until the rate has paid the remaining debt. A calendar's debt
// ends with its period. The correction by Settle travels with the key's next lease call, within a Target.
//
// One debt is at most Policy.MaxOvershoot bursts of each key, 10 by default. Settle charges a larger debt up
// to MaxOvershoot, and the error wraps ErrOvershoot. A negative actual cost settles nothing: the error wraps
// ErrInvalidN. If a debt could not be recorded and is lost, the error wraps ErrClosed, ErrTableFull, the
// error of Config.LimitsFor, or ErrInvalidConfig if LimitsFor returns invalid limits.
func (r *Reservation) Settle(actual int64) error {
	if actual < 0 {
		return fmt.Errorf("%w: the actual cost is %d, must be at least 0", ErrInvalidN, actual)
	}
	return r.settle(func(p *reserved) int64 { return product(actual, p.times) })
}

// SettleEach is Settle with an actual cost for each key, in the order of Join.
func (r *Reservation) SettleEach(actual ...int64) error {
	if !r.OK() {
		return nil
	}
	if err := eachValid(actual, len(r.argParts)); err != nil {
		return err
	}
	return r.settle(func(p *reserved) (sum int64) {
		for k, n := range actual {
			if &r.parts[r.argParts[k]] == p {
				sum += min(n, math.MaxInt64-sum)
			}
		}
		return sum
	})
}

func (r *Reservation) settle(cost func(*reserved) int64) error {
	if !r.ends() {
		return nil
	}
	var errs []error
	for i := range r.parts {
		p := &r.parts[i]
		actual := cost(p)
		switch more := min(actual-p.estimate, lease.WaitingMax); { // WaitingMax is the most a bucket counts
		case more > 0:
			charged, err := p.m.charge(p.name, p.own, more)
			if err == nil && charged < more {
				err = fmt.Errorf("%w: key %s: the actual cost is %d, the estimate %d; "+
					"Policy.MaxOvershoot charges at most %d more",
					ErrOvershoot, brief(p.name), actual, p.estimate, charged)
			}
			errs = append(errs, err)
		case more < 0 && p.hold.n > 0: // a fallback takes no tokens of the bucket
			p.m.refund(p.name, p.own, -more, &p.hold.draw)
		}
	}
	return errors.Join(errs...)
}

// Cancel gives back the reserved tokens because the work was not done. The bucket credits the tokens less its
// refill since the reservation, so a later Cancel credits fewer tokens. The bucket credits no tokens if,
// since the reservation, the limits were changed or a refund has raised the level. Cancel thus never exceeds
// the limit; Settle(0) refunds all tokens. After Close, Cancel loses the tokens.
func (r *Reservation) Cancel() {
	if !r.ends() {
		return
	}
	for i := range r.parts {
		p := &r.parts[i]
		p.hold.giveBack(p.m, p.name, p.own, p.hold.n)
	}
}

// ends reports whether r is OK and had no Settle or Cancel before, and records that r has one now.
func (r *Reservation) ends() bool { return r.OK() && !r.settled.Swap(true) }
