package httplimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
)

// A window is announced as its tokens and its length, also where that is below a second. t is when
// all of it is there again, at the latest, and Retry-After when the oldest of it is.
func TestWindowsInTheFields(t *testing.T) {
	for _, c := range []struct {
		limit              hybrid.Limit
		policy             string
		first, used, retry string // RateLimit and Retry-After
	}{
		{hybrid.Sliding(3, time.Minute), `"default";q=3;w=60`, `"default";r=2;t=61`, `"default";r=0;t=61`, "61"},
		// In a bubble it is midnight UTC at first.
		{hybrid.Calendar(3, 24*time.Hour, 16*time.Hour), `"default";q=3;w=86400`,
			`"default";r=2;t=57600`, `"default";r=0;t=57600`, "57600"},
		{hybrid.Sliding(3, 500*time.Millisecond), `"default";q=6;w=1`, `"default";r=2;t=1`, `"default";r=0;t=1`, "1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			// given a window of 3
			h := httplimit.Handler(limiterOf(t, c.limit), httplimit.All)(&served{})
			// when it is asked for four
			w := ask(h)
			check(t, w.Code == 200 && w.Header().Get("RateLimit-Policy") == c.policy, "%v: %v", c.limit, w.Header())
			check(t, w.Header().Get("RateLimit") == c.first, "%v, the first: %v", c.limit, w.Header())
			_, w = ask(h), ask(h)
			check(t, w.Code == 200 && w.Header().Get("RateLimit") == c.used, "%v, the third: %v", c.limit, w.Header())
			w = ask(h)
			check(t, w.Code == 429 && w.Header().Get("Retry-After") == c.retry, "%v, the fourth: %v", c.limit, w.Header())
			// then who waits for as long as it says is admitted
			wait, err := time.ParseDuration(w.Header().Get("Retry-After") + "s")
			noErr(t, err)
			time.Sleep(wait)
			w = ask(h)
			check(t, w.Code == 200, "%v: denied after %v: %v", c.limit, wait, w.Header())
		})
	}
}
