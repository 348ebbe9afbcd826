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
// the tokens of a language model. Reserve an estimate, do the work, and Settle the actual cost, or Cancel if
// the work was not done. Only the first Settle or Cancel counts. An abandoned Reservation has spent its
// estimate. Goroutines may share it.
//
// It differs from the Reservation of golang.org/x/time/rate, which promises future tokens and a time to use
// them. A process cannot promise tokens that its bucket has not leased to it. So this Reservation has its
// tokens now, or is not OK; to get tokens later, use Wait.
type Reservation struct {
	result   Result
	settled  atomic.Bool
	parts    []reserved
	argParts []int       // index in parts of each argument of Join
	one      [1]reserved // space for parts of one key
}

type reserved struct {
	m        *member
	name     string
	own      *proposal // nil unless from KeyWithLimits
	times    int64     // number of arguments of Join with this key
	estimate int64
	hold     hold
}

// leastEstimate returns the tokens to take for an estimate: at least one, because a key in debt denies only
// requests for tokens.
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

// ReserveEach reserves estimate[i] tokens of the i-th key in the order of Join, of all keys or of none; see
// TakeEach. A key with an estimate of 0 gives one token, as for Key.Reserve. End it with SettleEach, which
// has a cost for each key: Settle would charge one cost to every key. Errors are those of TakeEach.
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

// reserve takes n tokens of asks, which is j, or j with other numbers of tokens for its keys.
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

// OK reports whether the estimate was admitted. If not, Settle and Cancel do nothing.
func (r *Reservation) OK() bool { return r.result.OK }

// Result returns the Result that Take would have returned.
func (r *Reservation) Result() Result { return r.result }

// Settle replaces the estimate by the actual cost, the same cost for every key of a Joined; see SettleEach.
// If the actual cost is lower, Settle refunds the difference; a window credits it while it still counts the
// reservation. If it is higher, the bucket owes the difference: it pays with the tokens that it has, and
// grants nothing to any process until the rate has paid the rest. A calendar's debt ends with its period. The
// change travels with the key's next lease call, within a Target.
//
// One debt is at most Policy.MaxOvershoot bursts of each key, 10 by default. A larger one is charged up to
// that, and the error wraps ErrOvershoot. A negative actual cost settles nothing: the error wraps
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
		switch more := min(actual-p.estimate, lease.WaitingMax); { // the most that a bucket counts
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

// Cancel gives the tokens back because the work was not done. The bucket credits them less its refill since
// the reservation, so the later Cancel comes, the fewer tokens it credits. It credits none if the limits were
// changed or a refund has raised the level since. So Cancel never exceeds the limit; Settle(0) refunds all
// tokens. After Close the tokens are lost.
func (r *Reservation) Cancel() {
	if !r.ends() {
		return
	}
	for i := range r.parts {
		p := &r.parts[i]
		p.hold.giveBack(p.m, p.name, p.own, p.hold.n)
	}
}

// ends reports whether r is OK and this is its first Settle or Cancel.
func (r *Reservation) ends() bool { return r.OK() && !r.settled.Swap(true) }
