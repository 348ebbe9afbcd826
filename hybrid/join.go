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
	"time"

	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// joinMax is how many keys may be joined, and holdsInline how many of them cost no allocation.
const joinMax, holdsInline = 16, 4

// Joined decides about several keys at once, such as everybody's, a tenant's and a user's: a
// request is admitted where every key has room, and then takes from all of them. Otherwise it takes
// from none: what it had taken goes back, and each bucket takes it less what it has refilled since. A
// request for n tokens asks for n of every key, and for 2n of a key that was given twice.
//
// The keys' bounds hold for the fleet in any window. For a moment it may admit fewer than one process would,
// as with any key: one process may hold the last tokens of one key, and another process those of the other. A
// test that counts exactly asks through one Limiter, or shuts one down before it asks the next.
//
// Its methods are those of a Key. The keys may be of several Limiters, on different Stores, with
// which it lives. Goroutines may share it. See Limiter.Join.
type Joined struct {
	m     *member // counts requests that no key can be asked for
	name  string
	parts []part // in an order that is the same for all requests
	given []int  // of the keys in the order of Join, the part of each
	each  bool   // a request has a number of tokens for each part: see eachOf
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
	j := &Joined{m: l.first}
	var given []*Key
	names := make([]string, 0, len(keys))
	for _, k := range keys {
		if k == nil {
			j.err = fmt.Errorf("%w: a joined key is nil", ErrInvalidKey)
			continue
		}
		given, names = append(given, k), append(names, k.name)
		i := j.partOf(k)
		if i < 0 {
			i, j.parts = len(j.parts), append(j.parts, part{Key: k})
		}
		j.parts[i].times++
	}
	if n := len(j.parts); j.err == nil && (n == 0 || n > joinMax) {
		j.err = fmt.Errorf("%w: %d different joined keys, must be 1 to %d", ErrInvalidKey, n, joinMax)
	}
	j.name = strings.Join(names, "+")
	slices.SortFunc(j.parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.m.instance, b.m.instance), cmp.Compare(a.name, b.name))
	})
	for _, k := range given {
		j.given = append(j.given, j.partOf(k))
	}
	odd := func(p part) bool { return p.times > 1 || p.strict }
	if j.err == nil && len(j.parts) <= holdsInline && !slices.ContainsFunc(j.parts, odd) {
		for _, p := range j.parts {
			j.few = append(j.few, p.Key)
		}
	}
	return j
}

