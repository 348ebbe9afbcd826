package hybrid_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Before the first reply TryAllow answers by Policy.ColdStart at once, and starts the call. Allow does
// so after CallTimeout. Tokens admitted without a lease are repaid.
func TestBeforeTheFirstReplyColdStartDecides(t *testing.T) {
	for policy, want := range map[hybrid.ColdStart]int{hybrid.ColdStartDeny: 0, hybrid.ColdStartAllow: 1} {
		bubbleOf(t, policy, func(t *world) {
			t.every(verdict{delay: 10 * time.Millisecond})
			l := t.start(by(hybrid.Policy{ColdStart: policy}, hybrid.PerHour(50)))
			t.lasts(0, 0, func() {
				equal(t, admits(3, 0, func() bool { return l.TryAllow("k") }), 3*want, "of 3 admitted")
			})
			time.Sleep(11 * time.Millisecond)
			check(t, l.TryAllow("k"), "the call in the background brought nothing")
			// 50 in all, however they were admitted.
			time.Sleep(time.Second)
			equal(t, drain(l, "k"), int64(50-1-3*want), "admitted")
			// A waiting request does not change the answer of TryAllow.
			wait := background(func() { l.Wait(t.Context(), "other") })
			synctest.Wait()
			equal(t, l.TryAllow("other"), want == 1, "while another request waits")
			wait()
		})
		bubbleOf(t, policy, func(t *world) {
			// The first call never arrives. Were it only late, it might draw a token for a request that has
			// gone.
			first := verdict{late: make(chan struct{})}
			t.setJudge(func(*lease.Call) (fate verdict) {
				fate, first = first, fate
				return fate
			})
			cfg := by(hybrid.Policy{ColdStart: policy}, hybrid.PerHour(50))
			cfg.CallTimeout = 40 * time.Millisecond
			l := t.start(cfg)
			waits := func() { equal(t, l.Allow("k"), want == 1, "from Allow") }
			t.lasts(30*time.Millisecond, 40*time.Millisecond, waits)
			// The debt is repaid once the store is back, even without demand.
			time.Sleep(5 * time.Second)
			if want > 0 || t.state("k").Exists { // without a debt there need be no call
				t.has("k", int64(50-want), 0)
			}
		})
	}
}

var errDialling = errors.New("the port is far away")

// distant is a store behind a link, for virtual time: calls wait until there is a connection.
type distant struct {
	lease.Store
	trip, handshake time.Duration
	pingErr         error

	opening   chan bool // held while the connection is opened
	connected bool
}

func (d *distant) connect(ctx context.Context) (took time.Duration, err error) {
	d.opening <- true
	defer func() { <-d.opening }()
	if d.connected {
		return 0, nil
	}
	if !pause(ctx, nil, d.handshake) {
		return 0, lease.ErrUnavailable
	}
	d.connected = true
	return d.handshake, nil
}

// Exchange implements lease.Store.
func (d *distant) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	for _, c := range calls {
		c.Node = 0
		c.SetUnsent(errDialling)
	}
	begun := time.Now()
	took, err := d.connect(ctx)
	for _, c := range calls {
		c.Before, c.Err = took, err
		c.SetSent(time.Since(begun))
	}
	if err != nil || !pause(ctx, nil, d.trip) {
		done(calls)
		return
	}
	d.Store.Exchange(ctx, calls, done)
}

// Ping implements lease.Pinger.
func (d *distant) Ping(ctx context.Context) error {
	if d.pingErr != nil {
		return d.pingErr
	}
	_, err := d.connect(ctx)
	return err
}

// far is a limiter on d, and what it logs.
func far(t *world, d *distant) (*hybrid.Limiter, *bytes.Buffer) {
	t.Helper()
	d.Store, d.opening = t, make(chan bool, 1)
	return t.logging(d, by(denying, hybrid.PerSecond(1000)))
}

// denials is how many are denied of one request every 10 ms for a minute.
func denials(l *hybrid.Limiter) int {
	return 6000 - admits(6000, 10*time.Millisecond, func() bool { return l.Allow("k") })
}

