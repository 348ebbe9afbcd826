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

// joinMax bounds the keys of a Joined. Requests for up to holdsInline keys allocate nothing.
const joinMax, holdsInline = 16, 4

// Joined decides about several keys at once, such as a tenant's and a user's, by the methods of a Key. A
// Joined admits a request if every key has the tokens, and takes tokens of all keys; otherwise it takes none.
// A request for n tokens takes n of every key, and 2n of a key that Join got twice.
//
// Like a single key, a Joined may deny for a moment although the buckets have tokens: each of two processes
// may hold the last tokens of a different key. A test that counts exactly uses one Limiter at a time.
//
// Keys of a Joined may belong to several open Limiters on different Stores. Goroutines may share a Joined.
type Joined struct {
	m        *member // member whose Stats count invalid requests
	name     string
	parts    []part // different keys, in the same order for all requests
	argParts []int  // index in parts of each argument of Join
	each     bool   // whether eachOf made this Joined
	fastKeys []*Key // keys of parts if takeOne can serve requests
	err      error  // error of every request; nil for a valid Joined
}

// part is one key of a Joined. A request for n tokens takes times*n tokens of the key.
type part struct {
	*Key
	times int64
}

// Join returns a Joined of 1 to 16 different keys of this Limiter and others. With no key, more than 16 keys
// or a nil key, every method of the Joined denies, or returns an error that wraps ErrInvalidKey. Join
// allocates: keep a Joined that is used often.
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
		j.argParts = append(j.argParts, j.partOf(k))
	}
	odd := func(p part) bool { return p.times > 1 || p.strict }
	if j.err == nil && len(j.parts) <= holdsInline && !slices.ContainsFunc(j.parts, odd) {
		for _, p := range j.parts {
			j.fastKeys = append(j.fastKeys, p.Key)
		}
	}
	return j
}

func (j *Joined) partOf(k *Key) int {
	return slices.IndexFunc(j.parts, func(p part) bool { return p.m == k.m && p.name == k.name })
}

// Name returns the names of the keys in the order of Join, with "+" between them.
func (j *Joined) Name() string { return j.name }

// Keys returns the different keys, in no particular order.
func (j *Joined) Keys() (all []*Key) {
	for i := range j.parts {
		all = append(all, j.parts[i].Key)
	}
	return all
}

// Allow takes one token of every key or none; see Limiter.Allow. Allow waits for all keys together at most
// the longest CallTimeout of their Limiters.
func (j *Joined) Allow() bool { return j.takeOne() || j.AllowN(1) }

// AllowN takes n tokens of every key or none; see Limiter.AllowN.
func (j *Joined) AllowN(n int64) bool { return j.allow(n, protocol.OneCall) }

// TryAllow is Allow without waiting; see Key.TryAllow.
func (j *Joined) TryAllow() bool { return j.allow(1, protocol.NoWait) }

func (j *Joined) allow(n int64, p protocol.Patience) bool {
	var space [holdsInline]hold
	_, ok := j.takeAll(space[:0], n)
	return ok || j.decide(request{n: n, patience: p}).ok
}

// Take takes n tokens of every key or none; see Limiter.Take. The Result describes the key that binds: after
// a denial the key with the longest wait, otherwise the key with the smallest fraction left. If Take knows
// that a key denies, it asks no other key.
func (j *Joined) Take(ctx context.Context, n int64) (Result, error) {
	a := j.take(ctx, n, protocol.OneCall)
	return a.result, a.err
}

// TakeEach is Take with a number for each key: n[i] tokens of the i-th key of Join, for example one for a
// request and 500 for its words. Result.Taken counts tokens of the key that binds. If len(n) is not the
// number of arguments of Join, the error wraps ErrInvalidN.
func (j *Joined) TakeEach(ctx context.Context, n ...int64) (Result, error) {
	e, err := j.eachOf(n)
	if err != nil {
		return Result{}, err
	}
	return e.Take(ctx, 1)
}

