package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// stock is a fleet on a bucket that starts with half a million tokens and gets no more within a test: so every token
// can be counted. Its leases last an hour, so a call that failed is always sent again under its seq and never given up:
// whatever the network does to calls and replies, not one token may be missing in the end.
type stock struct {
	*Fleet
	ears *ears
}

const stocked = 500_000

func newStock(t *testing.T, addr, direct string, n int, cfg hybrid.Config) stock {
	t.Helper()
	s := stock{ears: new(ears)}
	cfg.Limits = []hybrid.Limit{hybrid.PerHour(1).WithBurst(stocked)}
	cfg.Policy = hybrid.Policy{TTL: time.Hour, Fallback: hybrid.FallbackDeny}
	s.Fleet = NewFleet(t, Options{Size: n, Addr: addr, Direct: direct, Store: s.ears.put, Config: cfg})
	return s
}

// check is oracles C and K, for a network that is well again and a fleet that is asked no more: it gives back what it holds,
// and then the bucket lacks what callers were admitted for, to the token. (Its ledger does not count: who has spent all that
// he held makes no report. Nor does Stats.Admitted alone: it contains what was drawn for somebody who had gone
// meanwhile, and refunded.)
func (s stock) check(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "everything given back", func() bool { return s.Stats().Held == 0 })
	seen := s.Seen("k", 0, s.Now())
	want := stocked - seen.Admitted
	level := s.State("k").Levels[0]
	for patient := s.Now() + time.Minute; level != want && s.Now() < patient; level = s.State("k").Levels[0] {
		time.Sleep(time.Millisecond) // the pace of polling: a last refund may be on its way
	}
	s.CheckConserved()
	st := s.Stats()
	sent, failed, _ := s.ears.sum()
	t.Logf("%d admitted, %d in the bucket; %d of %d calls failed; %+v", seen.Admitted, level, failed, sent, seen)
	if seen.Admitted == 0 || st.Burnt != 0 || st.Fallback != 0 || seen.Admitted != st.Admitted-st.Refunded {
		t.Errorf("seen %+v, counted %+v", seen, st)
	}
	if level != want {
		t.Errorf("%d tokens are gone that nobody was admitted for", want-level)
	}
}

// answered waits until n more calls of every limiter got a grant, with load on.
func (s stock) answered(t *testing.T, n int64) {
	t.Helper()
	s.more(t, "calls that are answered", n, func(sent, failed int64) int64 { return sent - failed })
}

// failing waits until a call of every limiter has failed.
func (s stock) failing(t *testing.T) {
	t.Helper()
	s.more(t, "calls that fail", 1, func(_, failed int64) int64 { return failed })
}

// more waits until what count makes of the calls of every limiter has risen by n.
func (s stock) more(t *testing.T, what string, n int64, count func(sent, failed int64) int64) {
	t.Helper()
	counted := func(e *ear) int64 {
		sent, failed, _ := e.heard()
		return count(sent, failed)
	}
	enough := make([]int64, len(*s.ears))
	for i, e := range *s.ears {
		enough[i] = counted(e) + n
	}
	testkit.Eventually(t, what, func() bool {
		for i, e := range *s.ears {
			if counted(e) < enough[i] {
				return false
			}
		}
		return true
	})
}