// partOf is the place of k's part, or -1.
func (j *Joined) partOf(k *Key) int {
	return slices.IndexFunc(j.parts, func(p part) bool { return p.m == k.m && p.name == k.name })
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
func (j *Joined) AllowN(n int64) bool { return j.allow(n, protocol.OneCall) }

// TryAllow is Allow that never waits; see Key.TryAllow.
func (j *Joined) TryAllow() bool { return j.allow(1, protocol.NoWait) }

func (j *Joined) allow(n int64, p protocol.Patience) bool {
	var space [holdsInline]hold
	_, ok := j.takeAll(space[:0], n)
	return ok || j.decide(request{n: n, patience: p}).ok
}

// Take takes n tokens of every key or none; see Limiter.Take. The Result is that of the key that
// binds: of those that denied that with the longest wait, or else that with the least left.
func (j *Joined) Take(ctx context.Context, n int64) (Result, error) {
	a := j.take(ctx, n, protocol.OneCall)
	return a.result, a.err
}

// TakeEach takes n[i] tokens of the key that was the i-th argument of Join, for every key or for none: one
// request and its 500 words, say, of which each has a limit. It is Take otherwise; Result.Taken is of the key
// that binds. Where len(n) is not the number of keys given to Join, the error wraps ErrInvalidN.
func (j *Joined) TakeEach(ctx context.Context, n ...int64) (Result, error) {
	e, err := j.eachOf(n)
	if err != nil {
		return Result{}, err
	}
	return e.Take(ctx, 1)
}

// eachOf is j for a request that asks the keys for these tokens: for one token of it, part i is asked for
// times tokens.
func (j *Joined) eachOf(n []int64) (*Joined, error) {
	if j.err != nil {
		return j, nil
	}
	e := &Joined{m: j.m, name: j.name, parts: slices.Clone(j.parts), each: true}
	for i := range e.parts {
		e.parts[i].times = 0
	}
	if err := eachValid(n, len(j.given)); err != nil {
		j.m.observer.invalid.Add(1)
		return nil, err
	}
	for k, n := range n {
		times := &e.parts[j.given[k]].times
		*times += min(n, lease.WaitingMax-*times) // which is above any burst
	}
	return e, nil
}

func eachValid(n []int64, keys int) error {
	if len(n) != keys {
		return fmt.Errorf("%w: %d numbers for %d keys", ErrInvalidN, len(n), keys)
	}
	return invalidN(slices.Min(n))
}

// TakeUpTo takes as many tokens of every key as all of them have, at most n; see Key.TakeUpTo.
func (j *Joined) TakeUpTo(ctx context.Context, n int64) (Result, error) {
	a := j.take(ctx, n, protocol.UpTo)
	return a.result, a.err
}

// Wait waits for one token of every key; see WaitN.
func (j *Joined) Wait(ctx context.Context) error { return j.WaitN(ctx, 1) }

// WaitN waits until n tokens of every key are this request's, or returns an error and has taken
// none. It waits in line at one key after another, in turn with all requests that wait for that key.
// It begins with the key that will have its tokens last and holds nothing meanwhile, so that
// what others could use does not lie idle. Errors are those of Key.WaitN.
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

// Refund says that n tokens of every key were not used; see Key.Refund.
func (j *Joined) Refund(n int64) {
	if j.invalid(n) != nil {
		j.m.observer.invalid.Add(1)
		return
	}
	for i := range j.parts {
		p := &j.parts[i]
		p.Key.Refund(p.of(n))
	}
}

// take is Take and TakeUpTo, whose Result is in the agreement.
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
	results := make([]Result, 0, len(a.told))
	for i := range a.told {
		if n := j.parts[i].of(r.least()); n > 0 || !j.each {
			results = append(results, a.told[i].result(j.parts[i].name, n))
		}
	}
	if len(results) == 0 {
		return Result{OK: true}
	}
	b := binding(results)
	if !j.each {
		b.Taken = a.told[0].taken / j.parts[0].times // which they have agreed on
	}
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
		if e == nil || e.client.Holder.Pool.Denies() {
			return false
		}
		h := &holds[i&(holdsInline-1)]
		h.entry, h.draw = e, e.client.Holder.Pool.Drawn()
	}
	for i := range j.few {
		e := holds[i&(holdsInline-1)].entry
		left, mark := e.client.Holder.Pool.Begin()
		if left >= mark || e.took(left, mark) {
			continue
		}
		for i, h := range holds[:i] {
			given := hold{h.entry, 1, 1, h.draw}
			given.giveBack(j.few[i].m, j.few[i].name, j.few[i].own, 1)
		}
		return false
	}
	return true
}

// takeAll takes n tokens of every key from the pools, or none, and appends them to holds, by part.
func (j *Joined) takeAll(holds []hold, n int64) ([]hold, bool) {
	if n <= 0 || j.err != nil {
		return nil, false
	}
	// Where one is known to deny, nothing is taken from the others: giving it back takes their locks.
	for i := range j.parts {
		if e := j.parts[i].inUse(); e == nil || j.parts[i].times == 0 || e.client.Holder.Pool.Denies() {
			return nil, false
		}
	}
	for i := range j.parts {
		p := &j.parts[i]
		e := p.e.Load()
		h, ok := e.takeHold(p.of(n))
		if !ok {
			j.giveBack(holds)
			return nil, false
		}
		holds = append(holds, h)
	}
	return holds, true
}

func (j *Joined) giveBack(holds []hold) {
	for i := range holds {
		p := &j.parts[i]
		holds[i].giveBack(p.m, p.name, p.own, holds[i].n)
	}
}

type agreement struct {
	ok      bool
	err     error
	told    []decision // by part; zero for a part that was not asked
	binding int        // of a denial: the part that denied
	result  Result     // what Take says
}

// of returns how many tokens a request for n, which is not negative, asks of p.
func (p *part) of(n int64) int64 { return product(n, p.times) }

