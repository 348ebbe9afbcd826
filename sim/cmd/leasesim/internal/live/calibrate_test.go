package live

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestOtherScriptsAreNotInTheServiceTime: the server counts the calls of all scripts as one.
func TestOtherScriptsAreNotInTheServiceTime(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		what    string
		parts   []served // what the server counts in parts of ten lease calls
		service time.Duration
	}{
		{"nobody else calls", []served{{calls: 10, time: 150 * us}, {calls: 10, time: 170 * us}}, 16 * us},
		{"one call of 2 ms in the second part", []served{
			{calls: 10, time: 150 * us}, {calls: 11, time: 2150 * us}, {calls: 10, time: 170 * us},
		}, 16 * us},
		{"the count begins anew", []served{{calls: 10, time: 150 * us}, {calls: -500, time: -900 * us}}, 15 * us},
		{"others call all the time", []served{{calls: 11, time: 250 * us}, {calls: 12, time: 440 * us}}, 0},
	} {
		var own served
		for _, part := range c.parts {
			before := served{calls: 1000, time: 5000 * us}
			own.add(10, before, served{calls: before.calls + part.calls, time: before.time + part.time})
		}
		got := own.since(served{})
		testkit.Check(t, got == c.service, "%s: %v, want %v", c.what, got, c.service)
	}
}
