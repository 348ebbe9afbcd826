package search

import "github.com/yuzhi-go/yuzhi/sim"

// A shard of Redis is saturated from this share of busy time: then calls queue, and their waits say
// little about the policy.
const saturatedFrom = 0.9

// BusyMost is the share of busy time up to which a shard has room for work that is not simulated.
const BusyMost = 0.7

// Saturated reports whether a redis_cpu left the busiest shard no time in some replication.
func Saturated(cpu sim.Figure) bool { return cpu.Worst >= saturatedFrom }
