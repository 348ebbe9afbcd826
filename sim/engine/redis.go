package engine

import (
	"time"

	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// redis is the store: a set of shards, each of which executes one batch at a time.
type redis struct {
	time    *agenda
	s       *scenario.Redis
	stream  random.Stream
	network *network
	books   *books
	shards  []*shard
}

// shard is one server: a queue of batches, and the buckets of the shard's keys.
type shard struct {
	core
	line    []*batch // batches in the order of arrival; the first is being executed
	refuses int      // number of active faults that refuse connections
	boots   int32    // number of times the shard has gone down, each of which broke all connections
	back    int64    // when the shard last came up again
	forgot  bool     // the server has restarted, and no batch has brought the script since
	hangs   int
	stalled []*batch // batches whose connections cannot open during a hang
	buckets []*bucket

	counters []*counter                       // one for each remote rival
	replicas map[*scenario.RedisFault]replica // the replica that each failover promotes
}

// replica has copies of a shard's buckets, and of the states of the rivals at its counters.
type replica struct {
	buckets []*bucket
	rivals  []rival.Remote
}

// core is a processor that executes one task after another.
type core struct {
	free int64 // when the task under way ends
	busy int64 // nanoseconds of work since the warm-up, including the whole task under way
}

func (c *core) begin(now, cost int64) { c.free, c.busy = now+cost, c.busy+cost }

func (c *core) left(now int64) int64 { return max(0, c.free-now) }

func (c *core) worked(now int64) int64 { return c.busy - c.left(now) }

func (c *core) stop(now int64) { c.free, c.busy = 0, c.worked(now) }

func (c *core) warm(now int64) { c.busy = c.left(now) }

// bucket is the central state of one key, until the state expires.
type bucket struct {
	protocol.Bucket
	expires int64 // expiry in microseconds of the server's time
}

func newRedis(time *agenda, s *scenario.Scenario, stream random.Stream, n *network, b *books) redis {
	r := redis{time: time, s: &s.Redis, stream: stream, network: n, books: b}
	for range s.Redis.Shards {
		r.shards = append(r.shards, &shard{buckets: make([]*bucket, s.Keys.Count/s.Redis.Shards+1),
			replicas: map[*scenario.RedisFault]replica{}})
	}
	return r
}

// place returns the slot of a bucket in its shard; the slot is nil if the bucket does not exist.
func (r *redis) place(bucket int32) **bucket {
	n := int32(len(r.shards))
	return &r.shards[bucket%n].buckets[bucket/n]
}

func (r *redis) arrive(b *batch) {
	s := r.shards[b.shard]
	switch {
	case s.refuses > 0:
		for i := range b.calls {
			b.calls[i].err = lease.ErrUnavailable
		}
		r.network.reply(b)
	case s.forgot && b.script != brought:
		b.script = unknown
		r.network.reply(b)
	default:
		s.line = append(s.line, b)
		if len(s.line) == 1 && s.hangs == 0 {
			r.attend(s, r.s.WakeTime.Sample(&r.stream))
		}
	}
}

// attend begins to execute the first batch in line. cost is added to the batch's own cost.
func (r *redis) attend(s *shard, cost int64) {
	b := s.line[0]
	cost += r.s.ExchangeTime.Sample(&r.stream)
	for range b.calls {
		cost += r.s.ServiceTime.Sample(&r.stream)
	}
	s.begin(r.time.now, cost)
	r.time.at(s.free, evServed, b.id)
}

func (r *redis) serve(b *batch) {
	s := r.shards[b.shard]
	s.forgot = false
	for i := range b.calls {
		r.execute(&b.calls[i])
	}
	r.network.reply(b)
	if len(s.line) == 1 {
		s.line = s.line[:0]
		return
	}
	s.line = s.line[1:]
	r.attend(s, 0)
}

func (r *redis) execute(c *call) {
	place, now := r.place(c.key), serverStart+r.time.now/1000
	k := *place
	if k == nil || now >= k.expires {
		k = &bucket{}
	}
	before := k.Executed()
	if c.err = k.Call(now, &c.request, &c.grant); c.err != nil {
		return
	}
	*place = k
	// Redis keeps a bucket for a second longer than the grant says.
	k.expires = now + int64((c.grant.Expiry+time.Second)/time.Microsecond)
	r.books.executed(c, k.Executed() == before)
}

// busiest returns the nanoseconds of work of the busiest shard since the warm-up.
func busiest[T interface{ worked(now int64) int64 }](shards []T, now int64) (most int64) {
	for _, s := range shards {
		most = max(most, s.worked(now))
	}
	return most
}

func (r *redis) cpu() int64 { return busiest(r.shards, r.time.now) }

func (r *remote) cpu() int64 { return busiest(r.shards, r.network.time.now) }

func (r *redis) warm() {
	for _, s := range r.shards {
		s.warm(r.time.now)
		for _, c := range s.counters {
			c.core.warm(r.time.now)
		}
	}
}

// fault begins a fault, with by = 1, or ends it, with by = -1.
func (r *redis) fault(f *scenario.RedisFault, by int) {
	r.books.advance()
	for _, s := range hit(f, r.shards) {
		switch f.Kind {
		case scenario.FaultHang:
			s.hangs += by
			r.hang(s, by > 0)
		default:
			s.refuses += by
			if by > 0 {
				r.stop(s)
			} else {
				s.back = r.time.now
			}
		}
		if by < 0 {
			continue
		}
		for i, c := range s.counters {
			c.stop(r.time.now)
			switch f.Kind {
			case scenario.FaultRestartEmpty:
				c.Remote = c.remote.fresh.Clone()
			case scenario.FaultFailover:
				c.Remote = s.replicas[f].rivals[i]
			}
		}
		switch f.Kind {
		case scenario.FaultRestartEmpty:
			clear(s.buckets)
		case scenario.FaultFailover:
			s.buckets = s.replicas[f].buckets
		}
	}
}

// hang stops a server or lets it continue. The operating system keeps batches that arrive during the hang.
func (r *redis) hang(s *shard, stops bool) {
	switch {
	case stops && s.hangs == 1 && len(s.line) > 0:
		s.core.stop(r.time.now)
		r.time.cancel(evServed, s.line[0].id)
	case !stops && s.hangs == 0:
		if len(s.line) > 0 {
			r.attend(s, r.s.WakeTime.Sample(&r.stream))
		}
		stalled := s.stalled
		s.stalled = nil
		for _, b := range stalled {
			r.network.shaken(b)
		}
	}
}

// snapshot copies the state of the shards that the failover f will promote.
func (r *redis) snapshot(f *scenario.RedisFault) {
	r.books.advance()
	for _, s := range hit(f, r.shards) {
		copied := replica{buckets: make([]*bucket, len(s.buckets))}
		for i, b := range s.buckets {
			if b != nil {
				copied.buckets[i] = &bucket{Bucket: *b.Clone(), expires: b.expires}
			}
		}
		for _, c := range s.counters {
			copied.rivals = append(copied.rivals, c.Clone())
		}
		s.replicas[f] = copied
	}
}

// stop drops all batches in line at s without a reply, and breaks all connections.
func (r *redis) stop(s *shard) {
	s.core.stop(r.time.now)
	for _, b := range append(s.line, s.stalled...) {
		r.time.cancel(evServed, b.id)
		r.network.end(b)
	}
	s.line, s.stalled = nil, nil
	s.boots++
	s.forgot = true
}

func hit(f *scenario.RedisFault, shards []*shard) []*shard {
	if f.Shard == 0 {
		return shards
	}
	return shards[f.Shard-1 : f.Shard]
}

// The following types simulate the rivals that call Redis for each request. A rival's request takes a round
// trip of the scenario's network, and waits in line at a shard with the same faults, but with a third of the
// service time. Every such request travels alone. A process denies the request if no answer comes within
// CallTimeout; tokens that the shard grants after the timeout are lost. Each rival has its own Redis, with
// open connections and a server that knows the script.

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
	fresh   rival.Remote // a copy of the rival without state
	asking  *ask         // request that a shard executes now
	sent    int64        // number of asks sent
	waits   report.Waits

	contender *contender // the rival, which records each decision
}

