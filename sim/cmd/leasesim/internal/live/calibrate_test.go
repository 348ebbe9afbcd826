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
		others  int64
	}{
		{"nobody else calls", []served{{10, 150 * us}, {10, 170 * us}}, 16 * us, 0},
		{"one call of 2 ms in the second part", []served{{10, 150 * us}, {11, 2150 * us}, {10, 170 * us}}, 16 * us,
			0},
		{"the count begins anew", []served{{10, 150 * us}, {-500, -900 * us}}, 15 * us, 0},
		{"others call all the time", []served{{11, 250 * us}, {12, 440 * us}}, 30 * us, 3},
	} {
		var seen counted
		for _, part := range c.parts {
			before := served{1000, 5000 * us}
			seen.add(10, before, served{before.calls + part.calls, before.time + part.time})
		}
		service, others := seen.service()
		testkit.Check(t, service == c.service && others == c.others, "%s: %v with %d of others, want %v with %d",
			c.what, service, others, c.service, c.others)
	}
}
