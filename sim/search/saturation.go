package search

import "github.com/yuzhi-go/yuzhi/sim"

// saturatedFrom is the fraction of busy time at which a shard of Redis counts as saturated. Calls to a
// saturated shard queue, and their waits show little about the policy.
const saturatedFrom = 0.9

// BusyMost is the largest fraction of busy time that leaves a shard room for work besides lease calls.
const BusyMost = 0.7

// Saturated reports whether the busiest shard was saturated in any replication. cpu is the figure redis_cpu.
func Saturated(cpu sim.Figure) bool { return cpu.Worst >= saturatedFrom }