// ask is a rival's request on its way.
type ask struct {
	request
	life  int32 // the process's life when it made the request
	trip  int64 // time of the round trip, in both directions
	done  int64 // when the shard has executed the ask, unless a fault intervenes
	heard bool  // the process has not denied the request yet
}

type counter struct {
	rival.Remote // state of the shard's keys
	core
	remote *remote
	shard  *shard  // the shard with the same faults
	line   []int32 // asks in the order of arrival; core counts all of them as one task
}

func (r *remote) start(fresh rival.Remote) {
	r.fresh = fresh
	for _, s := range r.network.redis.shards {
		c := &counter{Remote: fresh.Clone(), remote: r, shard: s}
		r.shards, s.counters = append(r.shards, c), append(s.counters, c)
	}
}

// local returns the time by the process's clock at which the process sent the request.
func (r *remote) local(int, int64) int64 { return r.asking.p.wall(r.asking.at) - serverStart }

func (r *remote) send(q *request) {
	n := r.network
	r.deliver(n.time.now)
	r.sent++
	lost, silent := chance(n.s.Loss, &r.stream), chance(n.s.LostReplies, &r.stream)
	id, a := r.asks.take()
	*a = ask{request: *q, life: q.p.life, heard: true, trip: n.roundTrip(q.p, &r.stream)}
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
	for _, c := range r.shards {
		c.serve(now)
	}
}

