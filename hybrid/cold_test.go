package hybrid_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
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
				equal(t, admits(3, 0, func() bool { return l.Key("k").TryAllow() }), 3*want, "of 3 admitted")
			})
			time.Sleep(11 * time.Millisecond)
			check(t, l.Key("k").TryAllow(), "the call in the background brought nothing")
			// 50 in all, however they were admitted.
			time.Sleep(time.Second)
			equal(t, drain(l, "k"), int64(50-1-3*want), "admitted")
			// A waiting request does not change the answer of TryAllow.
			wait := background(func() { l.Wait(t.Context(), "other") })
			synctest.Wait()
			equal(t, l.Key("other").TryAllow(), want == 1, "while another request waits")
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

// router is the store as one that knows from the start which node serves a key: always the same.
func (t *world) router() *nodesOf {
	c, only := t.cluster(), func(string, int) int { return 0 }
	c.moved.Store(&only)
	return c
}

// cutOff starts a process that has used "k" together with another one, and then lost the store. No
// probe is due for a while.
func (t *world) cutOff(cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	other, l := t.startOn(t.router(), cfg), t.startOn(t.router(), cfg)
	for range 2 { // in line, as a key at rest does not report other holders
		noErr(t, other.Wait(t.Context(), "k"))
		noErr(t, l.Wait(t.Context(), "k"))
	}
	t.every(away)
	t.soon(time.Second, func() bool {
		r, err := l.Take(t.Context(), "k", 1)
		return err == nil && r.Source == hybrid.SourceFallback
	})
	for range 100 { // a TTL lies between two probes in the end
		l.Key("k").TryAllow()
		time.Sleep(20 * time.Millisecond)
	}
	return l
}

func TestAnUnheardKeyIsDecidedWithoutAnEntry(t *testing.T) {
	for fallback, want := range map[hybrid.Fallback]int64{
		hybrid.FallbackDeny: 0, hybrid.FallbackLocalShare: 50, hybrid.FallbackAllowAll: 70,
	} {
		bubbleOf(t, fallback, func(t *world) {
			// Given a process that is cut off, and keys of which it has never heard
			cfg := by(hybrid.Policy{Fallback: fallback, TTL: time.Minute}, hybrid.PerMinute(100))
			var denials atomic.Int64
			cfg.Events.Denied = func(string, int64) { denials.Add(1) }
			l := t.cutOff(cfg)
			before := l.Stats()
			told := denials.Load()
			// when they are asked for by every verb that does not wait in line,
			for i := range 10 {
				key, admitted := fmt.Sprint("new ", i), int64(0)
				r, err := l.Take(t.Context(), key, 20)
				admitted += r.Taken
				check(t, err == nil && r.OK == (want > 0) && r.Source == hybrid.SourceFallback, "%+v, %v", r, err)
				r, err = l.Key(key).TakeUpTo(t.Context(), 20)
				admitted += r.Taken
				noErr(t, err)
				for range 30 {
					if l.Key(key).TryAllow() {
						admitted++
					}
				}
				// then the fallback decides,
				equal(t, admitted, want, "admitted of 70")
				r, err = l.Take(t.Context(), key, 1)
				check(t, err == nil && r.OK == (want == 70) && (r.OK || r.RetryAfter > 0) &&
					r.Limit == hybrid.PerMinute(100), "%+v, %v", r, err)
			}
			// all of it is counted, and no key is in use for it.
			st := conserved(t, l)
			asked, got := int64(710), st.Fallback-before.Fallback
			least := want*10 + want/70*10
			equal(t, got, least, "admitted")
			equal(t, st.Denied-before.Denied, asked-got, "denied")
			check(t, (denials.Load() > told) == (want < 70), "%d denials are told of", denials.Load()-told)
			equal(t, st.InUse, before.InUse, "in use")
			keys := 10
			if want == 0 {
				keys = 0
			}
			equal(t, st.Keys-before.Keys, keys, "keys")
			// TakeUpTo asks for no more than there can be, so that what it is denied can be counted.
			r, err := l.Key("all").TakeUpTo(t.Context(), math.MaxInt64)
			upTo := map[int64]int64{0: 0, 50: 50, 70: 100}[want]
			check(t, err == nil && r.Taken == upTo, "%+v, %v", r, err)
			equal(t, conserved(t, l).Denied-st.Denied, 100-upTo, "denied")
		})
	}
}

