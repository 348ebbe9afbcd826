package search

import "github.com/yuzhi-go/yuzhi/sim"

// saturatedFrom is the share of busy time from which a shard of Redis is saturated. Calls then queue, and
// their waits say little about the policy.
const saturatedFrom = 0.9

// BusyMost is the largest share of busy time that leaves a shard room for other work than the simulated
// calls.
const BusyMost = 0.7

// Saturated reports whether the busiest shard was saturated in any replication. cpu is the figure redis_cpu.
func Saturated(cpu sim.Figure) bool { return cpu.Worst >= saturatedFrom }