// deliver handles the arrivals up to now.
func (r *remote) deliver(now int64) {
	for len(r.way.heap) > 0 && r.way.heap[0].at <= now {
		e := r.way.heap[0]
		r.way.pop()
		r.shards[int(r.asks.all[e.id].key)%len(r.shards)].arrive(e.id, e.at)
	}
}

// arrive puts an ask in line, unless the line is longer than node.Longest. arrive denies an ask that cannot
// be answered in time; the shard decides the ask anyway.
func (c *counter) arrive(id int32, now int64) {
	r, s := c.remote, c.shard
	a, n := r.asks.all[id], r.network
	c.serve(now)
	if n.cut(a.p, now) || s.hangs > 0 || s.refuses > 0 || c.left(now) > int64(node.Longest(n.timeout)) {
		r.deny(a, now)
		r.asks.give(id)
		return
	}
	cost := n.redis.s.ServiceTime.Sample(&r.stream)/scriptFactor + n.redis.s.ExchangeTime.Sample(&r.stream)
	if len(c.line) == 0 {
		cost += n.redis.s.WakeTime.Sample(&r.stream)
	}
	c.begin(max(now, c.free), cost)
	a.done = c.free
	if a.answered(a.done) > a.at+int64(n.timeout) {
		r.deny(a, now)
	}
	c.line = append(c.line, id)
}

// serve decides the asks in line that were executed by now.
func (c *counter) serve(now int64) {
	for len(c.line) > 0 && c.remote.asks.all[c.line[0]].done <= now {
		c.decide(c.line[0])
		c.line = c.line[1:]
	}
}

func (c *counter) decide(id int32) {
	r := c.remote
	a, n := r.asks.all[id], r.network
	now := a.done
	r.asking = a
	ok := c.Decide(now/1000, a.p.number, int(a.key)/len(r.shards), a.n)
	if n.cut(a.p, a.answered(now)) {
		r.deny(a, now)
	}
	if a.heard {
		ok = ok && a.life == a.p.life && a.p.state != down
		r.contender.decided(&a.request, now, ok)
		if ok {
			r.waits.Add(a.answered(now) - a.at)
		}
	}
	r.asks.give(id)
}

// answered returns the time at which a's process gets an answer that the shard has decided.
func (a *ask) answered(decided int64) int64 { return decided + a.trip - a.trip/2 }

// deny ends the process's wait for a, unless the wait has ended already.
func (r *remote) deny(a *ask, now int64) {
	if a.heard {
		a.heard = false
		r.contender.decided(&a.request, now, false)
	}
}

func (c *counter) stop(now int64) {
	for _, id := range c.line {
		c.remote.deny(c.remote.asks.all[id], now)
		c.remote.asks.give(id)
	}
	c.core.stop(now)
	c.line = nil
}
