package sim

import (
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// serverStart is the server's time at the beginning, in microseconds: far from 0, so that it can step back.
const serverStart = 1_700_000_000_000_000

// shard is one Redis: a queue with one server, and the buckets of its keys.
type shard struct {
	index   int32
	offset  int64 // microseconds that its clock is ahead
	free    int64 // when the call before has been executed
	busy    int64 // nanoseconds spent on calls since the warm-up
	refuses int   // faults that have it refuse connections
	hangs   int
	slow    int64 // nanoseconds that each call takes longer
	life    int32 // restarts so far: what was being executed then never answers
	buckets []*bucket
	replica []*bucket // what a replica has that lags, for the next failover
}

// bucket is one key's central state, until it expires.
type bucket struct {
	lease.Bucket
	expires int64 // microseconds of the server's time
}

func (s *shard) now(w *world) int64 { return serverStart + w.now/1000 + s.offset }

// arrive queues a batch.
func (w *world) arrive(b *batch) {
	s := w.shards[b.shard]
	switch {
	case s.hangs > 0:
		return
	case s.refuses > 0:
		b.refused = true
		for i := range b.calls {
			b.calls[i].err = lease.ErrUnavailable
		}
		w.reply(b)
		return
	}
	cost := int64(0)
	for range b.calls {
		cost += w.s.Redis.ServiceTime.sample(&w.redisStream) + s.slow
	}
	s.busy += cost
	s.free = max(s.free, w.now) + cost
	b.server = s.life
	w.event(b, s.free, evServed)
}

// serve executes a batch.
func (w *world) serve(b *batch) {
	s := w.shards[b.shard]
	if b.server != s.life || s.hangs > 0 || s.refuses > 0 {
		return // it died with the server
	}
	for i := range b.calls {
		w.execute(s, b, &b.calls[i])
	}
	w.reply(b)
}

// execute has the bucket answer one call, and books what that admits.
func (w *world) execute(s *shard, b *batch, c *call) {
	key := c.entry.key
	now := s.now(w)
	if w.s.Redis.ClientTime {
		now = b.p.wall()
	}
	k := s.buckets[key]
	if k == nil || now >= k.expires {
		k = &bucket{}
	}
	before := k.Executed()
	if c.err = k.Call(now, &c.request, &c.grant); c.err != nil {
		return
	}
	s.buckets[key] = k
	if w.watch != nil {
		w.watch(c)
	}
	k.expires = now + int64(c.grant.Expiry/time.Microsecond)
	if k.Executed() == before {
		return // the stored answer again
	}
	for i := range w.s.Limits {
		units, perToken := k.Refunded(i)
		w.audit.refund(w.now, key, i, units, perToken)
	}
	w.audit.admit(w.now, key, c.grant.Waited)
	w.granted(c)
}

// begin starts a fault of Redis.
func (w *world) begin(f *RedisFault) {
	for _, s := range w.hit(f) {
		switch f.Kind {
		case FaultOutage:
			s.refuses++
		case FaultHang:
			s.hangs++
		case FaultSlow:
			s.slow += int64(f.By)
		case FaultClockStep:
			s.offset += int64(f.By / time.Microsecond)
		case FaultRestartEmpty:
			s.refuses++
			s.die()
			clear(s.buckets)
		case FaultFailover:
			s.refuses++
			s.die()
			s.buckets, s.replica = s.replica, make([]*bucket, len(s.buckets))
		}
	}
}

// end ends it.
func (w *world) end(f *RedisFault) {
	for _, s := range w.hit(f) {
		switch f.Kind {
		case FaultOutage, FaultRestartEmpty, FaultFailover:
			s.refuses--
		case FaultHang:
			s.hangs--
		case FaultSlow:
			s.slow -= int64(f.By)
		}
	}
}

// snapshot is the last that a replica hears before a failover.
func (w *world) snapshot(f *RedisFault) {
	for _, s := range w.hit(f) {
		s.replica = make([]*bucket, len(s.buckets))
		for key, b := range s.buckets {
			if b != nil {
				s.replica[key] = &bucket{Bucket: *b.Clone(), expires: b.expires}
			}
		}
	}
}

func (s *shard) die() {
	s.life++
	s.free = 0
}

// hit is the shards that f concerns.
func (w *world) hit(f *RedisFault) []*shard {
	if f.Shard == 0 {
		return w.shards
	}
	return w.shards[f.Shard-1 : f.Shard]
}
