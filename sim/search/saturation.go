package search

import (
	"context"

	"github.com/yuzhi-go/yuzhi/sim"
)

// A shard of Redis is saturated where it works nearly all the time: then calls wait in line, and
// what they wait for says little about the policy.
const saturatedFrom = 0.9

// BusyMost is the part of the time up to which a shard has room for what a simulation does not know
// of.
const BusyMost = 0.7

// shardsMost is how many times as many shards are tried before nothing helps.
const shardsMost = 64

// Saturated reports whether Redis was saturated in some replication.
func Saturated(f *sim.Figures) bool { return f != nil && Saturates(f.RedisCPU) }

// Saturates reports whether the busiest shard had no time left in some replication.
func Saturates(cpu sim.Figure) bool { return cpu.Worst >= saturatedFrom }

// Relieve finds the fewest shards of Redis, more than s has, with which no shard works for more than
// BusyMost of the time, by simulating one replication of s with each number that it tries. It is nil
// where nothing that was tried helps, as where one bucket alone is too much for a shard.
func (l Lab) Relieve(ctx context.Context, s sim.Scenario) (*sim.Relief, error) {
	return l.fewest(ctx, s, s.Defaults().Redis.Shards, func(*sim.Report) bool { return true })
}

// fewest is Relieve with more than few shards, where a number of shards must do well in something
// else too.
func (l Lab) fewest(
	ctx context.Context, s sim.Scenario, few int, well func(*sim.Report) bool,
) (*sim.Relief, error) {
	s = s.Defaults()
	s.Reps, s.Rivals = 1, nil
	try := func(n int) (*sim.Relief, error) {
		t := s
		t.Redis.Shards = n
		if n > s.Keys.Count || t.Validate() != nil {
			return nil, nil
		}
		r, err := l.Run(ctx, t)
		if err != nil || r.RedisCPU.Worst > BusyMost || !well(&r) {
			return nil, err
		}
		return &sim.Relief{Shards: n, RedisCPU: r.RedisCPU.Worst, CallsPerS: r.CallsPerS.Mean}, nil
	}
	found, err := (*sim.Relief)(nil), error(nil)
	for n := max(1, 2*few); found == nil && n <= shardsMost*s.Redis.Shards; n *= 2 {
		if found, err = try(n); err != nil {
			return nil, err
		} else if found == nil {
			few = n
		}
	}
	for found != nil && found.Shards-few > 1 {
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

// needsOf is the Redis that a confirmed trial takes. With as many shards as are named one
// replication was simulated, and met the targets. A product would not be right: the busiest keys
// may lie on one shard.
func (p *planning) needsOf(ctx context.Context, t *trial) (*Needs, *sim.Relief, error) {
	s := t.scenario.Defaults()
	n := &Needs{CPU: t.report.RedisCPU.High, Nodes: s.Redis.Shards, Least: s.Redis.Shards}
	relief, err := (*sim.Relief)(nil), error(nil)
	well := func(r *sim.Report) bool { return (&trial{report: r, targets: t.targets}).meets(pessimistic) }
	switch {
	case n.CPU > BusyMost:
		if relief, err = p.fewest(ctx, s, n.Nodes, well); relief == nil {
			n.Least = 0
			break
		}
		n.Least = relief.Shards
	case n.Nodes > 1:
		var fewer *sim.Relief
		if fewer, err = p.fewest(ctx, s, 0, well); fewer != nil {
			n.Least = min(n.Nodes, fewer.Shards)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return n, relief, nil
}
