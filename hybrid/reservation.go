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

// Reservation is tokens that were taken for something whose cost is known only afterwards, such as
// the tokens of a language model, bytes or rows: take an estimate, do the work, and Settle its cost;
// or Cancel where it did not happen. The first of the two counts, and later calls do nothing. A
// Reservation that is abandoned has spent its estimate. Goroutines may share one.
//
// It is not that of golang.org/x/time/rate, which promises tokens of the future and says when to
// use them. A process cannot promise what its bucket has not leased to it, so this one has its
// tokens now, or is not OK; a caller that would come later uses Wait.
type Reservation struct {
	result  Result
	settled atomic.Bool
	parts   []reserved
	given   []int       // of the keys in the order of Join, the part of each
	one     [1]reserved // of parts, where there is one key
}

// reserved is the part of a Reservation in one key, of which it asked for estimate tokens.
type reserved struct {
	m        *member
	name     string
	own      *proposal // of a KeyWithLimits; nil for others
	times    int64     // how often the key is joined
	estimate int64
	hold     hold
}

// leastEstimate returns the tokens that a reservation asks of a key: one where its estimate is 0, as only a
// request for tokens is denied by a key that owes.
func leastEstimate(estimate int64) int64 {
	if estimate == 0 {
		return 1
	}
	return estimate
}

// Reserve takes estimate tokens of every key or none, to be settled later; see Key.Reserve. The
// cost counts for every key alike.
func (j *Joined) Reserve(ctx context.Context, estimate int64) (*Reservation, error) {
	return j.reserve(ctx, j, leastEstimate(estimate))
}

// ReserveEach reserves estimate[i] tokens of the key that was the i-th argument of Join, of every key or of
// none; see TakeEach. It takes one token of a key whose estimates are 0, as Key.Reserve does. SettleEach
// settles it.
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

// reserve takes n tokens as asks says, which is j or has other numbers of tokens for its keys.
func (j *Joined) reserve(ctx context.Context, asks *Joined, n int64) (*Reservation, error) {
	a := asks.take(ctx, n, protocol.OneCall)
	r := &Reservation{result: a.result, given: j.given}
	for i, d := range a.told {
		p := &j.parts[i]
		r.parts = append(r.parts, reserved{p.m, p.name, p.own, p.times, asks.parts[i].of(n), d.hold})
	}
	return r, a.err
}

var onlyKey = []int{0}

func reserve(ctx context.Context, m *member, r request) (*Reservation, error) {
	r.n = leastEstimate(r.n)
	result, hold, err := m.takeHold(ctx, r)
	made := &Reservation{result: result, given: onlyKey}
	made.one[0] = reserved{m, r.name, r.own, 1, r.n, hold}
	made.parts = made.one[:]
	return made, err
}

// OK reports whether the estimate was admitted. If not, Settle and Cancel do nothing.
func (r *Reservation) OK() bool { return r.result.OK }

// Result is the one that Take would have returned.
func (r *Reservation) Result() Result { return r.result }

// Settle charges the actual cost. Below the estimate, the difference is refunded; a window credits it as long
// as it still counts the reservation. Above it, the bucket owes the difference: it takes what it has, and
// grants nothing to any process until the rate has paid the rest; a calendar's debt ends with its period.
// Both travel with the key's next lease call, within a Target. One debt is at most Policy.MaxOvershoot bursts
// of each key, 10 by default; of a larger one that much is charged, and the error wraps ErrOvershoot.
//
// Errors also wrap ErrInvalidN for a negative actual, which settles nothing; and where a debt could not be
// noted and is lost, ErrClosed, ErrTableFull, or ErrInvalidConfig if
// the key is not in use and LimitsFor gives limits that cannot be used.
func (r *Reservation) Settle(actual int64) error {
	if actual < 0 {
		return fmt.Errorf("%w: the actual cost is %d, must be at least 0", ErrInvalidN, actual)
	}
	return r.settle(func(p *reserved) int64 { return product(actual, p.times) })
}

// SettleEach is Settle with the actual cost of each key, in the order of Join.
func (r *Reservation) SettleEach(actual ...int64) error {
	if !r.OK() {
		return nil
	}
	if err := eachValid(actual, len(r.given)); err != nil {
		return err
	}
	return r.settle(func(p *reserved) (sum int64) {
		for k, n := range actual {
			if &r.parts[r.given[k]] == p {
				sum += min(n, math.MaxInt64-sum)
			}
		}
		return sum
	})
}

// settle settles each part with the tokens that it cost.
func (r *Reservation) settle(cost func(*reserved) int64) error {
	if !r.ends() {
		return nil
	}
	var errs []error
	for i := range r.parts {
		p := &r.parts[i]
		actual := cost(p)
		switch more := min(actual-p.estimate, lease.WaitingMax); { // no bucket can count more
		case more > 0:
			charged, err := p.m.charge(p.name, p.own, more)
			if err == nil && charged < more {
				err = fmt.Errorf("%w: key %s: the actual cost is %d, the estimate %d; "+
					"Policy.MaxOvershoot charges at most %d more",
					ErrOvershoot, brief(p.name), actual, p.estimate, charged)
			}
			errs = append(errs, err)
		case more < 0 && p.hold.n > 0: // what a fallback has admitted was taken from no bucket
			p.m.refund(p.name, p.own, -more, &p.hold.draw)
		}
	}
	return errors.Join(errs...)
}

// Cancel says that the work did not happen. The tokens go back as if they had not been asked for: the bucket
// credits what it has not refilled since, which is less the later Cancel comes, and nothing where the limits
// were changed or a refund has raised the level since. So it never exceeds the limit, where Settle(0) is a
// Refund of all and as such a new permit. After Close the tokens are burnt.
func (r *Reservation) Cancel() {
	if !r.ends() {
		return
	}
	for i := range r.parts {
		p := &r.parts[i]
		p.hold.giveBack(p.m, p.name, p.own, p.hold.n)
	}
}

func (r *Reservation) ends() bool { return r.OK() && !r.settled.Swap(true) }
