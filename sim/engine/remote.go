package engine

import (
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// This file is the rivals that ask Redis for each request. Such a request takes a round trip of the
// scenario's network, waits in line at a shard of the same kind, with the same service time and the
// same faults, and is denied where no answer comes within CallTimeout; what the shard grants all
// the same is lost. Each rival has Redis to itself.
//
// It is spared what depends on how a program asks: its connections are open, and nothing arrives
// twice.
//
// Nobody waits for a rival's answer, so its events need not be among the fleet's: advance makes up
// for all until now, when somebody asks or looks.

// remote is the network and the Redis of one rival.
type remote struct {
	network *network
	stream  random.Stream
	way     agenda // evRequest: ask who reaches its shard
	asks    slots[ask]
	shards  []*counter
	fresh   rival.Remote                    // that knows nothing
	asking  *ask                            // which is being decided
	settle  func(a *ask, at int64, ok bool) // is told what becomes of each request, and when that was decided
	sent    int64                           // since the warm-up
	waits   report.Waits
}

// ask is a request on its way.
type ask struct {
	request
	number int   // of its process, as rivals know it
	life   int32 // of the process
	trip   int64 // of the round trip, both ways
	served int64 // when the shard decides it
	heard  bool  // whoever asked hears of it, as far as the network goes
}

// counter is one shard's part of a remote.
type counter struct {
	rival.Remote         // of the shard's keys
	line         []int32 // asks, in the order of their arrival
	free         int64   // when the last of them will have been decided
	busy         int64   // nanoseconds, of all that are in line too
	replicas     map[*scenario.RedisFault]rival.Remote
}

// start has each shard decide by an algorithm like this.
func (r *remote) start(fresh rival.Remote) {
	r.fresh = fresh
	for range r.network.redis.shards {
		r.shards = append(r.shards, &counter{Remote: fresh.Clone(), replicas: map[*scenario.RedisFault]rival.Remote{}})
	}
}

// local is the clock of the process that asks, as it was then: the time is sent along.
func (r *remote) local(int, int64) int64 { return r.asking.p.wall(r.asking.at) - serverStart }

// store is the clock of the shard that is asked.
func (r *remote) store(now int64) int64 { return now + r.shardOf(r.asking).offset }

func (r *remote) shardOf(a *ask) *shard { return r.network.redis.shards[int(a.key)%len(r.shards)] }

// send sends a request.
func (r *remote) send(q *request, number int) {
	n := r.network
	r.deliver(n.time.now)
	r.sent++
	chance := func(p scenario.Ratio) bool { return p > 0 && r.stream.Bernoulli(float64(p)) }
	lost, silent := chance(n.s.Loss), chance(n.s.LostReplies)
	id, a := r.asks.take()
	*a = ask{request: *q, number: number, life: q.p.life, heard: !silent, trip: n.s.RoundTrip.Sample(&r.stream)}
	if lost || n.cut(q.p, q.at) {
		r.settle(a, q.at, false)
		r.asks.give(id)
		return
	}
	r.way.at(q.at+a.trip/2, evRequest, id)
}

// advance makes everything happen that happens until now.
func (r *remote) advance(now int64) {
	r.deliver(now)
	for _, c := range r.shards {
		r.serve(c, now)
	}
}

// deliver has those arrive that do until now.
func (r *remote) deliver(now int64) {
	for len(r.way.heap) > 0 && r.way.heap[0].at <= now {
		e := r.way.heap[0]
		r.way.pop()
		r.arrive(e.who, e.at)
	}
}

// arrive puts an ask in line. A line that takes longer than anybody listens takes no more. Who will
// have no answer in time is denied now, and the shard decides it all the same.
func (r *remote) arrive(id int32, now int64) {
	a, n := r.asks.all[id], r.network
	s, c := r.shardOf(a), r.shards[int(a.key)%len(r.shards)]
	r.serve(c, now)
	if n.cut(a.p, now) || s.hangs > 0 || s.refuses > 0 || c.free-now > lateFactor*int64(n.timeout) {
		r.settle(a, now, false)
		r.asks.give(id)
		return
	}
	cost := n.redis.s.ServiceTime.Sample(&r.stream) + s.slow
	c.free = max(c.free, now) + cost
	c.busy += cost
	a.served = c.free
	c.line = append(c.line, id)
	answered := a.answered()
	if a.heard = a.heard && answered <= a.at+int64(n.timeout) && !n.cut(a.p, answered); !a.heard {
		r.settle(a, now, false)
	}
}

// answered is when the answer is back.
func (a *ask) answered() int64 { return a.served + a.trip - a.trip/2 }

// serve decides those in c's line whose turn has come until now.
func (r *remote) serve(c *counter, now int64) {
	for len(c.line) > 0 {
		id := c.line[0]
		a := r.asks.all[id]
		if a.served > now {
			return
		}
		c.line = c.line[1:]
		r.asking = a
		ok := c.Decide(a.served/1000, a.number, int(a.key)/len(r.shards), a.n)
		if a.heard {
			ok = ok && a.life == a.p.life && a.p.state != down
			r.settle(a, a.served, ok)
		}
		if a.heard && ok {
			r.waits.Add(a.answered() - a.at)
		}
		r.asks.give(id)
	}
}

// fault begins a fault that ends what is in line. What is refused or slow from now on, and the
// clock, the shards know themselves; see redis.fault.
func (r *remote) fault(f *scenario.RedisFault) {
	now := r.network.time.now
	if f.Kind == scenario.FaultSlow || f.Kind == scenario.FaultClockStep {
		return
	}
	for _, c := range hit(f, r.shards) {
		for _, id := range c.line {
			if a := r.asks.all[id]; a.heard {
				r.settle(a, now, false)
			}
			r.asks.give(id)
		}
		c.busy -= c.left(now)
		c.free, c.line = 0, nil
		switch f.Kind {
		case scenario.FaultRestartEmpty:
			c.Remote = r.fresh.Clone()
		case scenario.FaultFailover:
			c.Remote = c.replicas[f]
		}
	}
}

// snapshot is the last that the replicas hear which a failover promotes.
func (r *remote) snapshot(f *scenario.RedisFault) {
	for _, c := range hit(f, r.shards) {
		c.replicas[f] = c.Clone()
	}
}

// left is how long c will be busy with what is in line.
func (c *counter) left(now int64) int64 { return max(0, c.free-now) }

// cpu is the nanoseconds that the busiest shard has worked since the warm-up.
func (r *remote) cpu() (most int64) {
	for _, c := range r.shards {
		most = max(most, c.busy-c.left(r.network.time.now))
	}
	return most
}

// warm ends the warm-up.
func (r *remote) warm() {
	r.sent = 0
	r.waits.Reset()
	for _, c := range r.shards {
		c.busy = c.left(r.network.time.now)
	}
}
