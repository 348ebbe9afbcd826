package faults

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// stock is a fleet on a bucket that starts with half a million tokens and gets no more within a
// test, so that every token can be counted. Its leases last an hour, so a failed call is always
// sent again under its seq and never given up: no token may be missing in the end, under any fault
// of the network. No request draws, as MinBatch is 2: a draw whose reply is lost is never sent
// again, so its tokens are burnt.
type stock struct{ *fleet }

const stocked = 500_000

// stock starts n limiters, which give up a request after callTimeout; 0 is the default.
func (s *site) stock(n int, callTimeout time.Duration) stock {
	s.t.Helper()
	cfg := with(hybrid.PerHour(1).WithBurst(stocked), denying)
	cfg.CallTimeout, cfg.Policy.TTL, cfg.Policy.MinBatch = callTimeout, time.Hour, 2
	return stock{s.fleet(n, cfg)}
}

// check is oracles C and K, after the network's recovery and without load: the fleet gives its
// tokens back, and then the bucket lacks the admitted tokens, exactly. (Its ledger does not count:
// a holder that has spent everything makes no report. Nor does Stats.Admitted alone: it contains
// refunded draws for callers that had gone.)
func (s stock) check() {
	s.t.Helper()
	testkit.Eventually(s.t, "everything given back", func() bool { return s.stats().Held == 0 })
	seen, st := s.seen(key, 0, s.now()), s.stats()
	testkit.Check(s.t, seen.admitted > 0 && st.Burnt == 0 && st.Fallback == 0 &&
		seen.admitted == st.Admitted-st.Refunded, "seen %+v, counted %+v", seen, st)
	// (a last refund may be on its way)
	testkit.Eventually(s.t, fmt.Sprint("all tokens but ", seen.admitted),
		func() bool { return s.state(key).Levels[0] == stocked-seen.admitted })
}

// awaitFailure waits until a call of every limiter has failed.
func (s stock) awaitFailure() {
	s.t.Helper()
	s.awaitCalls("calls that fail", 1, func(h heard) int64 { return h.failed })
}

func TestRow03WhatAHungServerExecutesLaterIsDrawnForOnce(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// given a fleet whose every token can be counted
	server := start(t)
	f := server.stock(size, 0)
	load := f.load(key, perEach)
	f.awaitAnswers(1)
	// when the server stops until every limiter has sent its call three times over, and then executes
	// all of them
	server.Hang(t)
	f.awaitCalls("calls to a server that hangs", 3, func(h heard) int64 { return h.sent })
	server.Resume(t)
	f.awaitAnswers(2)
	load.stop()
	// then each was drawn for once
	f.check()
}

// lossy is a network that meets fate again and again, and passes in between.
func lossy(t *testing.T, fate redistest.Fate) {
	testkit.LongOnly(t)
	t.Parallel()
	server, proxy := behindProxy(t)
	// given a process whose every token can be counted, and a fleet on an ordinary bucket, whose
	// leases end while a call is sent again and again
	f, g := server.stock(1, 0), server.fleet(size, ordinary(strict))
	stocks, load := f.load(key, perEach), g.load("k2", perEach)
	f.awaitAnswers(1)
	g.warm()
	// when both lose calls, many times over
	for range 5 {
		failed := g.stats().Errors
		proxy.Set(fate)
		f.awaitFailure()
		testkit.Eventually(t, "a failure of the other fleet", func() bool { return g.stats().Errors > failed })
		proxy.Pass()
		f.awaitAnswers(3)
	}
	stocks.stop()
	// then a call was drawn for once, however often it was sent, and nothing of it is missing
	f.check()
	// and the ordinary fleet stayed within its bound, and is served again
	g.awaitLeased(limit.Tokens)
	load.stop()
	g.checkBound("k2", limit, 0)
}

func TestRow04ALostReplyIsDrawnForOnce(t *testing.T) { lossy(t, redistest.Fate{LoseReply: true}) }

func TestRow05ALostRequestIsSentAgain(t *testing.T) { lossy(t, redistest.Fate{DropRequest: true}) }

func TestRow06ADuplicateReplyIsDropped(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// given a fleet whose every token can be counted, on a network that delivers every reply twice
	server, proxy := behindProxy(t)
	f := server.stock(size, 0)
	proxy.Set(redistest.Fate{Rewrite: func(reply []byte) []byte { return bytes.Repeat(reply, 2) }})
	// when it is used
	load := f.load(key, perEach)
	f.awaitAnswers(10)
	load.stop()
	proxy.Pass()
	// then a reply is good for one call
	f.check()
}

