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
		{"nobody else calls", []served{{10, 150 * us}, {10, 170 * us}}, 16 * us},
		{"one call of 2 ms in the second part", []served{{10, 150 * us}, {11, 2150 * us}, {10, 170 * us}}, 16 * us},
		{"the count begins anew", []served{{10, 150 * us}, {-500, -900 * us}}, 15 * us},
		{"others call all the time", []served{{11, 250 * us}, {12, 440 * us}}, 0},
	} {
		var own served
		for _, part := range c.parts {
			before := served{1000, 5000 * us}
			own.add(10, before, served{before.calls + part.calls, before.time + part.time})
		}
		got := own.since(served{})
		testkit.Check(t, got == c.service, "%s: %v, want %v", c.what, got, c.service)
	}
}
