package main

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// TestEveryTextFitsATerminal: whatever a command prints as text has 80 columns, so that nothing
// wraps. A longer word, as a path, stays whole.
func TestEveryTextFitsATerminal(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("reads texts, which other tests make with the race detector")
	}
	lines := []string{
		"init --list",
		"sweep -f example:small-burst --reps 2 --duration 1s --vary policy.target=9ms,1s --vary policy.ttl=99ms,4s",
		"run -f example:redis-failover --reps 2",
		"compare -f example:priorities --reps 2 --duration 4s",
	}
	if testkit.Long(t, fmt.Sprint(len(lines), " command lines"), "all examples, sweeps and plans") {
		lines = append(lines,
			"sweep -f example:small-burst --reps 2 --duration 2s --vary policy.target=10ms,50ms,100ms",
			"sweep -f example:small-burst --reps 2 --duration 2s --vary policy.overcommit=0,10",
			"plan -f example:noisy-neighbours --reps 2 --duration 4s",
			"plan -f example:noisy-neighbours --reps 2 --duration 4s --admitted 99% --jain 99% --worst-share 50% "+
				"--wait-p99 10ms",
		)
		for _, e := range scenfile.Examples() {
			if e.Name != "fleet-of-10000" { // which takes as long as all others
				lines = append(lines, "run -f example:"+e.Name+" --reps 2", "compare -f example:"+e.Name+" --reps 2")
			}
		}
	}
	for _, line := range lines {
		for text := range strings.SplitSeq(leasesim(t, line).stdout, "\n") {
			if n := utf8.RuneCountInString(text); n > 80 && strings.Contains(strings.TrimSpace(text), " ") {
				t.Errorf("%s: a line of %d characters: %s", line, n, text)
			}
		}
	}
}
