package engine

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// This file is what hybrid's shards.go does: a process has an entry for each shard of a key that it
// uses, and a request goes from one to the next.

// smallestShard is the configuration of the shard with the smallest burst.
func smallestShard(s *scenario.Scenario) lease.Config {
	k := s.Policy.Shards
	return s.Policy.ConfigFor(s.Limits, 1, s.CallTimeout).Shard(k-1, k)
}

// nextHop is the entry of the same key in the shard after e's, if that is in use.
func (e *entry) nextHop() *entry {
	if e.next != nil && !e.next.alive {
		e.next = nil
	}
	return e.next
}

// decideShards answers a request that the pool of e, the home, has refused: with what is held of
// another shard, or by asking one after the other.
func (e *entry) decideShards(r request) {
	if e.p.group.patience == lease.InLine {
		if x := e.shortestLine(r.n); x != e {
			e.client.Uncount(r.n)
			x.takeOrDecide(r)
			return
		}
	} else {
		e.spread()
		for x := e.nextHop(); x != nil; x = x.nextHop() {
			if x.take(r.n) {
				e.client.Uncount(r.n)
				x.admitTaken(&r)
				return
			}
			x.client.Uncount(r.n)
		}
		r.until = e.p.after(e.fleet.time.now, e.fleet.s.CallTimeout)
	}
	e.decideRefused(r)
}

func (e *entry) takeOrDecide(r request) {
	if e.take(r.n) {
		e.admitTaken(&r)
		return
	}
	e.decideRefused(r)
}

// goOn takes r, which e has not admitted, to the next shard, if that may have what e lacks.
func (e *entry) goOn(r request, d lease.Decision) bool {
	f := e.fleet
	switch d.Verdict {
	case lease.VerdictDeny, lease.VerdictTooLate, lease.VerdictUnavailable:
	default:
		return false
	}
	if int(e.hop)+1 >= f.s.Policy.Shards || r.until > 0 && f.time.now >= r.until || e.p.state != running ||
		!e.client.Onward(e.Now(), int(e.hop)+1, e.nextHop() != nil) {
		return false
	}
	e.client.Uncount(r.n)
	e.hopOn().takeOrDecide(r)
	return true
}

// hopOn is the entry in the next shard, made now where there is none.
func (e *entry) hopOn() *entry {
	if e.nextHop() == nil {
		e.next = e.fleet.entryAt(e.p, e.key, e.hop+1)
		e.next.client.Spread(int(e.hop) + 2)
	}
	return e.next
}

// spread tells e, the home, and the entries after it how many shards the process uses.
func (e *entry) spread() {
	n := 0
	for x := e; x != nil; x = x.nextHop() {
		n++
	}
	for x := e; x != nil; x = x.nextHop() {
		x.client.Spread(n)
	}
}

// shortestLine is the entry in whose line a request for n tokens is likely to wait least, from the
// home e on: one in a shard that is not in use yet where all that are in use are short.
func (e *entry) shortestLine(n int64) *entry {
	e.spread()
	best, shortest := e, time.Duration(math.MaxInt64)
	for x := e; x != nil; x = x.nextHop() {
		now := x.Now()
		if in := x.client.ReadyIn(now, n); in < shortest {
			best, shortest = x, in
		}
		last := x.nextHop() == nil && int(x.hop)+1 < e.fleet.s.Policy.Shards
		if last && shortest > 0 && x.client.Onward(now, int(x.hop)+1, false) {
			return x.hopOn()
		}
	}
	return best
}
