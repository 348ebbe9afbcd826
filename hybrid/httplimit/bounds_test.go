package httplimit

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// The policies that are ready have a bound, and others are made anew.
func TestReadyPoliciesHaveABound(t *testing.T) {
	var c policyCache
	for i := range 10 * policiesMax {
		limits := []hybrid.Limit{hybrid.PerHour(int64(1 + i))}
		p := c.policiesFor("name", limits, 429)
		testkit.Check(t, c.policiesFor("name", limits, 429) == p, "what was just made is not kept")
		kept := len(*c.ready.Load()) + len(c.others)
		testkit.Check(t, kept <= 2*policiesMax+1, "%d policies are kept", kept)
		testkit.Check(t, c.policiesFor("other", limits, 429).list[0].names[0] == "other", "the name is that of another rule")
	}
}

// For any number of sets of limits, finding policies costs about as much as making them: n ready policies
// are copied once in n requests. A few sets are ready soon.
func TestPoliciesAreSeldomCopied(t *testing.T) {
	for _, kinds := range []int{1, 10, policiesMax / 2, policiesMax + 1, 4 * policiesMax} {
		var c policyCache
		asked, copied, ready := 0, 0, c.ready.Load()
		for range 10 {
			for i := range kinds {
				c.policiesFor("name", []hybrid.Limit{hybrid.PerHour(int64(1 + i))}, 429)
				asked++
				if now := c.ready.Load(); now != ready {
					ready, copied = now, copied+len(*now)
				}
			}
		}
		testkit.Check(t, copied <= 4*asked, "%d kinds: %d are copied in %d requests", kinds, copied, asked)
		if kinds <= policiesMax {
			testkit.Check(t, 10*len(*ready) >= 9*kinds, "%d of %d are ready", len(*ready), kinds)
		}
	}
}

// Concurrent requests with the same limits find the policies that the first of them made ready.
func TestPoliciesThatHaveBecomeReady(t *testing.T) {
	var c policyCache
	limits := []hybrid.Limit{hybrid.PerHour(1)}
	key := policyKey{name: "name"}
	copy(key.limits[:], limits)
	p := c.policiesFor("name", limits, 429)
	for range 3 { // each has looked before it was ready
		testkit.Check(t, c.findOrMake(key, limits, 429) == p, "made twice")
	}
}

// If limits change between a denial and the look-up of their policies, the answer lacks RateLimit, and
// still has Retry-After.
func TestADenialByARemovedLimit(t *testing.T) {
	h := &handler{settings: newSettings(nil)}
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	result := hybrid.Result{Limit: hybrid.PerHour(1), RetryAfter: 1500 * time.Millisecond}
	err := h.respond(w, r, newPolicies("name", []hybrid.Limit{hybrid.PerHour(2)}, 429), &result, nil)
	testkit.Check(t, err == errAnswered && w.Code == 429 && w.Header().Get("Retry-After") == "2" &&
		w.Header().Get("RateLimit") == "", "%v: %d %v", err, w.Code, w.Header())
}

// Pauses that are over are dropped, and their number has a bound. A shorter pause never ends a longer one.
func TestPausesHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pauses
		for i := range 10_000 {
			p.note(fmt.Sprint(i), time.Second)
			time.Sleep(100 * time.Millisecond) // ten at a time
		}
		testkit.Check(t, len(p.until) <= 20, "%d are kept, of which 10 are not over", len(p.until))
		for i := range pausesMax + 1000 {
			key := fmt.Sprint("b", i)
			noted, kept := p.note(key, time.Hour), !p.until[key].IsZero()
			testkit.Must(t, noted == kept && p.note("b0", time.Hour), "pause %d: %t, %t", i, noted, kept)
		}
		testkit.Check(t, len(p.until) <= pausesMax, "%d are kept", len(p.until))

		time.Sleep(time.Hour)
		p.note("k", time.Minute)
		p.note("k", time.Second)
		from := time.Now()
		_, leave, err := p.enter(t.Context(), "k")
		testkit.NoErr(t, err)
		testkit.Check(t, time.Since(from) == time.Minute, "waited for %v", time.Since(from))
		testkit.Check(t, !leave() && len(p.drawing) == 0, "%d keys are kept after the wait", len(p.drawing))
	})
}