func TestAHandshakeLongerThanCallTimeoutIsNoOutageAndNoRoundTrip(t *testing.T) {
	link := distant{trip: 50 * time.Millisecond, handshake: 300 * time.Millisecond}
	bubble(t, func(t *world) {
		// Requests from before there was a connection are denied after CallTimeout: 4 at most;
		l, out := far(t, &link)
		denied := denials(l)
		check(t, denied <= 4, "%d of 6000 denied", denied)
		synctest.Wait()
		s := l.Stats()
		check(t, s.Errors == 0 && out.Len() == 0, "%d errors\n%s", s.Errors, out)
		// and the handshake is not taken for the network's delay, which makes leases last longer.
		equal(t, t.state("k").Config.TTL, ttl, "is how long leases last")
	})
	bubble(t, func(t *world) {
		// After a Ping the first request is served.
		link.connected = false
		l, _ := far(t, &link)
		noErr(t, l.Ping(t.Context()))
		equal(t, denials(l), 0, "of 6000 denied")
	})
}

// A handshake that is over within CallTimeout leaves the answer its whole time: four round trips of
// 21 ms and the one of the call are more than CallTimeout, and nothing is wrong.
func TestAnAnswerHasItsTimeFromWhenItsCallIsSent(t *testing.T) {
	for trip := 15 * time.Millisecond; trip <= 40*time.Millisecond; trip += time.Millisecond {
		bubbleOf(t, trip, func(t *world) {
			// Given a link of that length, when the first requests come, then there is no outage.
			l, out := far(t, &distant{trip: trip, handshake: 4 * trip})
			for range 200 {
				go l.Allow("k")
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			s := l.Stats()
			check(t, s.Errors == 0 && out.Len() == 0, "%d errors\n%s", s.Errors, out)
		})
		bubbleOf(t, trip, func(t *world) {
			// And given one over which no answer comes, that is found out 15/16 of CallTimeout after the
			// call was sent.
			l, _ := far(t, &distant{trip: time.Hour, handshake: 4 * trip})
			go l.Allow("k")
			failed := 4*trip + 100*time.Millisecond*15/16
			time.Sleep(failed - time.Nanosecond)
			synctest.Wait()
			equal(t, l.Stats().Errors, 0, "errors before that")
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			equal(t, l.Stats().Errors, 1, "errors by then")
		})
	}
}

func TestNoConnectionIsAnOutageThatSaysWhy(t *testing.T) {
	bubbleOf(t, "to requests", func(t *world) {
		l, out := far(t, &distant{handshake: time.Hour})
		begun := time.Now()
		// Each of the first requests waits at most CallTimeout,
		denied := func() { check(t, !l.Allow("k"), "admitted") }
		for range 6 {
			t.lasts(0, 100*time.Millisecond, denied)
		}
		// and none does any more once five CallTimeouts have passed;
		time.Sleep(time.Until(begun.Add(501 * time.Millisecond)))
		t.lasts(0, 0, denied)
		// and the log says why.
		time.Sleep(time.Second)
		synctest.Wait()
		check(t, strings.Contains(out.String(), errDialling.Error()), "%v", out)
	})
	bubbleOf(t, "to Ping", func(t *world) {
		d := &distant{pingErr: lease.ErrPermanent}
		l, _ := far(t, d)
		isErr(t, l.Ping(t.Context()), hybrid.ErrUnavailable, lease.ErrPermanent)
		// It ends with its context,
		d.pingErr, d.handshake = nil, time.Hour
		ctx := within(t, time.Second)
		t.lasts(time.Second, time.Second, func() { isErr(t, l.Ping(ctx), hybrid.ErrUnavailable) })
		isErr(t, l.Ping(ctx), context.DeadlineExceeded)
		// and with the Limiter.
		time.AfterFunc(time.Second, func() { l.Close() })
		isErr(t, l.Ping(t.Context()), hybrid.ErrUnavailable)
		isErr(t, l.Ping(t.Context()), hybrid.ErrClosed)
		// A store without connections has nothing to warm.
		noErr(t, t.process(hybrid.PerSecond(1)).Ping(t.Context()))
	})
}
