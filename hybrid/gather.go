package hybrid

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// agreement is the answer of all keys of a Joined.
type agreement struct {
	ok      bool
	err     error
	told    []decision // by part; that of one which nobody has asked is zero
	binding int        // of a denial: the part that denied
	result  Result     // what Take says
}

// of is how many tokens of p a request for n asks for.
func (p *part) of(n int64) int64 {
	if n > math.MaxInt64/joinMax {
		return math.MaxInt64 // above any burst
	}
	return n * p.times
}

// inUse is the entry of p's key, if it is in use.
func (p *part) inUse() *entry {
	e := p.e.Load()
	if e == nil && p.own == nil {
		if e = p.l.keys.glance(p.name); e != nil {
			p.bind(e)
		}
	}
	return e
}

// ask is the answer of one key, whose pool has refused if tried is its entry. A denial is neither
// counted nor told yet by its Limiter, because it may be that of another key which counts.
func (p *part) ask(r request, tried *entry) decision {
	r.name, r.key, r.n, r.tried = p.name, p.Key, p.of(r.n), tried
	r.n, r.patience = tried.most(r), p.l.patience(r.patience)
	d := p.l.answer(r)
	if !d.ok && p.l.overrules(d.err) {
		d = p.l.refuse(r, d)
	}
	return d
}

