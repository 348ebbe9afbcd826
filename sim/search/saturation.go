package search

import (
	"context"

	"github.com/yuzhi-go/yuzhi/sim"
)

// A shard of Redis is saturated from this share of busy time: then calls queue, and their waits say
// little about the policy.
const saturatedFrom = 0.9

// BusyMost is the share of busy time up to which a shard has room for work that is not simulated.
const BusyMost = 0.7

// shardsMost bounds the shards that are tried, as a multiple of the scenario's.
const shardsMost = 64

// Saturated reports whether a redis_cpu left the busiest shard no time in some replication.
func Saturated(cpu sim.Figure) bool { return cpu.Worst >= saturatedFrom }

// needsOf returns the Redis that a confirmed trial takes. It simulates one replication for each number
// of shards that it tries, and names the fewest that meets the targets. A product would be wrong: the
// busiest keys may lie on one shard.
func (p *planning) needsOf(ctx context.Context, t *trial) (*Needs, error) {
	s := t.scenario.Defaults()
	s.Reps, s.Rivals = 1, nil
	n := &Needs{CPU: t.report.RedisCPU.High, Nodes: s.Redis.Shards, Least: s.Redis.Shards}
	few, busy := 0, n.CPU > BusyMost // with few it is too busy
	if busy {
		few, n.Least = n.Nodes, 0
	} else if n.Nodes == 1 {
		return n, nil
	}
	try := func(shards int) (enough bool, callsPerS float64, err error) {
		s := s
		s.Redis.Shards = shards
		if shards > s.Keys.Count || s.Validate() != nil {
			return false, 0, nil
		}
		r, err := p.Run(ctx, s)
		enough = err == nil && r.RedisCPU.Worst <= BusyMost && leastMargin(t.targets, &r, pessimistic) >= 0
		return enough, r.CallsPerS.Mean, err
	}
	found := false
	most := max(1, 2*few) // doubled until it is enough, and then halved towards few
	for most-few > 0 && (found || most <= shardsMost*n.Nodes) {
		enough, callsPerS, err := try(most)
		switch {
		case err != nil:
			return nil, err
		case enough:
			found, n.Least = true, most
			if busy {
				n.CallsPerS = callsPerS
			}
		case !found:
			few, most = most, 2*most
			continue
		default:
			few = most
		}
		most = (few + n.Least) / 2
	}
	if !busy {
		n.Least = min(n.Nodes, n.Least)
	}
	return n, nil
}
