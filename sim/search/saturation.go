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

// Relieve finds the fewest shards of Redis, more than s has, with which no shard is busy for more
// than BusyMost of the time. It simulates one replication of s for each number that it tries. It
// returns nil if no number helps, for example if one bucket alone is too much for a shard.
func (l Lab) Relieve(ctx context.Context, s sim.Scenario) (*sim.Relief, error) {
	return l.fewest(ctx, s, s.Defaults().Redis.Shards, nil)
}

// fewest is Relieve for more than few shards, with which one replication meets targets too.
func (l Lab) fewest(ctx context.Context, s sim.Scenario, few int, targets []Threshold) (*sim.Relief, error) {
	s = s.Defaults()
	s.Reps, s.Rivals = 1, nil
	try := func(n int) (*sim.Relief, error) {
		t := s
		t.Redis.Shards = n
		if n > s.Keys.Count || t.Validate() != nil {
			return nil, nil
		}
		r, err := l.Run(ctx, t)
		if err != nil || r.RedisCPU.Worst > BusyMost || leastMargin(targets, &r, pessimistic) < 0 {
			return nil, err
		}
		return &sim.Relief{Shards: n, RedisCPU: r.RedisCPU.Worst, CallsPerS: r.CallsPerS.Mean}, nil
	}
	var found *sim.Relief
	most := max(1, 2*few) // doubled until it is enough, and then halved towards few
	for most-few > 0 && (found != nil || most <= shardsMost*s.Redis.Shards) {
		better, err := try(most)
		if err != nil {
			return nil, err
		}
		switch {
		case better != nil:
			found = better
		case found == nil:
			few, most = most, 2*most
			continue
		default:
			few = most
		}
		most = (few + found.Shards) / 2
	}
	return found, nil
}

// needsOf returns the Redis that a confirmed trial takes. It simulates one replication with the
// shards that it names, and that meets the targets. A product would be wrong: the busiest keys may
// lie on one shard.
func (p *planning) needsOf(ctx context.Context, t *trial) (*Needs, *sim.Relief, error) {
	s := t.scenario.Defaults()
	n := &Needs{CPU: t.report.RedisCPU.High, Nodes: s.Redis.Shards, Least: s.Redis.Shards}
	few, busy := 0, n.CPU > BusyMost
	if busy {
		few, n.Least = n.Nodes, 0
	} else if n.Nodes == 1 {
		return n, nil, nil
	}
	relief, err := p.fewest(ctx, s, few, t.targets)
	switch {
	case err != nil:
		return nil, nil, err
	case relief != nil && busy:
		n.Least = relief.Shards
		return n, relief, nil
	case relief != nil:
		n.Least = min(n.Nodes, relief.Shards)
	}
	return n, nil, nil
}