// product returns a*b, of which neither is negative, or the largest int64: more than any burst.
func product(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

func (p *part) inUse() *entry {
	e := p.e.Load()
	if e == nil && p.own == nil {
		if e = p.m.keys.locate(p.name).entry(); e != nil {
			p.e.Store(e)
		}
	}
	return e
}

// ask is the answer of one key. Its Limiter does not count or announce a denial here: Joined.deny does that for
// the one key that binds.
func (p *part) ask(r request) decision {
	r.name, r.handle, r.own, r.n, r.tried, r.joined = p.name, &p.e, p.own, p.of(r.n), p.inUse(), true
	r.n, r.patience = r.tried.most(r), p.m.patience(r.patience)
	return p.m.answer(r)
}

// admits reports whether d, the answer of p's key, lets the request pass: as a denial by a limit does where the
// Limiter shadows. It is false for a key that was not asked.
func (p *part) admits(d *decision) bool {
	return d.ok || (d.byLimit() || d.err != nil) && p.m.observer.overrules(d.err)
}

// decide answers a request that does not wait in line, where the pools did not have it all.
func (j *Joined) decide(r request) agreement {
	if err := j.invalid(r.n); err != nil {
		return j.refuse(err)
	}
	if r.ctx == nil {
		r.ctx = context.Background()
	}
	for i := range j.parts { // all that is asked has one CallTimeout together
		cfg := &j.parts[i].m.cfg
		r.until = max(r.until, cfg.Clock.Now().Add(cfg.CallTimeout))
	}
	told := make([]decision, len(j.parts))
	// The key that is likeliest to deny comes first: nothing has been taken from the others yet.
	if i := j.scarcest(r); i >= 0 {
		if told[i] = j.parts[i].ask(r); !j.parts[i].admits(&told[i]) {
			return j.deny(r, told)
		}
	}
	var lacking []int
	for i := range j.parts {
		if j.parts[i].admits(&told[i]) {
			continue
		}
		e := j.parts[i].inUse()
		one := r
		one.n = j.parts[i].of(r.n)
		if h, ok := e.takeHold(e.most(one)); ok {
			told[i] = decision{ok: true, taken: h.n, entry: e, hold: h}
		} else {
			lacking = append(lacking, i)
		}
	}
	// Their calls travel at the same time. A denial ends the wait for the others.
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	asked := r
	asked.ctx = ctx
	var wg sync.WaitGroup
	for k, i := range lacking {
		ask := func() {
			told[i] = j.parts[i].ask(asked)
			if !j.parts[i].admits(&told[i]) && r.patience != protocol.NoWait {
				cancel()
			}
		}
		if k < len(lacking)-1 && r.patience != protocol.NoWait && r.n > 0 {
			wg.Go(ask)
		} else {
			ask()
		}
	}
	wg.Wait()
	for i := range told {
		if !j.parts[i].admits(&told[i]) {
			return j.deny(r, told)
		}
	}
	if r.patience == protocol.UpTo && r.n > 0 && !j.level(&r, told) {
		return j.deny(r, told)
	}
	return j.agree(r, told)
}

// level lowers r, for up to r.n tokens, to the smallest grant among the keys. What is left of it counts as denied
// at that key. It is false, and r is unchanged, where a key has granted less than a request for one token asks of
// it: that has denied.
func (j *Joined) level(r *request, told []decision) bool {
	n, least := r.n, -1
	for i := range told {
		if most := told[i].taken / j.parts[i].times; most < n && !j.parts[i].m.cfg.Policy.Shadow {
			n, least = most, i
		}
	}
	if least < 0 {
		return true
	}
	p, d := &j.parts[least], &told[least]
	if n == 0 {
		d.ok, d.taken = false, 0
		return false
	}
	p.m.book(d, countable(d.capped(r.patience, p.of(r.n))-p.of(n)))
	r.n = n
	return true
}

// agree trims every grant to r. Tokens that a shadowing Limiter has not given count as denied there.
func (j *Joined) agree(r request, told []decision) agreement {
	for i := range told {
		p, d := &j.parts[i], &told[i]
		n := p.of(r.n)
		switch {
		case !d.ok:
			one := r
			one.name, one.n, one.joined = p.name, n, true
			*d = p.m.deny(one, *d)
		case d.taken < n:
			p.m.book(d, countable(max(0, d.capped(r.patience, n)-d.taken)))
			d.shadowed = true
		}
		d.hold.giveBack(p.m, p.name, p.own, d.hold.n-n)
		d.taken = n
	}
	return agreement{ok: true, told: told}
}

// invalid returns why a request for n tokens is refused before any key is asked.
func (j *Joined) invalid(n int64) error {
	if j.err != nil {
		return j.err
	}
	return invalidN(n)
}

func (j *Joined) refuse(err error) agreement {
	j.m.observer.invalid.Add(1)
	return agreement{err: err}
}

// deny gives everything back. The request counts at the key that binds and at no
// other: as denied, or as member.deny says for an error.
func (j *Joined) deny(r request, told []decision) agreement {
	a := agreement{told: told, binding: j.bindingOf(r, told)}
	for i := range told {
		p, h := &j.parts[i], &told[i].hold
		h.giveBack(p.m, p.name, p.own, h.n)
	}
	p, d := &j.parts[a.binding], &told[a.binding]
	r.name, r.n, r.joined = p.name, p.of(r.n), true
	*d = p.m.deny(r, *d)
	a.err = d.err
	return a
}

// bindingOf picks the denial of r to report: an error before a mere denial, then the longest wait,
// and last one whose wait was ended because another key had denied.
func (j *Joined) bindingOf(r request, told []decision) (binding int) {
	most := time.Duration(-1)
	for i := range told {
		d := &told[i]
		wait := time.Duration(0)
		switch {
		case j.parts[i].admits(d) || !d.byLimit() && d.err == nil:
			continue // or not asked
		case d.err == nil:
			p := &j.parts[i]
			wait = d.result(p.name, p.of(r.n)).RetryAfter
		case r.ctx.Err() != nil || !errors.Is(d.err, context.Canceled):
			wait = math.MaxInt64
		}
		if wait > most {
			binding, most = i, wait
		}
	}
	return binding
}

// gatherTries is how often a request that waits gives everything back because a key lacks tokens.
const gatherTries = 3

// gather is WaitN (docs/protocol.md section 9.17). The last try waits for as long as it takes, and
// comes to an end: tokens come with time, so no request waits for those that another one holds.
func (j *Joined) gather(r request) agreement {
	if err := j.invalid(r.n); err != nil {
		return j.refuse(err)
	}
	first := j.rarest(r.n)
	for try := 1; ; try++ {
		a, lacking := j.gatherFrom(r, first, try <= gatherTries)
		if lacking < 0 {
			return a
		}
		first = lacking
	}
}

// gatherFrom waits for the part first and then for each of the others, in an order that is the same
// for all requests. Where one of these takes too long, in a try that is bounded, it gives everything
// back, and lacking is that part; otherwise -1.
func (j *Joined) gatherFrom(r request, first int, bounded bool) (a agreement, lacking int) {
	told := make([]decision, len(j.parts))
	for k := range j.parts {
		i := k
		if k == 0 {
			i = first
		} else if k <= first {
			i = k - 1
		}
		p, late := &j.parts[i], false
		if bounded && i != first {
			told[i], late = p.askSoon(r)
		} else {
			told[i] = p.ask(r)
		}
		if late {
			for i := range told {
				p, h := &j.parts[i], &told[i].hold
				h.giveBack(p.m, p.name, p.own, h.n)
			}
			return agreement{}, i
		}
		if !p.admits(&told[i]) {
			return j.deny(r, told), -1
		}
	}
	return j.agree(r, told), -1
}

// askSoon asks and waits at most max(2 Targets, CallTimeout), as tokens of other keys lie idle meanwhile. late
// reports that this time ran out.
func (p *part) askSoon(r request) (d decision, late bool) {
	outer := r.ctx
	until := time.Now().Add(max(2*p.m.cfg.Policy.TargetFor(nil), p.m.cfg.CallTimeout))
	if at, ok := outer.Deadline(); ok && at.Before(until) {
		return p.ask(r), false
	}
	ctx, cancel := context.WithDeadline(outer, until)
	defer cancel()
	r.ctx = ctx
	d = p.ask(r)
	return d, !p.admits(&d) && outer.Err() == nil && errors.Is(d.err, context.DeadlineExceeded)
}

// scarcest is the part to ask before the others are drawn from: one that is sure to deny, or else the one
// that is likely to for longest; -1 where all are likely to have their tokens. A bucket credits what comes
// back less what it has refilled meanwhile, so a denial by one key would cost another one its refill.
func (j *Joined) scarcest(r request) (scarcest int) {
	scarcest = -1
	longest := time.Duration(0)
	for i := range j.parts {
		in, sure := j.parts[i].lacks(r)
		if sure {
			return i
		}
		if in > longest {
			scarcest, longest = i, in
		}
	}
	return scarcest
}

// lacks is for how long p's key is likely to deny r: 0 where it is likely to admit it, or nothing
// is known. sure says that it denies r without a call.
func (p *part) lacks(r request) (in time.Duration, sure bool) {
	n := p.of(r.least())
	e := p.inUse()
	switch {
	case n <= 0:
		return 0, false
	case e.denies():
		return 1, true
	case e != nil:
		return e.lacks(n)
	case p.atRest((*protocol.Key).Denied):
		return 1, false
	}
	return 0, false
}

// atRest reports what is says of p's key, which has no entry.
func (p *part) atRest(is func(*protocol.Key) bool) (yes bool) {
	p.m.keys.idle.with(p.m.keys.locate(p.name).slot, func(k *protocol.Key) { yes = is(k) })
	return yes
}

// rarest is the part that will have its tokens last, as far as is known: the first of those that
// are not known, because to ask is quicker than to give back.
func (j *Joined) rarest(n int64) (rarest int) {
	longest := time.Duration(-1)
	for i := range j.parts {
		p := &j.parts[i]
		in := time.Duration(math.MaxInt64)
		if e := p.inUse(); e != nil {
			e.with(func() { in = e.client.ReadyIn(e.Now(), p.of(n)) })
		} else if now := p.m.cfg.Clock.Now(); p.atRest(func(k *protocol.Key) bool { return k.Admits(now) }) {
			in = 0
		}
		if in > longest {
			rarest, longest = i, in
		}
	}
	return rarest
}
