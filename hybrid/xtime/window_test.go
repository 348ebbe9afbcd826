package xtime_test

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/xtime"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// A window stays one, whatever is set: its rate and its burst are one number of tokens.
func TestAWindowStaysAWindow(t *testing.T) {
	for _, given := range []hybrid.Limit{hybrid.Sliding(60, time.Minute), hybrid.Calendar(60, time.Minute, time.Second)} {
		synctest.Test(t, func(t *testing.T) {
			shared, err := hybrid.New(memory.New(nil), hybrid.Config{Limits: []hybrid.Limit{given}})
			testkit.NoErr(t, err)
			defer shared.Close()
			l := xtime.New(shared.Key("k"))
			is := func(tokens int64) {
				t.Helper()
				want := given
				want.Tokens = tokens
				limits, err := shared.LimitsOf(t.Context(), "k")
				testkit.NoErr(t, err)
				testkit.Check(t, len(limits) == 1 && limits[0].Equal(want), "%v, want %v", limits, want)
				testkit.Check(t, l.Limit() == rate.Limit(float64(tokens)/60) && l.Burst() == int(tokens),
					"%v burst %d, want %d in a minute", l.Limit(), l.Burst(), tokens)
			}
			is(60)
			l.SetBurst(90)
			is(90)
			l.SetLimit(2)
			is(120)
			l.SetLimit(0.001) // less than one in a minute
			is(1)
		})
	}
}
