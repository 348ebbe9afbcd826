package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// stock is a fleet on a bucket that starts with half a million tokens and gets no more within a
// test, so that every token can be counted. Its leases last an hour, so a call that failed is
// always sent again under its seq and never given up: whatever the network does to calls and
// replies, not one token may be missing in the end.
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

// check is oracles C and K, for a network that is well again and a fleet that is asked no more: it
// gives back what it holds, and then the bucket lacks what callers were admitted for, to the token.
// (Its ledger does not count: a holder that has spent everything makes no report. Nor does
// Stats.Admitted alone: it contains what was drawn for a caller that had gone meanwhile, and
// refunded.)
func (s stock) check(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "everything given back", func() bool { return s.Stats().Held == 0 })
	seen := s.Seen("k", 0, s.Now())
	want := stocked - seen.Admitted
	level := s.State("k").Levels[0]
	for until := s.Now() + time.Minute; level != want && s.Now() < until; level = s.State("k").Levels[0] {
		time.Sleep(time.Millisecond) // the pace of polling: a last refund may be on its way
	}
	s.CheckConserved()
	st := s.Stats()
	sent, failed, _ := s.ears.sum()
	t.Logf("%d admitted, %d in the bucket; %d of %d calls failed; %+v", seen.Admitted, level, failed, sent,
		seen)
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
		sent, failed, _ := e.counts()
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

func TestRow03WhatAHungServerExecutesLaterIsDrawnForOnce(t *testing.T) {
	t.Parallel()
	// given a fleet whose every token can be counted
	server := redistest.Start(t)
	f := newStock(t, server.Addr, "", size, hybrid.Config{})
	load := f.Load("k", perEach)
	f.answered(t, 1)
	// when the server stops until every limiter has sent its call three times over, and then executes
	// all of them
	o := hang(t, server, nil)
	o.inject()
	f.more(t, "calls to a server that hangs", 3, func(sent, _ int64) int64 { return sent })
	o.cure()
	f.answered(t, 2)
	load.Stop()
	// then each was drawn for once
	f.check(t)
	f.CheckNobodyWaited("k", 0, f.Now())
}

func TestRow23ForgottenScriptsAreSentAgainAndRunOnce(t *testing.T) {
	t.Parallel()
	// given a fleet under load on a bucket that does not refill
	server := redistest.Start(t)
	ctl := admin(t, server.Addr)
	f := newStock(t, server.Addr, "", size, hybrid.Config{CallTimeout: time.Minute})
	load := f.Load("k", perEach)
	// when the server forgets the scripts fifty times, each time after it was called again
	for range 50 {
		before := f.Stats().Calls
		must(t, ctl.ScriptFlush(t.Context()).Err())
		testkit.Eventually(t, "another call", func() bool { return f.Stats().Calls > before })
	}
	load.Stop()
	// then every token is accounted for, no call failed, and each was executed exactly once
	f.check(t)
	calls, failed, err := f.ears.sum()
	if counted := f.State("k").Counter; failed > 0 || counted != calls {
		t.Errorf("%d calls, %d executed, %d failed: %v", calls, counted, failed, err)
	}
}

// lossy is a network that meets fate again and again, and passes in between.
func lossy(t *testing.T, fate redistest.Fate) {
	t.Parallel()
	server, proxy := behindProxy(t)
	// given a process whose every token can be counted, and a fleet on an ordinary bucket, whose
	// leases end while a call is sent again and again
	f := newStock(t, proxy.Addr, server.Addr, 1, hybrid.Config{})
	stocks := f.Load("k", perEach)
	g := NewFleet(t, Options{Size: size, Addr: proxy.Addr, Direct: server.Addr, Config: ordinary(strict)})
	load := g.Load("k2", perEach)
	f.answered(t, 1)
	g.Warm()
	// when both lose calls, many times over
	for range 5 {
		proxy.Set(fate)
		f.failing(t)
		proxy.Pass()
		f.answered(t, 3)
	}
	stocks.Stop()
	// then a call was drawn for once, however often it was sent, and nothing of it is missing
	f.check(t)
	f.CheckNobodyWaited("k", 0, f.Now())
	// and the ordinary fleet stayed within its bound, and is back at its rate
	g.AwaitRecovery(limit.Tokens)
	load.Stop()
	g.CheckBound("k2", limit, 0)
	g.CheckConserved()
	g.CheckNobodyWaited("k2", 0, g.Now())
	if st := g.Stats(); st.Errors == 0 {
		t.Errorf("nothing was lost: %+v", st)
	}
}

func TestRow04ALostReplyIsDrawnForOnce(t *testing.T) { lossy(t, redistest.Fate{LoseReply: true}) }

func TestRow05ALostRequestIsSentAgain(t *testing.T) { lossy(t, redistest.Fate{DropRequest: true}) }
