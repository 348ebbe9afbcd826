package search

import (
	"context"

	"github.com/yuzhi-go/yuzhi/sim"
)

// A shard of Redis is saturated where it works nearly all the time: then calls wait in line, and
// what they wait for says little about the policy. One that works at most for roomy of the time has
// room for what a simulation does not know of.
const saturatedFrom, roomy = 0.9, 0.7

// shardsMost is how many times as many shards are tried before nothing helps.
const shardsMost = 64

// Saturated reports whether Redis was saturated in some replication.
func Saturated(f *sim.Figures) bool { return f != nil && Saturates(f.RedisCPU) }

// Saturates reports whether the busiest shard had no time left in some replication.
func Saturates(cpu sim.Figure) bool { return cpu.Worst >= saturatedFrom }

// Relieve finds the fewest shards with which no shard works for more than roomy of the time, by
// simulating one replication of s with each number that it tries: first more shards of Redis, as
// far as there are buckets to spread, and where one bucket alone is too much, more shards of every
// key too. It is nil where nothing that was tried helps.
func (l Lab) Relieve(ctx context.Context, s sim.Scenario) (*sim.Relief, error) {
	s = s.Defaults()
	s.Reps, s.Rivals = 1, nil
	buckets := s.Keys.Count * max(1, s.Policy.Shards)
	for _, divided := range []bool{false, true} {
		try := func(n int) (*sim.Relief, error) {
			t, most := s, buckets
			t.Redis.Shards = n
			if divided {
				t.Policy.Shards, most = max(n, s.Policy.Shards), buckets*n
			}
			if n > most || t.Validate() != nil {
				return nil, nil
			}
			r, err := l.Run(ctx, t)
			if err != nil || r.RedisCPU.Worst > roomy {
				return nil, err
			}
			relief := &sim.Relief{Shards: n, RedisCPU: r.RedisCPU.Worst}
			if divided {
				relief.KeyShards = t.Policy.Shards
			}
			return relief, nil
		}
		few, found, err := s.Redis.Shards, (*sim.Relief)(nil), error(nil)
		for n := 2 * few; found == nil && n <= shardsMost*s.Redis.Shards; n *= 2 {
			if found, err = try(n); err != nil {
				return nil, err
			} else if found == nil {
				few = n
			}
		}
		if found == nil {
			continue
		}
		for found.Shards-few > 1 { // few are too few
			between, err := try((few + found.Shards) / 2)
			if err != nil {
				return nil, err
			}
			if between == nil {
				few = (few + found.Shards) / 2
			} else {
				found = between
			}
		}
		return found, nil
	}
	return nil, nil
}
