package hybrid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// joinMax is how many keys may be joined, and holdsInline how many of them cost no allocation.
const joinMax, holdsInline = 16, 4

// Joined decides about several keys at once, such as everybody's, a tenant's and a user's: a
// request is admitted where every key has room, and then takes from all of them. Otherwise it takes
// from none: what it had taken goes back, and each bucket credits what it has not refilled since. A
// request for n tokens asks for n of every key, and for 2n of a key that was given twice.
//
// Its methods are those of a Key. The keys may be of several Limiters, on different Stores, with
// which it lives. Goroutines may share it. See Limiter.Join.
type Joined struct {
	l     *Limiter
	name  string
	parts []part // in an order that is the same for everybody
	few   []*Key // the same keys, where takeOne can serve them
	err   error  // why it denies everything; nil if it does not
}

// part is one key of a Joined, of which a request for n tokens asks for times*n.
type part struct {
	*Key
	times int64
}

// Join joins keys, of this Limiter and of others: at most 16 different ones. With none, with more,
// or with a nil one every method of the Joined denies, and those that return an error say why by
// ErrInvalidKey. Join allocates, so a Joined that is used again and again is best kept.
func (l *Limiter) Join(keys ...*Key) *Joined {
	j := &Joined{l: l}
	names := make([]string, 0, len(keys))
	for _, k := range keys {
		if k == nil {
			j.err = fmt.Errorf("%w: a key to join is nil", ErrInvalidKey)
			continue
		}
		names = append(names, k.name)
		i := slices.IndexFunc(j.parts, func(p part) bool { return p.l == k.l && p.name == k.name })
		if i < 0 {
			i, j.parts = len(j.parts), append(j.parts, part{Key: k})
		}
		j.parts[i].times++
	}
	if n := len(j.parts); j.err == nil && (n == 0 || n > joinMax) {
		j.err = fmt.Errorf("%w: %d different keys to join, must be 1 to %d", ErrInvalidKey, n, joinMax)
	}
	j.name = strings.Join(names, "+")
	slices.SortFunc(j.parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.l.instance, b.l.instance), cmp.Compare(a.name, b.name))
	})
	odd := func(p part) bool { return p.times > 1 || p.strict }
	if j.err == nil && len(j.parts) <= holdsInline && !slices.ContainsFunc(j.parts, odd) {
		for _, p := range j.parts {
			j.few = append(j.few, p.Key)
		}
	}
	return j
}

// Name is the names of the keys, in the order in which they were given, with "+" between them.
func (j *Joined) Name() string { return j.name }

// Keys are the keys, each once, in no particular order.
func (j *Joined) Keys() (all []*Key) {
	for i := range j.parts {
		all = append(all, j.parts[i].Key)
	}
	return all
}

// Allow takes one token of every key or none. Where all keys are warm it costs about one atomic
// instruction for each, and for up to four keys no allocation. Otherwise it waits as Limiter.Allow
// does, for all keys together no longer than the longest CallTimeout of their Limiters.
func (j *Joined) Allow() bool { return j.takeOne() || j.AllowN(1) }

// AllowN takes n tokens of every key or none; see Limiter.AllowN.
func (j *Joined) AllowN(n int64) bool {
	var space [holdsInline]hold
	_, ok := j.takeAll(space[:0], n)
	return ok || j.decide(request{n: n, patience: protocol.OneCall}).ok
}

// TryAllow is Allow that never waits; see Limiter.TryAllow.
func (j *Joined) TryAllow() bool {
	var space [holdsInline]hold
	_, ok := j.takeAll(space[:0], 1)
	return ok || j.decide(request{n: 1, patience: protocol.NoWait}).ok
}

// Take takes n tokens of every key or none. The Result is that of the key that binds: of those that
// denied the one with the longest wait, or else the one with the least left of its burst. See
// Limiter.Take.
func (j *Joined) Take(ctx context.Context, n int64) (Result, error) {
	a := j.take(ctx, n, protocol.OneCall)
	return a.result, a.err
}

// TakeUpTo takes as many tokens of every key as all of them have, at most n; see Limiter.TakeUpTo.
func (j *Joined) TakeUpTo(ctx context.Context, n int64) (Result, error) {
	a := j.take(ctx, n, protocol.UpTo)
	return a.result, a.err
}

// Wait waits for one token of every key; see WaitN.
func (j *Joined) Wait(ctx context.Context) error { return j.WaitN(ctx, 1) }

// WaitN waits until n tokens of every key are this request's, or returns an error and has taken
// none. It waits in line at one key after another, and takes turns there with all who wait for that
// key. It begins with the key that will have its tokens last and holds nothing meanwhile, so that
// what others could use does not lie idle. Errors are those of Limiter.WaitN.
func (j *Joined) WaitN(ctx context.Context, n int64) error {
	if ctx.Err() != nil {
		return endedBy(ctx, "wait")
	}
	var space [holdsInline]hold
	if _, ok := j.takeAll(space[:0], n); ok {
		return nil
	}
	return j.gather(request{n: n, patience: protocol.InLine, ctx: ctx, verb: "wait"}).err
}

