package view

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestASweepOfOneReplicationClaimsNothing(t *testing.T) {
	for reps, says := range map[int]string{1: ", without an interval.", 2: ", paired by replication"} {
		r := swept(t, "policy.target=10ms,80ms")
		r.Reps = reps
		d := Sweep(r, "", "")
		text := written(t, d, FormatHTML) // with differences
		testkit.Check(t, strings.Contains(text, says) &&
			strings.Contains(text, "in parentheses if that includes 0") == (reps > 1), "%d: %s", reps, text)
	}
}

func TestValuesStandAtTheirDistances(t *testing.T) {
	for _, c := range []struct {
		values      []string
		at          Points
		logarithmic bool
	}{
		{[]string{"10ms", "20ms", "50ms"}, Points{0.01, 0.02, 0.05}, false},
		{[]string{"0", "50", "1000"}, Points{0, 50, 1000}, false},
		{[]string{"10%", "50%"}, Points{10, 50}, false},
		{[]string{"1", "10", "100"}, Points{0, math.Log(10), math.Log(100)}, true},
		{[]string{"deny", "local_share"}, Points{0, 1}, false},
		{[]string{"2", "1", "4"}, Points{0, 1, 2}, false},
		{[]string{"7"}, Points{7}, false},
	} {
		at, logarithmic := placesOf(c.values)
		testkit.Check(t, slices.Equal(at, c.at) && logarithmic == c.logarithmic, "%q: %v, %v", c.values, at, logarithmic)
	}
}