func TestAnUnheardKeyIsToldOnlyWithItsNextUse(t *testing.T) {
	bubble(t, func(t *world) {
		// Given keys that the fallback has served while the store was away
		l := t.cutOff(by(hybrid.Policy{TTL: time.Minute}, hybrid.PerMinute(100)))
		for i := range 10 {
			must(t, l.AllowN(fmt.Sprint("new ", i), 20), "denied")
		}
		// when it is back,
		t.every(verdict{})
		t.soon(5*time.Minute, func() bool {
			r, err := l.Take(t.Context(), "k", 1)
			return err == nil && r.Source != hybrid.SourceFallback
		})
		for range 10 { // the node is left alone no longer
			l.Allow("k")
			time.Sleep(100 * time.Millisecond)
		}
		// then none of them makes a call,
		equal(t, t.callsFor("new 0"), 0, "calls for an unused key")
		// one that is used tells what was admitted,
		l.AllowN("new 1", 1)
		time.Sleep(time.Second)
		b := t.state("new 1")
		check(t, b.Levels[0]+b.Ledger <= 90, "the bucket has %d and %d leased", b.Levels[0], b.Ledger)
		// and those that are not are forgotten when their shares are full.
		time.Sleep(2 * time.Minute)
		l.Allow("k")
		check(t, l.Stats().Keys <= 2, "%d keys are still there", l.Stats().Keys)
		must(t, l.Allow("new 2"), "denied")
		last := t.last()
		equal(t, protocol.Reported(last.Late, lease.LateDebt), 0, "owed")
	})
}

func TestAWindowOfAnUnheardKey(t *testing.T) {
	bubble(t, func(t *world) {
		// Given a process that is cut off, and a new key with a window
		l := t.cutOff(by(hybrid.Policy{TTL: time.Minute}, hybrid.Sliding(20, 10*time.Second)))
		bound := newMeter(hybrid.Sliding(10, 10*time.Second))
		// when it is asked for all the time, then its share is never more than its part of the window
		n := admits(30_000, time.Millisecond, func() bool { return bound.admitIf(l.Key("new").TryAllow()) })
		bound.check(t)
		check(t, n >= 20, "%d admitted in 30 s", n)
	})
}

func TestShadowAndJoinsOfUnheardKeys(t *testing.T) {
	bubbleOf(t, "shadow", func(t *world) {
		l := t.cutOff(by(hybrid.Policy{
			Shadow: true, Fallback: hybrid.FallbackDeny, TTL: time.Minute,
		}, hybrid.PerMinute(100)))
		before := l.Stats()
		r, err := l.Take(t.Context(), "new", 3)
		check(t, err == nil && r.OK && r.Shadowed && l.Allow("new"), "%+v, %v", r, err)
		st := l.Stats()
		check(t, st.Shadowed-before.Shadowed == 4 && st.Denied == before.Denied && st.Invalid == 0, "%+v", st)
	})
	bubbleOf(t, "join", func(t *world) {
		l := t.cutOff(by(hybrid.Policy{TTL: time.Minute}, hybrid.PerMinute(100)))
		j := l.Join(l.Key("new 1"), l.Key("new 2"))
		before := l.Stats()
		n := admits(60, 0, j.Allow)
		st := conserved(t, l)
		check(t, n == 50 && st.Denied-before.Denied == 10,
			"%d of 60 admitted, %d denied", n, st.Denied-before.Denied)
	})
}

func TestAFloodOfNewKeysInAnOutageIsSmall(t *testing.T) {
	for fallback := range hybrid.Fallback(3) {
		bubbleOf(t, fallback, func(t *world) {
			l := t.cutOff(by(hybrid.Policy{Fallback: fallback, TTL: 10 * time.Minute}, hybrid.PerHour(1000)))
			names := make([]string, testkit.ShortOrLong(t, 20_000, 100_000, "keys"))
			for i := range names {
				names[i] = fmt.Sprintf("a name of 24 bytes %05d", i)
			}
			before := heapInUse()
			for _, name := range names {
				l.Allow(name)
			}
			each := float64(heapInUse()-before) / float64(len(names))
			t.Logf("%.0f bytes a key", each)
			check(t, each <= testkit.PlainOrRace(300.0, 400), "%.0f bytes a key", each)
			runtime.KeepAlive(names)
		})
	}
}

// Honest keys are back soon after a flood of new ones: those make no calls.
func TestAFloodOfNewKeysDelaysNobodyAfterAnOutage(t *testing.T) {
	bubble(t, func(t *world) {
		// Given honest keys, and a flood of new ones while the store hangs
		l := t.startOn(t.router(), by(hybrid.Policy{}, hybrid.PerMinute(100)))
		honest := make([]string, 100)
		for i := range honest {
			honest[i] = fmt.Sprint("honest ", i)
			noErr(t, l.Wait(t.Context(), honest[i]))
		}
		t.hangs()
		for i := range 20_000 {
			l.Key(fmt.Sprint("new ", i)).TryAllow()
			l.Key(honest[i%len(honest)]).TryAllow()
			time.Sleep(500 * time.Microsecond)
		}
		inUse := l.Stats().InUse
		check(t, inUse < 1000, "%d keys are in use", inUse)
		// when it answers again, then the honest keys are back within 2.5 s,
		t.setJudge(nil)
		_, calls := t.during(func() {
			t.lasts(0, 2500*time.Millisecond, func() {
				for _, key := range honest {
					for {
						r, err := l.Take(t.Context(), key, 1)
						if noErr(t, err); r.Source != hybrid.SourceFallback {
							break
						}
						time.Sleep(time.Millisecond)
					}
				}
			})
		})
		// and next to no call is for the others.
		check(t, calls < 1000, "%d calls", calls)
	})
}
