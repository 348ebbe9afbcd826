package hybrid

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// This file is Policy.Shards (docs/protocol.md section 3.8). A Limiter has one Limiter behind it
// for each shard but its home: a hop. Like a class it has a table of its own and is another process
// to the store, and it is made when it is first used. An entry points to that of the same key in
// the next hop, so that a request goes from one to the next without looking them up.

// sharded reports whether l's keys have shards; false for a hop, which has one of them.
func (l *Limiter) sharded() bool { return len(l.hops.made) > 0 }

// hop is the Limiter of the i-th shard after l's home, which is l itself: so is the answer where l
// is not open any more.
func (l *Limiter) hop(i int) *Limiter {
	return l.hops.at(i, l, func() *Limiter {
		h := l.sibling()
		h.home, h.hopNumber, h.shard = l, i, lease.ShardAt(l.instance, i, l.cfg.Policy.Shards)
		h.cfg.Policy.ColdStart = ColdStartDeny // the home has been heard of, or is away
		h.start()
		return h
	})
}

// part is what l's shard has of the configuration of a key.
func (l *Limiter) part(c lease.Config) lease.Config { return c.Shard(l.shard, l.cfg.Policy.Shards) }

// whole is the limit of which part is what l's shard has. Where somebody has set a limit whose
// burst is no multiple of the number of shards, it is less than that number off.
func (l *Limiter) whole(part Limit) Limit {
	k := l.cfg.Policy.Shards
	if k <= 1 {
		return part
	}
	if i := slices.Index(l.part(l.defaults).Limits, part); i >= 0 {
		return l.defaults.Limits[i]
	}
	return part.Whole(k, int64(k)*part.Capacity())
}

// wholes is whole of each of them.
func (l *Limiter) wholes(parts []Limit) []Limit {
	if l.cfg.Policy.Shards <= 1 {
		return parts
	}
	all := make([]Limit, len(parts))
	for i := range parts {
		all[i] = l.whole(parts[i])
	}
	return all
}

// wholeOutlook is what o, which is about l's shard, says of the key: as if all shards had as much.
func (l *Limiter) wholeOutlook(o lease.Outlook) lease.Outlook {
	if k := l.cfg.Policy.Shards; k > 1 {
		o.Limit = l.whole(o.Limit)
		o.Remaining = min(int64(k)*o.Remaining, o.Limit.Capacity())
	}
	return o
}

// answerShards is the answer to r of a key with shards: what is held of any, or the answer of one
// after the other, as long as they deny it and the next may have what they lack. They have one
// CallTimeout for that together. What they have counted as missed stays so at the last one alone.
func (l *Limiter) answerShards(r request) (d decision) {
	var space [8]*entry
	missed := space[:0] // by hop: whose pools have refused
	var before *entry   // of the shard that is asked next
	hop := 0
	if r.patience == lease.InLine {
		if hop, before = l.shortestLine(r); hop > 0 {
			r.tried.uncount(r.n)
			r.tried = nil
		}
	} else {
		missed = append(missed, r.tried)
		for e := r.tried.nextHop(); e != nil; e = e.nextHop() {
			if h, ok := e.takeHold(r.n); ok {
				uncountAll(missed, r.n)
				return decision{ok: true, taken: r.n, entry: e, hold: h}
			}
			missed = append(missed, e)
		}
		r.tried.spread(len(missed))
		now := l.cfg.Clock.Now()
		r.until = now.Add(r.callWait(now, l.cfg.CallTimeout))
	}
	for asked := false; ; asked = true {
		if len(missed) > 0 {
			r.tried, missed = missed[0], missed[1:]
		}
		next := l.hop(hop).answerFrom(r)
		if asked {
			if next.entry == nil {
				break // nothing can be asked there: the last denial stands
			}
			d.entry.uncount(r.n)
			next.wait = min(next.wait, d.wait)
		}
		if before != nil && before.nextHop() != next.entry {
			before.next.Store(next.entry)
			next.entry.spread(hop + 1)
		}
		d, before, r.tried = next, next.entry, nil
		hop++
		inTime := r.until == 0 || l.cfg.Clock.Now() < r.until
		if !d.onward || !inTime || hop == l.cfg.Policy.Shards {
			break
		}
	}
	uncountAll(missed, r.n)
	return d
}

func uncountAll(missed []*entry, n int64) {
	for _, e := range missed {
		e.uncount(n)
	}
}

// shortestLine is the hop in whose line r is likely to wait least; prev is the entry before it. It
// is one that is not in use yet where all that are in use are short.
func (l *Limiter) shortestLine(r request) (hop int, prev *entry) {
	shortest := time.Duration(math.MaxInt64)
	e := r.tried
	if e == nil {
		e = l.keys.inUse(r.name)
	}
	for i, before := 0, (*entry)(nil); e != nil; i, before, e = i+1, e, e.nextHop() {
		in, onward := e.waitHere(r.n)
		if in < shortest {
			hop, prev, shortest = i, before, in
		}
		if shortest > 0 && onward && e.nextHop() == nil && i+1 < l.cfg.Policy.Shards {
			return i + 1, e
		}
	}
	return hop, prev
}

// waitHere is how long a request for n tokens is likely to wait in e's line, and whether one that e
// denies is to go on to the next shard.
func (e *entry) waitHere(n int64) (in time.Duration, onward bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.Now()
	return e.client.ReadyIn(now, n), e.client.Onward(now, e.l.hopNumber+1, e.nextHop() != nil)
}

// nextHop is the entry of the same key in the shard after e's, if that is in use.
func (e *entry) nextHop() *entry {
	if e == nil {
		return nil
	}
	next := e.next.Load()
	if next == nil || next.slot.entry.Load() != next {
		return nil
	}
	return next
}

// spread tells e, and the entries after it, that the process uses so many shards of the key.
func (e *entry) spread(shards int) {
	for ; e != nil; e = e.nextHop() {
		if e.shards.Load() != int32(shards) {
			e.shards.Store(int32(shards))
		}
	}
}

// configureShards executes one operation on all shards of a key, the first one before the others.
func (l *Limiter) configureShards(ctx context.Context, name string, op lease.Op, c lease.Config) ([]lease.State, error) {
	k := max(1, l.cfg.Policy.Shards)
	states, errs := make([]lease.State, k), make([]error, k)
	if len(c.Limits) > 0 {
		if err := c.ValidateShards(k); err != nil {
			return nil, err
		}
	}
	one := func(i int) {
		states[i], errs[i] = l.store.Configure(ctx, l.storedKeyOf(name, i), op, c.Shard(i, k))
	}
	if one(0); errs[0] != nil {
		return nil, errs[0]
	}
	if op == lease.OpSetIfAbsent {
		switch first := states[0]; {
		case first.Changed:
			op = lease.OpSet
		case !slices.Equal(first.Config.Limits, c.Shard(0, k).Limits):
			return states[:1], nil
		} // otherwise somebody may not have come to the end with the same
	}
	var others sync.WaitGroup
	for i := 1; i < k; i++ {
		others.Go(func() { one(i) })
	}
	others.Wait()
	return states, errors.Join(errs...)
}

// sum is the state of a key with shards in these states. What the first says that it has changed
// counts for all.
func (l *Limiter) sum(key string, shards []lease.State) lease.State {
	exists := func(s lease.State) bool { return s.Exists }
	if len(shards) == 1 || !slices.ContainsFunc(shards, exists) {
		return shards[0]
	}
	own, _ := l.proposal(key, nil) // of shards that do not exist
	sum := lease.SumShards(shards, own)
	sum.Changed = shards[0].Changed
	return sum
}