func TestRow06ALateReplyIsDroppedOnceTheRetryWasAnswered(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// given a process whose every token can be counted
	server, proxy := behindProxy(t)
	f := server.stock(1, time.Second)
	load := f.load(key, perEach)
	f.awaitAnswers(1)
	// when a call is executed and its reply is held back
	release := proxy.Hold()
	defer release()
	f.awaitCalls("calls without answer", 1, func(h heard) int64 { return h.sent })
	// until it was sent again, and that was answered
	proxy.Pass()
	f.awaitAnswers(2)
	release()
	f.awaitAnswers(2)
	load.stop()
	// then the late reply changes nothing
	f.check()
}

func TestRow06RepliesThatComeTooLateAdmitNothing(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// given a fleet on an ordinary bucket
	server, proxy := behindProxy(t)
	f := server.fleet(size, ordinary(strict))
	load := f.load(key, perEach)
	f.warm()
	for range 2 {
		// when all replies are held back until every limiter has sent several calls, and then come at
		// once
		release, before := proxy.Hold(), proxy.Calls()
		testkit.Eventually(t, "calls without answer", func() bool { return proxy.Calls() >= before+3*size })
		release()
		proxy.Pass()
		f.awaitLeased(limit.Tokens)
	}
	load.stop()
	// then their tokens are within the bound
	f.checkBound(key, limit, 0)
}

func TestRow07ASlowServerIsBetterThanNone(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// given a fleet on a network that takes 50 to 500 ms for a call
	slow := hybrid.PerSecond(1000).WithBurst(4000)
	server, proxy := behindProxy(t)
	proxy.Set(redistest.Fate{Delay: 500 * time.Millisecond})
	cfg := with(slow, strict)
	cfg.CallTimeout = callTimeout
	f := server.fleet(size, cfg)
	// when it is asked for half of the rate
	const each = 167
	load := f.load(key, each)
	// then they are admitted by leases, though a call may take longer than CallTimeout. (How many are,
	// and how long they wait: TestRow07PrefetchingHidesASlowNetwork.)
	had := f.stats()
	testkit.Eventually(t, "more than one burst from the store", func() bool {
		proxy.Set(redistest.Fate{Delay: 50*time.Millisecond + rand.N(450*time.Millisecond)})
		return f.stats().Leased > had.Leased+slow.Burst
	})
	load.stop()
	f.checkBound(key, slow, 0)
}

// TestRow07AHandshakeOverASlowLinkIsNoOutage: on this link a handshake takes longer than
// CallTimeout, a call does not. A call fails where the machine stands still for longer than
// CallTimeout, so that is tried until it does not.
func TestRow07AHandshakeOverASlowLinkIsNoOutage(t *testing.T) {
	testkit.LongOnly(t)
	each(t, map[string]bool{"warmed by Ping": true, "cold": false}, func(t *testing.T, warm bool) {
		server, proxy := behindProxy(t)
		cfg := ordinary(denying)
		cfg.CallTimeout = time.Second
		testkit.EventuallyNil(t, func() error {
			proxy.Set(redistest.Fate{Far: 400 * time.Millisecond})
			l := server.fleet(1, cfg).limiters[0]
			defer l.Close()
			conns := 0
			if warm {
				// Given a limiter whose connections are warm,
				testkit.NoErr(t, l.Ping(t.Context()))
				conns = proxy.Accepted()
			}
			// when requests come until one is served,
			testkit.Eventually(t, "service", func() bool { return l.Allow(key) })
			// then no call has failed meanwhile, for the connection that it had to wait for or for any
			// other reason, and a warm limiter opened no further connection.
			failed, more := l.Stats().Errors, proxy.Accepted()-conns
			if failed == 0 && (!warm || more == 0) {
				return nil
			}
			return fmt.Errorf("%d calls failed, and %d connections were opened more", failed, more)
		})
	})
}

func TestRow07PrefetchingHidesASlowNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		trip   func() time.Duration
		waits  time.Duration // the longest wait
		denied int64         // the most requests of 10,000 that are denied
	}{
		"50 ms":  {always(50 * time.Millisecond), 0, 0},
		"150 ms": {always(150 * time.Millisecond), 0, 0},
		"500 ms": {always(500 * time.Millisecond), 0, 0},
		// Where round trips differ by 450 ms, some 3 of 200,000 requests wait for the rest of one, and in
		// one run of a hundred that is longer than CallTimeout.
		"50 to 500 ms": {func() time.Duration { return 50*time.Millisecond + rand.N(450*time.Millisecond) },
			100 * time.Millisecond, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// given three processes that are asked for half of the rate, over a network that is slow, and a
				// burst that covers its round trips
				slow := hybrid.PerSecond(1000).WithBurst(4000)
				w := newWire(c.trip)
				f := newFleet(t, with(slow, denying), w, w, w)
				load := f.load(key, 167)
				// when they have learnt how slow it is
				time.Sleep(10 * time.Second)
				learnt := f.now()
				time.Sleep(20 * time.Second)
				// then no more are denied, and no request waits for longer
				learning, then := f.seen(key, 0, learnt), f.seen(key, learnt, f.now())
				t.Logf("the first 10 s: %v; the next 20 s: %v", learning, then)
				testkit.Check(t, then.denied <= c.denied && then.slowest <= c.waits, "%v", then)
				load.stop()
				time.Sleep(5 * time.Second) // for the last reports
				f.checkBound(key, slow, 0)
			})
		})
	}
}

// says is a network that answers every call with reply.
func says(reply string) redistest.Fate {
	return redistest.Fate{Rewrite: func([]byte) []byte { return []byte(reply) }}
}

func TestRow09ATruncatedOrForeignReplyIsAnErrorAndTheConnectionEnds(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// given a process whose every token can be counted
	server, proxy := behindProxy(t)
	f := server.stock(1, 0)
	load := f.load(key, perEach)
	f.awaitAnswers(1)
	half := redistest.Fate{Rewrite: func(reply []byte) []byte { return reply[:len(reply)/2] }}
	other := says("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	ended := func(f redistest.Fate) redistest.Fate { f.Close = true; return f }
	for name, c := range map[string]struct {
		fate redistest.Fate
		is   error
	}{
		"half of it, and the end":    {ended(half), lease.ErrUnavailable},
		"half of it, and nothing":    {half, lease.ErrUnavailable},
		"HTTP, and the end":          {ended(other), lease.ErrUnavailable},
		"HTTP, and nothing":          {other, lease.ErrUnavailable},
		"more than a slice holds":    {ended(says("*9223372036854775807\r\n")), lease.ErrUnavailable},
		"a status":                   {says("+OK\r\n"), redisbucket.ErrReply},
		"a number":                   {says(":7\r\n"), redisbucket.ErrReply},
		"nil":                        {says("$-1\r\n"), lease.ErrUnavailable},
		"an empty list":              {says("*0\r\n"), redisbucket.ErrReply},
		"a list of something else":   {says("*2\r\n:1\r\n+x\r\n"), redisbucket.ErrReply},
		"a list inside of a list":    {says("*1\r\n*1\r\n:1\r\n"), redisbucket.ErrReply},
		"a map":                      {says("%1\r\n+a\r\n:1\r\n"), redisbucket.ErrReply},
		"an error that nobody knows": {says("-NONSENSE what is this\r\n"), lease.ErrUnavailable},
		"bytes that mean nothing":    {says("\x00\xff\r\n"), lease.ErrUnavailable},
		"a length that is none":      {says("*x\r\n"), lease.ErrUnavailable},
	} {
		// when the replies are replaced
		proxy.Set(c.fate)
		f.awaitFailure()
		// then the error has a type, and does not claim that nothing was executed (a call that was left
		// hanging before, or is given up before it is sent, may end in between, with another one)
		var err error
		testkit.Eventually(t, name+": an error of its own kind", func() bool {
			err = f.heard().err
			return errors.Is(err, c.is) && !errors.Is(err, lease.ErrRefused)
		})
		proxy.Pass()
		testkit.Check(t, errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrPermanent),
			"%s: %v", name, err)
		testkit.Check(t, strings.Contains(err.Error(), `"k"`), "%s: no key in %v", name, err)
		// and later replies belong to their calls
		f.awaitAnswers(1)
	}
	load.stop()
	// and nothing was drawn twice or lost
	f.check()
}

func TestRow23ForgottenScriptsAreSentAgainAndRunOnce(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// given a fleet under load on a bucket that does not refill
	server := start(t)
	f := server.stock(size, time.Minute)
	load := f.load(key, perEach)
	// when the server forgets the scripts fifty times, each time after it was called again
	for range 50 {
		before := f.stats().Calls
		server.do("SCRIPT", "FLUSH")
		testkit.Eventually(t, "another call", func() bool { return f.stats().Calls > before })
	}
	load.stop()
	// then every token is accounted for, no call failed, and each was executed exactly once
	f.check()
	h, executed := f.heard(), f.state(key).Counter
	testkit.Check(t, h.failed == 0 && executed == h.sent, "%d executed of %+v", executed, h)
}