// eachOf returns a copy of j, whose request for one token takes n[i] tokens of the i-th argument of Join.
func (j *Joined) eachOf(n []int64) (*Joined, error) {
	if j.err != nil {
		return j, nil
	}
	e := &Joined{m: j.m, name: j.name, parts: slices.Clone(j.parts), each: true}
	for i := range e.parts {
		e.parts[i].times = 0
	}
	if err := eachValid(n, len(j.argParts)); err != nil {
		j.m.observer.invalid.Add(1)
		return nil, err
	}
	for k, n := range n {
		times := &e.parts[j.argParts[k]].times
		*times += min(n, lease.WaitingMax-*times) // WaitingMax is above any burst
	}
	return e, nil
}

// TakeUpTo takes the most tokens that every key has, equally many of each, up to n; see Key.TakeUpTo.
func (j *Joined) TakeUpTo(ctx context.Context, n int64) (Result, error) {
	a := j.take(ctx, n, protocol.UpTo)
	return a.result, a.err
}

// Wait waits for one token of every key; see WaitN.
func (j *Joined) Wait(ctx context.Context) error { return j.WaitN(ctx, 1) }

// WaitN waits for n tokens of every key and takes them, or returns an error and takes none. WaitN waits in
// line at one key after another, first at the key that will have its tokens last, so that the tokens of other
// keys do not lie idle. Errors of WaitN are those of Key.WaitN.
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

// Reserve takes estimate tokens of every key or none; see Key.Reserve.
func (j *Joined) Reserve(ctx context.Context, estimate int64) (*Reservation, error) {
	return j.reserve(ctx, j, leastEstimate(estimate))
}

// ReserveEach is Reserve with an estimate for each key, in the order of Join; see TakeEach. The caller ends
// the Reservation with SettleEach, because Settle would charge one cost to every key.
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

// reserve takes n tokens of asks, which is j or a copy of j by eachOf.
func (j *Joined) reserve(ctx context.Context, asks *Joined, n int64) (*Reservation, error) {
	a := asks.take(ctx, n, protocol.OneCall)
	r := &Reservation{result: a.result, argParts: j.argParts}
	for i, d := range a.answers {
		p := &j.parts[i]
		r.parts = append(r.parts, reserved{p.Key, p.times, asks.parts[i].tokens(n), d.hold})
	}
	return r, a.err
}

// Refund gives back n tokens of every key that were not used; see Key.Refund.
func (j *Joined) Refund(n int64) {
	if j.invalid(n) != nil {
		j.m.observer.invalid.Add(1)
		return
	}
	for i := range j.parts {
		p := &j.parts[i]
		p.Key.Refund(p.tokens(n))
	}
}

func (j *Joined) take(ctx context.Context, n int64, p protocol.Patience) joinedAnswer {
	if ctx.Err() != nil {
		return joinedAnswer{err: endedBy(ctx, "take")}
	}
	r := request{n: n, patience: p, ctx: ctx, verb: "take"}
	a := joinedAnswer{ok: true}
	if holds, ok := j.takeAll(nil, n); ok {
		for _, h := range holds {
			a.answers = append(a.answers, decision{ok: true, taken: h.n, entry: h.entry, hold: h})
		}
	} else {
		a = j.decide(r)
	}
	a.result = j.resultOf(r, a)
	return a
}

func (j *Joined) resultOf(r request, a joinedAnswer) Result {
	if a.answers == nil {
		return Result{OK: a.ok}
	}
	if !a.ok {
		return a.answers[a.binding].result(j.parts[a.binding].name, j.parts[a.binding].tokens(r.minTokens()))
	}
	results := make([]Result, 0, len(a.answers))
	for i := range a.answers {
		if n := j.parts[i].tokens(r.minTokens()); n > 0 || !j.each {
			results = append(results, a.answers[i].result(j.parts[i].name, n))
		}
	}
	if len(results) == 0 {
		return Result{OK: true}
	}
	b := binding(results)
	if !j.each {
		b.Taken = a.answers[0].taken / j.parts[0].times // the quotient is equal for all parts
	}
	return b
}

