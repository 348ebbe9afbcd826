package engine

import (
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// serverStart is the server's time at the beginning, in microseconds: far from 0, so that it can step back.
const serverStart = 1_700_000_000_000_000

// shard is one Redis: a queue with one server, and the buckets of its keys.
type shard struct {
	offset  int64    // microseconds that its clock is ahead
	line    []*batch // in the order of their arrival; the first is being executed
	free    int64    // when the first will have been executed
	busy    int64    // nanoseconds spent on calls since the warm-up; of the first of line, all it will take
	refuses int      // faults that have it refuse connections
	hangs   int
	slow    int64 // nanoseconds that each call takes longer
	life    int32 // how often it stopped: what was in line then is never answered
	buckets []*bucket
}

// bucket is one key's central state, until it expires.
type bucket struct {
	lease.Bucket
	expires int64 // microseconds of the server's time
}

// now is the server's clock. It may be set back, but not to before 1970.
func (s *shard) now(w *world) int64 { return max(1, serverStart+w.now/1000+s.offset) }

// place is where a key's bucket is, and bucketOf the bucket; nil where there is none.
func (w *world) place(key int32) **bucket {
	n := int32(len(w.shards))
	return &w.shards[key%n].buckets[key/n]
}

func (w *world) bucketOf(key int32) *bucket { return *w.place(key) }

// left is how long s will be busy with what it has begun.
func (s *shard) left(w *world) int64 { return max(0, s.free-w.now) }

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
	b.server = s.life
	b.pending++ // until it has been served
	s.line = append(s.line, b)
	if len(s.line) == 1 {
		w.attend(s)
	}
}

// attend begins to execute the first batch in line.
func (w *world) attend(s *shard) {
	b := s.line[0]
	cost := int64(0)
	for range b.calls {
		cost += w.s.Redis.ServiceTime.Sample(&w.redisStream) + s.slow
	}
	s.busy += cost
	s.free = w.now + cost
	w.event(b, s.free, evServed)
}

// serve executes a batch.
func (w *world) serve(b *batch) {
	s := w.shards[b.shard]
	if b.server != s.life {
		return // it died with the server
	}
	for i := range b.calls {
		w.execute(s, b, &b.calls[i])
	}
	w.reply(b)
	w.done(b)
	if len(s.line) == 1 {
		s.line = s.line[:0]
		return
	}
	s.line = s.line[1:]
	w.attend(s)
}

// execute has the bucket answer one call, and books what that admits.
func (w *world) execute(s *shard, b *batch, c *call) {
	key := c.entry.key
	now := s.now(w)
	place := w.place(key)
	k := *place
	if k == nil || now >= k.expires {
		k = &bucket{}
	}
	before := k.Executed()
	counted := now // the time that the bucket goes by; Redis forgets it by its own
	if w.s.Redis.ClientTime {
		counted = max(1, b.p.wall())
	}
	if c.err = k.Call(counted, &c.request, &c.grant); c.err != nil {
		return
	}
	*place = k
	if w.watch != nil {
		w.watch(c)
	}
	k.expires = now + int64(c.grant.Expiry/time.Microsecond)
	if k.Executed() == before {
		return // the stored answer again
	}
	w.granted(c)
}

// begin starts a fault of Redis.
func (w *world) begin(f *scenario.RedisFault) {
	for i, s := range w.hit(f) {
		switch f.Kind {
		case scenario.FaultOutage:
			s.refuses++
			w.stop(s)
		case scenario.FaultHang:
			s.hangs++
			w.stop(s)
		case scenario.FaultSlow:
			s.slow += int64(f.By)
		case scenario.FaultClockStep:
			s.offset += int64(f.By / time.Microsecond)
		case scenario.FaultRestartEmpty:
			s.refuses++
			w.stop(s)
			clear(s.buckets)
		case scenario.FaultFailover:
			s.refuses++
			w.stop(s)
			s.buckets = w.replicas[f][i]
		}
	}
}

// end ends it.
func (w *world) end(f *scenario.RedisFault) {
	for _, s := range w.hit(f) {
		switch f.Kind {
		case scenario.FaultOutage, scenario.FaultRestartEmpty, scenario.FaultFailover:
			s.refuses--
		case scenario.FaultHang:
			s.hangs--
		case scenario.FaultSlow:
			s.slow -= int64(f.By)
		}
	}
}

// snapshot is the last that the replicas hear which a failover promotes.
func (w *world) snapshot(f *scenario.RedisFault) {
	for _, s := range w.hit(f) {
		replica := make([]*bucket, len(s.buckets))
		for i, b := range s.buckets {
			if b != nil {
				replica[i] = &bucket{Bucket: *b.Clone(), expires: b.expires}
			}
		}
		w.replicas[f] = append(w.replicas[f], replica)
	}
}

// stop ends whatever s has in line, unanswered.
func (w *world) stop(s *shard) {
	s.life++
	s.busy -= s.left(w)
	s.free = 0
	for _, b := range s.line {
		w.done(b)
	}
	s.line = nil
}

// hit is the shards that f concerns.
func (w *world) hit(f *scenario.RedisFault) []*shard {
	if f.Shard == 0 {
		return w.shards
	}
	return w.shards[f.Shard-1 : f.Shard]
}