// Peek asks the stores about every key, as Limiter.Peek does, and takes nothing. The Result is that
// of the key that binds, as Take has it. Errors are those of Limiter.Peek.
func (j *Joined) Peek(ctx context.Context) (Result, error) {
	if j.err != nil {
		return Result{}, j.err
	}
	results, errs := make([]Result, len(j.parts)), make([]error, len(j.parts))
	var wg sync.WaitGroup
	for i := range j.parts {
		wg.Go(func() { results[i], errs[i] = j.parts[i].Peek(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return Result{}, err
	}
	return binding(results), nil
}

// Refund says that n tokens of every key were not used; see Limiter.Refund.
func (j *Joined) Refund(n int64) {
	for i := range j.parts {
		p := &j.parts[i]
		p.Key.Refund(p.of(n))
	}
}

// take is Take and TakeUpTo. What they say is in the result.
func (j *Joined) take(ctx context.Context, n int64, p protocol.Patience) agreement {
	if ctx.Err() != nil {
		return agreement{err: endedBy(ctx, "take")}
	}
	r := request{n: n, patience: p, ctx: ctx, verb: "take"}
	a := agreement{ok: true}
	if holds, ok := j.takeAll(nil, n); ok {
		for _, h := range holds {
			a.told = append(a.told, decision{ok: true, taken: h.n, entry: h.entry, hold: h})
		}
	} else {
		a = j.decide(r)
	}
	a.result = j.resultOf(r, a)
	return a
}

func (j *Joined) resultOf(r request, a agreement) Result {
	if a.told == nil {
		return Result{OK: a.ok}
	}
	if !a.ok {
		return a.told[a.binding].result(j.parts[a.binding].name, j.parts[a.binding].of(r.least()))
	}
	results := make([]Result, len(a.told))
	for i := range a.told {
		results[i] = a.told[i].result(j.parts[i].name, j.parts[i].of(r.least()))
	}
	b := binding(results)
	b.Taken = a.told[0].taken / j.parts[0].times // which they have agreed on
	return b
}

// binding is the one of several results that says most about all: a denial with the longest wait,
// or else what has the least left of its burst. Its Source is the least reliable of all.
func binding(all []Result) Result {
	r, least := all[0], math.Inf(1)
	source := SourceLocal
	for _, other := range all {
		source = max(source, other.Source)
		left := float64(other.Remaining) / float64(max(other.Limit.Capacity(), 1))
		if !other.OK || other.Shadowed {
			left = -float64(other.RetryAfter)
		}
		if left < least {
			r, least = other, left
		}
	}
	r.Source = source
	return r
}

// takeOne takes one token of every key from the pools, or none. It is takeAll for the commonest
// request, and the hot path: where all is well it costs one atomic instruction for each key.
func (j *Joined) takeOne() bool {
	if len(j.few) == 0 {
		return false
	}
	var holds [holdsInline]struct {
		entry *entry
		draw  pool.Draw
	}
	for i, k := range j.few {
		e := k.e.Load()
		if e == nil || e.client.Pool.Denies() {
			return false
		}
		h := &holds[i&(holdsInline-1)]
		h.entry, h.draw = e, e.client.Pool.Drawn()
	}
	for i := range j.few {
		e := holds[i&(holdsInline-1)].entry
		left, mark := e.client.Pool.Begin()
		if left >= mark || e.took(left, mark) {
			continue
		}
		e.uncount(1) // it is asked again
		for i, h := range holds[:i] {
			given := hold{h.entry, 1, 1, h.draw}
			given.giveBack(j.few[i].l, j.few[i].name, j.few[i], 1)
		}
		return false
	}
	return true
}

// took is the rest of a take of one token that has more to do than that; see pool.Pool.Begin.
func (e *entry) took(left, mark int64) bool {
	p := &e.client.Pool
	if mark == pool.MarkStriped {
		i := pool.Pin()
		ok := p.TakeAt(i)
		pool.Unpin(i)
		if ok {
			return true
		}
	}
	t := p.End(left, mark)
	if t == pool.TookLow {
		e.low()
	}
	return t.OK()
}

// takeAll takes n tokens of every key from the pools, or none. It appends what it took to holds, by
// part. It is the hot path.
func (j *Joined) takeAll(holds []hold, n int64) ([]hold, bool) {
	if n <= 0 || n > math.MaxInt64/joinMax || j.err != nil {
		return nil, false
	}
	// Where one is known to deny, nothing is taken from the others: giving it back takes their locks.
	for i := range j.parts {
		if e := j.parts[i].inUse(); e == nil || e.client.Pool.Denies() {
			return nil, false
		}
	}
	for i := range j.parts {
		p := &j.parts[i]
		e := p.e.Load()
		h, ok := e.takeHold(n * p.times)
		if !ok {
			e.uncount(n * p.times) // it is asked again
			j.giveBack(holds)
			return nil, false
		}
		holds = append(holds, h)
	}
	return holds, true
}

// giveBack gives back what the first parts hold.
func (j *Joined) giveBack(holds []hold) {
	for i := range holds {
		p := &j.parts[i]
		holds[i].giveBack(p.l, p.name, p.Key, holds[i].n)
	}
}
