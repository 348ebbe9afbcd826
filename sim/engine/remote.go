package engine

import (
	"time"

	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// This file simulates the rivals that call Redis for each request. A rival's request takes a round trip of
// the scenario's network, and waits in line at a shard with the same faults, but with a third of the service
// time. Every such request travels alone. A process denies the request if no answer comes within CallTimeout;
// tokens that the shard grants after the timeout are lost. Each rival has its own Redis, with open
// connections and a server that knows the script. No message arrives twice.

// scriptFactor is the ratio of the run time of the lease script to the run time of a rival's script: 2.8 to
// 3.1 was measured against redis_rate (docs/figures.md).
const scriptFactor = 3

// remote has the network and the Redis of one rival.
type remote struct {
	network *network
	stream  random.Stream
	way     agenda // pending events; evRequest: an ask reaches its shard
	asks    slots[ask]
	shards  []*counter
	fresh   rival.Remote                    // a copy of the rival without state
	asking  *ask                            // request that a shard executes now
	settle  func(a *ask, at int64, ok bool) // callback with each decision and its time
	sent    int64                           // number of asks sent since the warm-up
	waits   report.Waits
}

// ask is a rival's request on its way.
type ask struct {
	request
	number int   // number of the process for the rivals
	life   int32 // the process's life when it made the request
	trip   int64 // time of the round trip, in both directions
	cost   int64 // nanoseconds of the shard's time, without a slow fault
	heard  bool  // the process has not denied the request yet
}

// counter is one shard of a remote.
type counter struct {
	rival.Remote // state of the shard's keys
	core
	line     []int32 // asks in the order of arrival; the first is being executed
	late     int     // number of asks at the front of the line whose answer will be late
	queued   int64   // nanoseconds that all asks except the first will take, without a slow fault
	replicas map[*scenario.RedisFault]rival.Remote
}

// start gives each shard a copy of fresh.
func (r *remote) start(fresh rival.Remote) {
	r.fresh = fresh
	for range r.network.redis.shards {
		r.shards = append(r.shards, &counter{Remote: fresh.Clone(),
			replicas: map[*scenario.RedisFault]rival.Remote{}})
	}
}

// local returns the time on the asking process's clock at its request, which carries that time.
func (r *remote) local(int, int64) int64 { return r.asking.p.wall(r.asking.at) - serverStart }

// store returns the time on the clock of the shard that decides.
func (r *remote) store(now int64) int64 { return now + r.shardOf(r.asking).offset }

func (r *remote) shardOf(a *ask) *shard { return r.network.redis.shards[int(a.key)%len(r.shards)] }

func (r *remote) send(q *request, number int) {
	n := r.network
	r.deliver(n.time.now)
	r.sent++
	chance := func(p scenario.Ratio) bool { return p > 0 && r.stream.Bernoulli(float64(p)) }
	lost, silent := chance(n.s.Loss), chance(n.s.LostReplies)
	id, a := r.asks.take()
	*a = ask{request: *q, number: number, life: q.p.life, heard: true, trip: n.roundTrip(q.p, &r.stream)}
	if lost = lost || n.cut(q.p, q.at); lost || silent {
		r.deny(a, q.at)
	}
	if lost {
		r.asks.give(id)
		return
	}
	r.way.at(q.at+a.trip/2, evRequest, id)
}

// advance runs all events up to now.
func (r *remote) advance(now int64) {
	r.deliver(now)
	for i, c := range r.shards {
		r.serve(r.network.redis.shards[i], c, now)
	}
}

// deliver handles the arrivals up to now.
func (r *remote) deliver(now int64) {
	for len(r.way.heap) > 0 && r.way.heap[0].at <= now {
		e := r.way.heap[0]
		r.way.pop()
		r.arrive(e.id, e.at)
	}
}

// arrive puts an ask in line, unless the line is longer than node.Longest. arrive denies an ask that cannot
// be answered in time; the shard decides the ask anyway.
func (r *remote) arrive(id int32, now int64) {
	a, n := r.asks.all[id], r.network
	s, c := r.shardOf(a), r.shards[int(a.key)%len(r.shards)]
	r.serve(s, c, now)
	line := c.left(now) + c.queued
	slow := int64(max(0, len(c.line)-1)) * s.slow
	if n.cut(a.p, now) || s.hangs > 0 || s.refuses > 0 || line+slow > int64(node.Longest(n.timeout)) {
		r.deny(a, now)
		r.asks.give(id)
		return
	}
	a.cost = n.redis.s.ServiceTime.Sample(&r.stream)/scriptFactor + n.redis.s.ExchangeTime.Sample(&r.stream)
	if len(c.line) == 0 {
		a.cost += n.redis.s.WakeTime.Sample(&r.stream)
	}
	if a.late(now+line+a.cost, n.timeout) {
		r.deny(a, now)
	}
	c.line = append(c.line, id)
	if len(c.line) == 1 {
		r.attend(s, c, now)
	} else {
		c.queued += a.cost
	}
}

// attend begins to execute the first ask in c's line.
func (r *remote) attend(s *shard, c *counter, now int64) {
	c.begin(now, r.asks.all[c.line[0]].cost+s.slow)
}

// serve decides the asks in c's line that were executed by now, and denies asks that have waited too long.
func (r *remote) serve(s *shard, c *counter, now int64) {
	for len(c.line) > 0 && c.free <= now {
		r.decide(c, c.line[0], c.free)
		c.line, c.late = c.line[1:], max(0, c.late-1)
		if len(c.line) > 0 {
			c.queued -= r.asks.all[c.line[0]].cost
			r.attend(s, c, c.free)
		}
	}
	for ; c.late < len(c.line); c.late++ {
		a := r.asks.all[c.line[c.late]]
		if now <= a.at+int64(r.network.timeout) {
			return
		}
		r.deny(a, now)
	}
}

func (r *remote) decide(c *counter, id int32, now int64) {
	a := r.asks.all[id]
	r.asking = a
	ok := c.Decide(now/1000, a.number, int(a.key)/len(r.shards), a.n)
	if a.late(now, r.network.timeout) || r.network.cut(a.p, a.answered(now)) {
		r.deny(a, now)
	}
	if a.heard {
		ok = ok && a.life == a.p.life && a.p.state != down
		r.settle(a, now, ok)
		if ok {
			r.waits.Add(a.answered(now) - a.at)
		}
	}
	r.asks.give(id)
}

// answered returns the arrival time of an answer decided at decided, and late whether it exceeds timeout.
func (a *ask) answered(decided int64) int64 { return decided + a.trip - a.trip/2 }

func (a *ask) late(decided int64, timeout time.Duration) bool {
	return a.answered(decided) > a.at+int64(timeout)
}

// deny ends the process's wait for a, unless the wait has ended already.
func (r *remote) deny(a *ask, now int64) {
	if a.heard {
		a.heard = false
		r.settle(a, now, false)
	}
}

// fault begins a fault that empties the lines of shards; redis.fault handles its other effects.
func (r *remote) fault(f *scenario.RedisFault) {
	now := r.network.time.now
	if f.Kind == scenario.FaultSlow || f.Kind == scenario.FaultClockStep {
		return
	}
	for _, c := range hit(f, r.shards) {
		for _, id := range c.line {
			r.deny(r.asks.all[id], now)
			r.asks.give(id)
		}
		c.stop(now)
		c.line, c.late, c.queued = nil, 0, 0
		switch f.Kind {
		case scenario.FaultRestartEmpty:
			c.Remote = r.fresh.Clone()
		case scenario.FaultFailover:
			c.Remote = c.replicas[f]
		}
	}
}

// snapshot copies the rival's state that a failover promotes.
func (r *remote) snapshot(f *scenario.RedisFault) {
	for _, c := range hit(f, r.shards) {
		c.replicas[f] = c.Clone()
	}
}

// cpu returns the nanoseconds of work of the busiest shard since the warm-up.
func (r *remote) cpu() (most int64) {
	for _, c := range r.shards {
		most = max(most, c.worked(r.network.time.now))
	}
	return most
}

func (r *remote) warm() {
	r.sent = 0
	r.waits.Reset()
	for _, c := range r.shards {
		c.core.warm(r.network.time.now)
	}
}
