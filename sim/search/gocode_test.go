package search

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// configurations are as GoCode writes them, so that the compiler reads its code.
var configurations = []hybrid.Config{
	hybrid.Config{
		Limits: []hybrid.Limit{
			{Tokens: 1000, Per: time.Second, Burst: 8000},
		},
		Policy: hybrid.Policy{
			Target:   2500 * time.Microsecond,
			TTL:      200 * time.Millisecond,
			Fallback: hybrid.FallbackDeny,
		},
	},
	hybrid.Config{
		Limits: []hybrid.Limit{
			{Tokens: 7, Per: 250 * time.Millisecond, Burst: 30},
			{Tokens: 3, Per: 1001 * time.Microsecond, Burst: 4},
			{Tokens: 1, Per: 90 * time.Second, Burst: 2},
		},
		Policy: hybrid.Policy{
			Target:         time.Second,
			TTL:            1800 * time.Second,
			Overcommit:     5,
			Fallback:       hybrid.FallbackAllowAll,
			CallsPerSecond: 9000,
			// the scenario's other policy settings stay
		},
	},
	hybrid.Config{
		Limits: []hybrid.Limit{
			hybrid.Sliding(100, 60*time.Second),
			hybrid.Calendar(1000, 86400*time.Second, 57600*time.Second),
			hybrid.Calendar(7, 60*time.Second, 0*time.Second),
		},
		Policy: hybrid.Policy{
			Fallback: hybrid.FallbackLocalShare,
		},
	},
}

func TestTheCodeCompilesAndIsTheConfiguration(t *testing.T) {
	dense := func(text string) string {
		return strings.Join(strings.Fields(strings.ReplaceAll(text, "*", " * ")), " ")
	}
	source, err := os.ReadFile("gocode_test.go")
	testkit.NoErr(t, err)
	for _, c := range configurations {
		s := fleet()
		s.Limits, s.Policy = c.Limits, c.Policy
		s.Policy.StrictExpiry = c.Policy.CallsPerSecond > 0 // GoCode has no line for StrictExpiry
		code := GoCode(s)
		testkit.Check(t, c.Validate() == nil && strings.Contains(dense(string(source)), dense(code)),
			"%v: there is no\n%s", c.Validate(), code)
	}
}
