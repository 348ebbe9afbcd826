package engine

import (
	"time"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// begin starts a fault of Redis.
func (r *redis) begin(f *scenario.RedisFault) {
	for i, s := range r.hit(f) {
		switch f.Kind {
		case scenario.FaultSlow:
			s.slow += int64(f.By)
			continue
		case scenario.FaultClockStep:
			s.offset += int64(f.By / time.Microsecond)
			continue
		case scenario.FaultHang:
			s.hangs++
		default:
			s.refuses++
		}
		r.stop(s)
		switch f.Kind {
		case scenario.FaultRestartEmpty:
			clear(s.buckets)
		case scenario.FaultFailover:
			s.buckets = r.replicas[f][i]
		}
	}
}

// end ends it.
func (r *redis) end(f *scenario.RedisFault) {
	for _, s := range r.hit(f) {
		switch f.Kind {
		case scenario.FaultSlow:
			s.slow -= int64(f.By)
		case scenario.FaultHang:
			s.hangs--
		default:
			s.refuses--
		}
	}
}

// snapshot is the last that the replicas hear which a failover promotes.
func (r *redis) snapshot(f *scenario.RedisFault) {
	for _, s := range r.hit(f) {
		replica := make([]*bucket, len(s.buckets))
		for i, b := range s.buckets {
			if b != nil {
				replica[i] = &bucket{Bucket: *b.Clone(), expires: b.expires}
			}
		}
		r.replicas[f] = append(r.replicas[f], replica)
	}
}

// stop ends whatever s has in line, unanswered.
func (r *redis) stop(s *shard) {
	s.life++
	s.busy -= r.left(s)
	s.free = 0
	for _, b := range s.line {
		r.network.done(b)
	}
	s.line = nil
}

// hit is the shards that f concerns.
func (r *redis) hit(f *scenario.RedisFault) []*shard {
	if f.Shard == 0 {
		return r.shards
	}
	return r.shards[f.Shard-1 : f.Shard]
}
