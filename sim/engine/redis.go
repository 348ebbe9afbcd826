package engine

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/random"
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
	sets    bool // a fault sets a clock during the run
}

// shard is one server: a queue of batches, and the buckets of the shard's keys.
type shard struct {
	offset int64 // microseconds by which the shard's clock is ahead
	core
	line    []*batch // batches in the order of arrival; the first is being executed
	refuses int      // number of active faults that refuse connections
	boots   int32    // number of times the shard has gone down, each of which broke all connections
	back    int64    // when the shard last came up again
	forgot  bool     // the server has restarted, and no batch has brought the script since
	hangs   int
	stalled []*batch // batches whose connections cannot open during a hang
	slow    int64    // additional nanoseconds per call
	buckets []*bucket
	// replicas has, for each failover, the buckets that the failover promotes.
	replicas map[*scenario.RedisFault][]*bucket
}

// core is a processor that executes one task after another.
type core struct {
	free int64 // when the task under way ends
	busy int64 // nanoseconds of work since the warm-up, including the whole task under way
}

func (c *core) begin(now, cost int64) { c.free, c.busy = now+cost, c.busy+cost }

// left returns the nanoseconds until the task under way ends.
func (c *core) left(now int64) int64 { return max(0, c.free-now) }

// worked returns the nanoseconds of work since the warm-up.
func (c *core) worked(now int64) int64 { return c.busy - c.left(now) }

// stop aborts the task under way.
func (c *core) stop(now int64) { c.free, c.busy = 0, c.worked(now) }

// warm ends the warm-up.
func (c *core) warm(now int64) { c.busy = c.left(now) }

// bucket is the central state of one key, until the state expires.
type bucket struct {
	protocol.Bucket
	expires int64 // expiry in microseconds of the server's time
}

func newRedis(time *agenda, s *scenario.Scenario, stream random.Stream, n *network, b *books) redis {
	r := redis{time: time, s: &s.Redis, stream: stream, network: n, books: b}
	r.sets = slices.ContainsFunc(s.Redis.Faults,
		func(f scenario.RedisFault) bool { return f.Kind == scenario.FaultClockStep })
	for range s.Redis.Shards {
		r.shards = append(r.shards, &shard{buckets: make([]*bucket, s.Keys.Count/s.Redis.Shards+1),
			replicas: map[*scenario.RedisFault][]*bucket{}})
	}
	return r
}

// now returns the time of a shard's clock. A fault may set the clock back, but not to a time before 1970.
func (r *redis) now(s *shard) int64 { return max(1, serverStart+r.time.now/1000+s.offset) }

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
		cost += r.s.ServiceTime.Sample(&r.stream) + s.slow
	}
	s.begin(r.time.now, cost)
	r.time.at(s.free, evServed, b.id)
}

// serve finishes the first batch in line.
func (r *redis) serve(b *batch) {
	s := r.shards[b.shard]
	s.forgot = false
	for i := range b.calls {
		r.execute(s, &b.calls[i])
	}
	r.network.reply(b)
	if len(s.line) == 1 {
		s.line = s.line[:0]
		return
	}
	s.line = s.line[1:]
	r.attend(s, 0)
}

// execute answers one call from the bucket of its key.
func (r *redis) execute(s *shard, c *call) {
	place, now := r.place(c.entry.key), r.now(s)
	k := *place
	if k == nil || now >= k.expires {
		k = &bucket{}
	}
	before := k.Executed()
	if c.err = k.Call(now, &c.request, &c.grant); c.err != nil {
		return
	}
	*place = k
	// The bucket is kept a second longer, as in Redis: the server's clock may be behind the bucket's time.
	k.expires = now + int64((c.grant.Expiry+time.Second)/time.Microsecond)
	if r.sets {
		r.books.audit.Clock(c.entry.key, (now-serverStart)*1000)
	}
	stored := k.Executed() == before
	r.books.executed(c, stored)
	if c.entry.p.group.Headroom > 0 && !stored {
		st, _ := k.Configure(now, lease.OpInspect, lease.Config{})
		r.books.left(c, st.Levels[:])
	}
}

// cpu returns the nanoseconds of work of the busiest shard since the warm-up.
func (r *redis) cpu() (most int64) {
	for _, s := range r.shards {
		most = max(most, s.worked(r.time.now))
	}
	return most
}

func (r *redis) warm() {
	for _, s := range r.shards {
		s.warm(r.time.now)
	}
}

// fault begins a fault, with by = 1, or ends it, with by = -1.
func (r *redis) fault(f *scenario.RedisFault, by int) {
	for _, s := range hit(f, r.shards) {
		switch f.Kind {
		case scenario.FaultSlow:
			s.slow += int64(by) * int64(f.By)
			continue
		case scenario.FaultClockStep:
			s.offset += int64(f.By / time.Microsecond)
			continue
		case scenario.FaultHang:
			s.hangs += by
			r.hang(s, by > 0)
			continue
		default:
			s.refuses += by
		}
		if by < 0 {
			s.back = r.time.now
			continue
		}
		r.stop(s)
		s.boots++
		s.forgot = true
		switch f.Kind {
		case scenario.FaultRestartEmpty:
			clear(s.buckets)
		case scenario.FaultFailover:
			s.buckets = s.replicas[f]
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

// snapshot copies the buckets that a failover promotes.
func (r *redis) snapshot(f *scenario.RedisFault) {
	for _, s := range hit(f, r.shards) {
		replica := make([]*bucket, len(s.buckets))
		for i, b := range s.buckets {
			if b != nil {
				replica[i] = &bucket{Bucket: *b.Clone(), expires: b.expires}
			}
		}
		s.replicas[f] = replica
	}
}

// stop drops all batches in line at s without a reply.
func (r *redis) stop(s *shard) {
	s.core.stop(r.time.now)
	for _, b := range append(s.line, s.stalled...) {
		r.time.cancel(evServed, b.id)
		r.network.end(b)
	}
	s.line, s.stalled = nil, nil
}

// hit returns the shards on which f acts.
func hit[T any](f *scenario.RedisFault, shards []T) []T {
	if f.Shard == 0 {
		return shards
	}
	return shards[f.Shard-1 : f.Shard]
}
