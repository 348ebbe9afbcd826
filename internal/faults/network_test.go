package faults

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
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

// TestEachCallIsDrawnForOnce is rows 3 to 6 and 23: whatever the network and the server do, a call is drawn
// for once, however often it was sent, and a reply is good for one call.
func TestEachCallIsDrawnForOnce(t *testing.T) {
	testkit.LongOnly(t)
	sent := func(h heard) int64 { return h.sent }
	lose := func(fate redistest.Fate) func(*site, *redistest.Proxy, stock) {
		return func(_ *site, proxy *redistest.Proxy, f stock) {
			for range 5 {
				proxy.Set(fate)
				f.awaitFailure()
				proxy.Pass()
				f.awaitAnswers(3)
			}
		}
	}
	type story struct {
		callTimeout time.Duration
		meets       func(*site, *redistest.Proxy, stock)
	}
	each(t, map[string]story{
		"Row03 a hung server executes calls later": {0, func(s *site, _ *redistest.Proxy, f stock) {
			s.Hang(s.t)
			f.awaitCalls("calls to a server that hangs", 3, sent)
			s.Resume(s.t)
			f.awaitAnswers(2)
		}},
		"Row04 replies are lost":  {0, lose(redistest.Fate{LoseReply: true})},
		"Row05 requests are lost": {0, lose(redistest.Fate{DropRequest: true})},
		"Row06 replies come twice": {0, func(_ *site, proxy *redistest.Proxy, f stock) {
			proxy.Set(redistest.Fate{Rewrite: func(reply []byte) []byte { return bytes.Repeat(reply, 2) }})
			f.awaitAnswers(10)
			proxy.Pass()
		}},
		"Row06 a reply comes after that of the retry": {time.Second, func(_ *site, proxy *redistest.Proxy, f stock) {
			release := proxy.Hold()
			defer release()
			f.awaitCalls("calls without answer", 1, sent)
			proxy.Pass()
			f.awaitAnswers(2)
			release()
			f.awaitAnswers(2)
		}},
		"Row23 the scripts are forgotten": {time.Minute, func(s *site, _ *redistest.Proxy, f stock) {
			for range 50 {
				before := f.stats().Calls
				s.do("SCRIPT", "FLUSH")
				testkit.Eventually(s.t, "another call", func() bool { return f.stats().Calls > before })
			}
			failed := f.heard().failed
			testkit.Check(s.t, failed == 0, "%d calls failed", failed)
		}},
	}, func(t *testing.T, c story) {
		// given a fleet whose every token can be counted
		server, proxy := behindProxy(t)
		f := server.stock(size, c.callTimeout)
		load := f.load(key, perEach)
		f.awaitAnswers(1)
		// when something happens to its calls
		c.meets(server, proxy, f)
		load.stop()
		// then nothing was drawn twice or lost
		f.check()
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