// binding returns the denial with the longest wait, or else the Result with the smallest fraction left. The
// Source is the least reliable Source of all Results.
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

// takeOne takes one token of every key from the pools, or none.
func (j *Joined) takeOne() bool {
	if len(j.fastKeys) == 0 {
		return false
	}
	var holds [holdsInline]struct {
		entry *entry
		draw  pool.Draw
	}
	for i, k := range j.fastKeys {
		e := k.e.Load()
		if e == nil || e.client.Holder.Pool.Denies() {
			return false
		}
		h := &holds[i&(holdsInline-1)]
		h.entry, h.draw = e, e.client.Holder.Pool.Drawn()
	}
	for i := range j.fastKeys {
		e := holds[i&(holdsInline-1)].entry
		left, mark := e.client.Holder.Pool.Begin()
		if left >= mark || e.finishTake(left, mark) {
			continue
		}
		for i, h := range holds[:i] {
			j.fastKeys[i].giveBack(&hold{h.entry, 1, 1, h.draw}, 1)
		}
		return false
	}
	return true
}

// takeAll takes n tokens of every key from the pools, or none, and appends them to holds.
func (j *Joined) takeAll(holds []hold, n int64) ([]hold, bool) {
	if n <= 0 || j.err != nil {
		return nil, false
	}
	// Before the first take, look for a pool that denies: giving tokens back takes locks.
	for i := range j.parts {
		if e := j.parts[i].inUse(); e == nil || j.parts[i].times == 0 || e.client.Holder.Pool.Denies() {
			return nil, false
		}
	}
	for i := range j.parts {
		p := &j.parts[i]
		e := p.e.Load()
		h, ok := e.takeHold(p.tokens(n))
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
		j.parts[i].giveBack(&holds[i], holds[i].n)
	}
}

type joinedAnswer struct {
	ok      bool
	err     error
	answers []decision // answers of the parts; zero for parts that were not asked
	binding int        // index of the part whose denial is reported
	result  Result
}

// tokens returns the number of tokens of p's key that a request for n takes. n is not negative.
func (p *part) tokens(n int64) int64 { return product(n, p.times) }

// ask returns the answer of p's key. ask counts no denial: Joined.deny counts it for the key that binds.
func (p *part) ask(r request) decision {
	r.name, r.handle, r.own, r.n, r.entry, r.joined = p.name, &p.e, p.own, p.tokens(r.n), p.inUse(), true
	r.n, r.patience = r.entry.capped(r), p.m.patience(r.patience)
	return p.m.answer(r)
}

// admits reports whether d, the answer of p's key, admits the request. With Policy.Shadow, a request that a
// limit denies is admitted all the same. The zero decision of a key that was not asked admits nothing.
func (p *part) admits(d *decision) bool {
	return d.ok || (d.byLimit() || d.err != nil) && p.m.observer.overrules(d.err)
}

