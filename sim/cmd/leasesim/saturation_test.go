package main

import (
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

func TestASaturatedRedisIsSaidWithTheShardsThatWouldDo(t *testing.T) {
	file := " --set keys.count=10 -f " + fileOf(t, room)
	// Given a Redis that needs three shards of so much work that two are busy all the time,
	busy := figured(func(s sim.Scenario) sim.Figures {
		f, part := figures(s), min(1, 2/float64(max(1, s.Redis.Shards)))
		f.RedisCPU = sim.Figure{Mean: part, Low: part, High: part, Worst: part}
		return f
	})
	for line, want := range map[string][]string{
		"run --reps 2": {"Redis is saturated: its busiest shard works 100 % of the time, and calls wait in line. "},
		"sweep --reps 2 --vary policy.target=10ms,50ms": {"Redis is saturated at the points marked !"},
		"plan --reps 2": {"Redis is saturated: "},
	} {
		// then each command says so, and how many would do.
		e := execute(t.Context(), t, busy, line+file).ends(exitOK)
		said := strings.Join(strings.Fields(e.stdout), " ")
		for _, text := range want {
			testkit.Check(t, strings.Contains(said, text), "%s: no %q in\n%s", e.line, text, e.stdout)
		}
		// Of one that rests nothing is said.
		e = execute(t.Context(), t, figured(figures), line+file).ends(exitOK)
		testkit.Check(t, !strings.Contains(e.stdout, "saturated"), "%s:\n%s", e.line, e.stdout)
	}
}