// decide is what the verbs that do not wait in line come to where the pools did not have it all.
func (j *Joined) decide(r request) agreement {
	if j.err != nil {
		return j.refuse()
	}
	if r.ctx == nil {
		r.ctx = context.Background()
	}
	for i := range j.parts { // all that is asked has one CallTimeout together
		cfg := &j.parts[i].l.cfg
		r.until = max(r.until, cfg.Clock.Now().Add(cfg.CallTimeout))
	}
	told := make([]decision, len(j.parts))
	// Who is known to deny comes first, as that costs the other keys nothing.
	for i := range j.parts {
		p := &j.parts[i]
		if p.inUse().denies() {
			if told[i] = p.ask(r, nil); !told[i].ok {
				return j.deny(r, told)
			}
		}
	}
	// Then who is likely to, alone. Only one such question may take a call, so that a request that is
	// admitted waits for two round trips at most; one that does not wait asks none.
	called := r.patience == protocol.NoWait
	for {
		i, sure := j.scarcest(r, told)
		if i < 0 || called && !sure {
			break
		}
		called = called || !sure
		if told[i] = j.parts[i].ask(r, nil); !told[i].ok {
			return j.deny(r, told)
		}
	}
	var lacking []int
	tried := make([]*entry, len(j.parts))
	for i := range j.parts {
		if told[i].ok {
			continue
		}
		e := j.parts[i].inUse()
		one := r
		one.n = j.parts[i].of(r.n)
		h, ok := e.takeHold(e.most(one))
		if ok {
			told[i] = decision{ok: true, taken: h.n, entry: e, hold: h}
		} else {
			tried[i], lacking = e, append(lacking, i)
		}
	}
	// Their calls travel at the same time. Whoever is denied ends the wait of the others.
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	asked := r
	asked.ctx = ctx
	var wg sync.WaitGroup
	for k, i := range lacking {
		ask := func() {
			if told[i] = j.parts[i].ask(asked, tried[i]); !told[i].ok && r.patience != protocol.NoWait {
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
	if r.patience == protocol.UpTo && r.n > 0 {
		j.level(r.n, told)
	}
	for i := range told {
		if !told[i].ok {
			return j.deny(r, told)
		}
	}
	return agreement{ok: true, told: told}
}

// level has all keys give as much of a request for up to n as the one that has given the least. One
// that has not even given as much as a request for one token asks of it has denied.
func (j *Joined) level(n int64, told []decision) {
	for i := range told {
		d, p := &told[i], &j.parts[i]
		if d.ok && d.taken < p.of(n) && p.l.cfg.Policy.Shadow {
			d.shadowed, d.taken = true, p.of(n)
		}
		n = min(n, d.taken/p.times)
	}
	for i := range told {
		d, p := &told[i], &j.parts[i]
		d.hold.giveBack(p.l, p.name, p.Key, d.hold.n-n*p.times)
		if d.taken < p.times {
			d.ok = false
		}
		d.taken = n * p.times
	}
}

// refuse is the answer of a Joined that cannot be asked.
func (j *Joined) refuse() agreement {
	j.l.counters.invalid.Add(1)
	return agreement{err: j.err}
}

// deny gives everything back. The request counts as denied, by Stats and Events, at the key that
// binds and at no other.
func (j *Joined) deny(r request, told []decision) agreement {
	a := agreement{told: told, binding: j.bindingOf(r, told)}
	for i := range told {
		p, d := &j.parts[i], &told[i]
		d.hold.giveBack(p.l, p.name, p.Key, d.hold.n)
		if !d.ok && i != a.binding && r.patience != protocol.UpTo {
			p.uncount(d, r.n)
		}
	}
	p, d := &j.parts[a.binding], &told[a.binding]
	r.name, r.n = p.name, p.of(r.n)
	*d = p.l.refuse(r, *d)
	a.err = d.err
	return a
}

// uncount takes back that the request for n tokens which was told d counts as denied.
func (p *part) uncount(d *decision, n int64) {
	switch ended := isOf(d.err, context.Canceled, context.DeadlineExceeded); {
	case d.counted:
		p.l.counters.deny(d.outlook.Limit, -p.of(n))
	case d.entry == nil || isOf(d.err, ErrClosed, ErrExceedsBurst): // no entry has counted it
	case ended && p.l.cfg.Policy.Shadow:
		p.l.counters.ended.Add(-p.of(n))
	default:
		d.entry.uncount(p.of(n))
	}
}

// bindingOf is which of those that denied r decides what it is told: an error before a mere denial,
// then the longest wait, and last one whose wait was ended because another had denied.
func (j *Joined) bindingOf(r request, told []decision) (binding int) {
	most := time.Duration(-1)
	for i := range told {
		d := &told[i]
		wait := time.Duration(0)
		switch {
		case d.ok || d.entry == nil && d.err == nil && !d.counted:
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

// isOf reports whether err wraps any of those.
func isOf(err error, those ...error) bool {
	for _, one := range those {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// gatherTries is how often a request that waits gives everything back because a key lacks tokens.
const gatherTries = 3

// gather is WaitN (docs/protocol.md section 9.17). The last try waits for as long as it takes, and
// comes to an end: tokens come with time, so nobody waits for what another one holds.
func (j *Joined) gather(r request) agreement {
	if j.err != nil {
		return j.refuse()
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
// for everybody. Where one of these takes too long, in a try that is bounded, it gives everything
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
			told[i] = p.ask(r, nil)
		}
		if late {
			p.uncount(&told[i], r.n)
			for i := range told {
				p, h := &j.parts[i], &told[i].hold
				h.giveBack(p.l, p.name, p.Key, h.n)
			}
			return agreement{}, i
		}
		if !told[i].ok {
			return j.deny(r, told), -1
		}
	}
	return agreement{ok: true, told: told}, -1
}

// askSoon is ask for as long as what the others gave may lie idle. late says that it was in vain
// for no other reason than this bound.
func (p *part) askSoon(r request) (d decision, late bool) {
	outer := r.ctx
	until := time.Now().Add(max(2*p.l.cfg.Policy.TargetFor(nil), p.l.cfg.CallTimeout))
	if at, ok := outer.Deadline(); ok && at.Before(until) {
		return p.ask(r, nil), false
	}
	ctx, cancel := context.WithDeadline(outer, until)
	defer cancel()
	r.ctx = ctx
	d = p.ask(r, nil)
	return d, !d.ok && outer.Err() == nil && errors.Is(d.err, context.DeadlineExceeded)
}