// decide answers a request that does not wait in line, after the pools lacked tokens.
func (j *Joined) decide(r request) joinedAnswer {
	if err := j.invalid(r.n); err != nil {
		return j.countInvalid(err)
	}
	if r.ctx == nil {
		r.ctx = context.Background()
	}
	for i := range j.parts { // one CallTimeout bounds all calls together
		cfg := &j.parts[i].m.cfg
		r.until = max(r.until, cfg.Clock.Now().Add(cfg.CallTimeout))
	}
	answers := make([]decision, len(j.parts))
	// Ask the key that will most likely deny first: other keys lose refill if they give tokens back.
	if i := j.scarcest(r); i >= 0 {
		if answers[i] = j.parts[i].ask(r); !j.parts[i].admits(&answers[i]) {
			return j.deny(r, answers)
		}
	}
	var lacking []int
	for i := range j.parts {
		if j.parts[i].admits(&answers[i]) {
			continue
		}
		e := j.parts[i].inUse()
		one := r
		one.n = j.parts[i].tokens(r.n)
		if h, ok := e.takeHold(e.capped(one)); ok {
			answers[i] = decision{ok: true, taken: h.n, entry: e, hold: h}
		} else {
			lacking = append(lacking, i)
		}
	}
	// All keys that lack tokens call at the same time. A denial by one key ends the wait for the others.
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	asked := r
	asked.ctx = ctx
	var wg sync.WaitGroup
	for k, i := range lacking {
		ask := func() {
			answers[i] = j.parts[i].ask(asked)
			if !j.parts[i].admits(&answers[i]) && r.patience != protocol.NoWait {
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
	for i := range answers {
		if !j.parts[i].admits(&answers[i]) {
			return j.deny(r, answers)
		}
	}
	if r.patience == protocol.UpTo && r.n > 0 && !j.trimToSmallest(&r, answers) {
		return j.deny(r, answers)
	}
	return j.admit(r, answers)
}

// trimToSmallest lowers r, an UpTo request, to the smallest grant of a key. That key counts the missing
// tokens as denied. trimToSmallest returns false if that grant is too small for one requested token.
func (j *Joined) trimToSmallest(r *request, answers []decision) bool {
	n, least := r.n, -1
	for i := range answers {
		if most := answers[i].taken / j.parts[i].times; most < n && !j.parts[i].m.cfg.Policy.Shadow {
			n, least = most, i
		}
	}
	if least < 0 {
		return true
	}
	p, d := &j.parts[least], &answers[least]
	if n == 0 {
		d.ok, d.taken = false, 0
		return false
	}
	p.m.book(d, countable(d.obtainable(r.patience, p.tokens(r.n))-p.tokens(n)))
	r.n = n
	return true
}

// admit gives back tokens granted beyond r. A Limiter with Policy.Shadow counts missing tokens as denied.
func (j *Joined) admit(r request, answers []decision) joinedAnswer {
	for i := range answers {
		p, d := &j.parts[i], &answers[i]
		n := p.tokens(r.n)
		switch {
		case !d.ok:
			one := r
			one.name, one.n, one.joined = p.name, n, true
			*d = p.m.deny(one, *d)
		case d.taken < n:
			p.m.book(d, countable(max(0, d.obtainable(r.patience, n)-d.taken)))
			d.shadowed = true
		}
		p.giveBack(&d.hold, d.hold.n-n)
		d.taken = n
	}
	return joinedAnswer{ok: true, answers: answers}
}

func (j *Joined) invalid(n int64) error {
	if j.err != nil {
		return j.err
	}
	return invalidN(n)
}

func (j *Joined) countInvalid(err error) joinedAnswer {
	j.m.observer.invalid.Add(1)
	return joinedAnswer{err: err}
}

func (j *Joined) giveBackAll(answers []decision) {
	for i := range answers {
		h := &answers[i].hold
		j.parts[i].giveBack(h, h.n)
	}
}

// deny gives back all tokens of answers and counts the denial for the key that binds.
func (j *Joined) deny(r request, answers []decision) joinedAnswer {
	a := joinedAnswer{answers: answers, binding: j.bindingOf(r, answers)}
	j.giveBackAll(answers)
	p, d := &j.parts[a.binding], &answers[a.binding]
	r.name, r.n, r.joined = p.name, p.tokens(r.n), true
	*d = p.m.deny(r, *d)
	a.err = d.err
	return a
}

// bindingOf picks the denial of r to report: an error if there is one, else the longest wait. A request that
// was canceled because another key denied comes last.
func (j *Joined) bindingOf(r request, answers []decision) (binding int) {
	most := time.Duration(-1)
	for i := range answers {
		d := &answers[i]
		wait := time.Duration(0)
		switch {
		case j.parts[i].admits(d) || !d.byLimit() && d.err == nil:
			continue // the key admits r, or was not asked
		case d.err == nil:
			p := &j.parts[i]
			wait = d.result(p.name, p.tokens(r.n)).RetryAfter
		case r.ctx.Err() != nil || !errors.Is(d.err, context.Canceled):
			wait = math.MaxInt64
		}
		if wait > most {
			binding, most = i, wait
		}
	}
	return binding
}

// gatherTries bounds how often a waiting request gives back all tokens because one key lacks tokens.
const gatherTries = 3

// gather implements WaitN (docs/protocol.md section 9.17). The last try has no time limit.
func (j *Joined) gather(r request) joinedAnswer {
	if err := j.invalid(r.n); err != nil {
		return j.countInvalid(err)
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

// gatherFrom waits at the key parts[first] and then at the other keys, in the same order for all requests. In
// a bounded try, a key that takes too long makes gatherFrom give back all tokens. The result slow is such a
// key's index, or negative.
func (j *Joined) gatherFrom(r request, first int, bounded bool) (a joinedAnswer, slow int) {
	answers := make([]decision, len(j.parts))
	for k := range j.parts {
		i := k
		if k == 0 {
			i = first
		} else if k <= first {
			i = k - 1
		}
		p, late := &j.parts[i], false
		if bounded && i != first {
			answers[i], late = p.askFor(r)
		} else {
			answers[i] = p.ask(r)
		}
		if late {
			j.giveBackAll(answers)
			return joinedAnswer{}, i
		}
		if !p.admits(&answers[i]) {
			return j.deny(r, answers), -1
		}
	}
	return j.admit(r, answers), -1
}

// askFor is ask with a wait of at most max(2 Targets, CallTimeout), because tokens of other keys lie idle
// during the wait. late reports that the wait ended without tokens.
func (p *part) askFor(r request) (d decision, late bool) {
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

// unknownDenial is the time for which a key denies if nothing but its last denial is known.
const unknownDenial = time.Duration(math.MaxInt64)

// scarcest returns the index in parts of the key to ask first, or -1 if all keys will probably admit r. A key
// that denies for certain comes before the key that will probably deny for longest. If the caller gets a
// Result, a key with unknownDenial comes first of all, because only its call tells when to retry.
func (j *Joined) scarcest(r request) (scarcest int) {
	scarcest = -1
	longest, certain := time.Duration(0), false
	for i := range j.parts {
		in, sure := j.parts[i].deniesFor(r)
		switch {
		case sure && r.verb == "" || in == unknownDenial && r.verb != "":
			return i
		case !certain && (sure || in > longest):
			scarcest, longest, certain = i, in, sure
		}
	}
	return scarcest
}

// deniesFor is entry.deniesFor, with unknownDenial for a key at rest that denied its last request.
func (p *part) deniesFor(r request) (in time.Duration, sure bool) {
	n := p.tokens(r.minTokens())
	e := p.inUse()
	switch {
	case n <= 0:
		return 0, false
	case e.deniesNow():
		return 1, true
	case e != nil:
		return e.deniesFor(n)
	case p.atRest((*protocol.Key).Denied):
		return unknownDenial, false
	}
	return 0, false
}

// rarest returns the index in parts of the key that will have its tokens last. A key in an unknown state
// counts as the last, because asking a key is faster than giving back tokens of other keys.
func (j *Joined) rarest(n int64) (rarest int) {
	longest := time.Duration(-1)
	for i := range j.parts {
		p := &j.parts[i]
		in := time.Duration(math.MaxInt64)
		if e := p.inUse(); e != nil {
			e.with(func() { in = e.client.ReadyIn(e.Now(), p.tokens(n)) })
		} else if now := p.m.cfg.Clock.Now(); p.atRest(func(k *protocol.Key) bool { return k.Admits(now) }) {
			in = 0
		}
		if in > longest {
			rarest, longest = i, in
		}
	}
	return rarest
}
