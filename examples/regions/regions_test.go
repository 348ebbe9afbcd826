package main

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// TestOnlyTheFirstRequestsWaitBelowTheLimit: both regions have all that they ask for, by a few round trips.
func TestOnlyTheFirstRequestsWaitBelowTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, err := run(t.Context(), memory.New(nil), 0.9)
		testkit.NoErr(t, err)
		for _, r := range []*region{a, b} {
			trips := r.limiter.Stats().RoundTrips
			testkit.Check(t, len(r.admitted) == r.asked && int(trips) <= r.asked/50,
				"%s: %d of %d are admitted, by %d round trips", r.name, len(r.admitted), r.asked, trips)
			testkit.Check(t, r.last < time.Second, "%s: a request waits %v after the start", r.name, r.last)
		}
		testkit.Check(t, b.longest >= 80*time.Millisecond, "no request of b waited for its round trip")
	})
}

// TestTheRegionsKeepTheLimitTogether: they are admitted nearly all of it and no more, and each gets a part.
func TestTheRegionsKeepTheLimitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, err := run(t.Context(), memory.New(nil), 2)
		testkit.NoErr(t, err)
		both := slices.Concat(a.admitted, b.admitted)
		needs, central := needed(both), burst+rate*int(length/time.Second)
		testkit.Check(t, needs <= burst, "one central bucket needs a burst of %v", needs)
		enough := len(both) >= central*9/10
		testkit.Check(t, enough, "%d are admitted, of %d by one central bucket", len(both), central)
		for _, r := range []*region{a, b} {
			testkit.Check(t, len(r.admitted) >= len(both)/4, "%s: %d", r.name, len(r.admitted))
			testkit.Check(t, r.limiter.Stats().Conserved(), "%+v", r.limiter.Stats())
		}
	})
}
