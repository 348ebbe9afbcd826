package hybrid_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Those who come while a key's first call is under way wait for it or share the next one.
func TestConcurrentColdStartsShareCalls(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given a store 10 ms away and a key that nobody has used,
		s.every(verdict{delay: 10 * time.Millisecond})
		l := start(t, s, of(hybrid.PerSecond(1000)))
		var ok atomic.Int64
		var wg sync.WaitGroup
		// when five hundred ask for it at once,
		d := took(func() {
			for range 500 {
				wg.Go(func() {
					if l.Allow("k") {
						ok.Add(1)
					}
				})
			}
			wg.Wait()
		})
		// then all are admitted, in two round trips at most.
		_, calls := s.counts()
		check(t, calls <= 2 && d <= 25*time.Millisecond, "%d calls, %v", calls, d)
		check(t, ok.Load() == 500, "%d of 500 admitted", ok.Load())
	})
}

// TryAllow before the first reply answers what Policy.ColdStart says, at once, and starts the call.
func TestTryAllowOnAColdKey(t *testing.T) {
	for _, c := range []struct {
		policy hybrid.ColdStart
		want   bool
	}{{hybrid.ColdStartDeny, false}, {hybrid.ColdStartAllow, true}} {
		bubble(t, func(t *testing.T, s *faultyStore) {
			s.every(verdict{delay: 10 * time.Millisecond})
			l := start(t, s, by(hybrid.Policy{ColdStart: c.policy}, hybrid.PerHour(50)))
			for range 3 {
				var got bool
				d := took(func() { got = l.TryAllow("k") })
				check(t, got == c.want && d == 0, "policy %v: %v after %v", c.policy, got, d)
			}
			time.Sleep(11 * time.Millisecond)
			check(t, l.TryAllow("k"), "policy %v: the call in the background brought nothing", c.policy)
			// What was admitted without tokens is repaid: 50 in all, however they were admitted.
			time.Sleep(time.Second)
			want := int64(49)
			if c.want {
				want -= 3
			}
			n := drain(l, "k")
			check(t, n == want, "policy %v: %d admitted, want %d; %+v", c.policy, n, want, l.Stats())
		})
	}
}

// Allow on a cold key waits CallTimeout and not longer; then ColdStart decides.
func TestAllowOnAColdKeyWhileTheStoreHangs(t *testing.T) {
	for _, c := range []struct {
		policy hybrid.ColdStart
		want   bool
	}{{hybrid.ColdStartDeny, false}, {hybrid.ColdStartAllow, true}} {
		bubble(t, func(t *testing.T, s *faultyStore) {
			hang := make(chan struct{})
			s.every(verdict{late: hang})
			l := start(t, s, hybrid.Config{
				Limits: limits(hybrid.PerHour(50)), CallTimeout: 40 * time.Millisecond,
				Policy: hybrid.Policy{ColdStart: c.policy},
			})
			var got bool
			d := took(func() { got = l.Allow("k") })
			check(t, got == c.want && d <= 40*time.Millisecond && d >= 30*time.Millisecond,
				"policy %v: %v after %v", c.policy, got, d)
			// The debt is repaid once the store is back, though nobody asks any more.
			close(hang)
			time.Sleep(5 * time.Second)
			want := int64(50)
			if c.want {
				want--
			}
			s.has(t, "k", want, 0)
		})
	}
}

// A request whose context ends stops waiting; the tokens drawn for it go back.
func TestTakeHonoursItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		s.every(verdict{delay: 50 * time.Millisecond})
		l := start(t, s, of(hourly))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		// Given a request of 5 on a cold key,
		var r hybrid.Result
		var err error
		// when its context ends before the reply,
		d := took(func() { r, err = l.Take(ctx, "k", 5) })
		// then it says so at once,
		check(t, !r.OK && errors.Is(err, context.DeadlineExceeded) && d == 20*time.Millisecond,
			"%+v, %v after %v", r, err, d)
		// and soon all ten tokens are there again, without anybody asking.
		time.Sleep(time.Second)
		s.has(t, "k", 10, 0)
		// An ended context never takes anything.
		_, err = l.Take(ctx, "k", 1)
		isErr(t, err, context.DeadlineExceeded)
		cause, cancelCause := context.WithCancelCause(t.Context())
		cancelCause(hybrid.ErrInvalidN)
		_, err = l.Take(cause, "k", 1)
		check(t, errors.Is(err, context.Canceled) && errors.Is(err, hybrid.ErrInvalidN),
			"%v, want both the context's error and its cause", err)
	})
}

// Result says what the decision rests on and when to come back.
func TestTakeSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerSecond(10), hybrid.PerMinute(60)))
		r, err := l.Take(t.Context(), "k", 4)
		check(t, err == nil && r.OK && r.Source == hybrid.SourceStore && r.Remaining == 6 &&
			r.Limit == hybrid.PerSecond(10) && r.RetryAfter == 0,
			"first: %+v, %v", r, err)
		r, err = l.Take(t.Context(), "k", 8)
		check(t, err == nil && !r.OK && r.Limit == hybrid.PerSecond(10) &&
			r.RetryAfter >= 200*time.Millisecond && r.RetryAfter <= 250*time.Millisecond,
			"8 of 6: %+v, %v", r, err)
	})
}

// Somebody who waits on a cold key does not change what TryAllow answers there.
func TestTryAllowOnAColdKeyBesideAWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		s.every(verdict{delay: 50 * time.Millisecond})
		l := start(t, s, by(hybrid.Policy{ColdStart: hybrid.ColdStartAllow}, hybrid.PerSecond(10)))
		wait := background(func() { l.Wait(t.Context(), "k") })
		synctest.Wait()
		check(t, l.TryAllow("k"), "ColdStartAllow, and TryAllow denied before the first reply")
		wait()
	})
}

var errDialling = errors.New("the port is far away")

// distant is a store behind a link, for virtual time: calls wait until there is a connection.
type distant struct {
	*lease.MemoryStore
	trip, handshake time.Duration
	pingErr         error

	opening   chan bool // held by whoever opens the connection
	connected bool
}

func (d *distant) connect(ctx context.Context) (took time.Duration, err error) {
	d.opening <- true
	defer func() { <-d.opening }()
	if d.connected {
		return 0, nil
	}
	select {
	case <-time.After(d.handshake):
		d.connected = true
		return d.handshake, nil
	case <-ctx.Done():
		return 0, lease.ErrUnavailable
	}
}

// Exchange implements lease.Store.
func (d *distant) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	for _, c := range calls {
		c.Node = 0
		c.SetUnsent(errDialling)
	}
	took, err := d.connect(ctx)
	for _, c := range calls {
		c.Before, c.Err = took, err
		c.SetUnsent(nil)
	}
	if err != nil || !pause(ctx, nil, d.trip) {
		done(calls)
		return
	}
	d.MemoryStore.Exchange(ctx, calls, done)
}

// Ping implements lease.Pinger.
func (d *distant) Ping(ctx context.Context) error {
	if d.pingErr != nil {
		return d.pingErr
	}
	_, err := d.connect(ctx)
	return err
}

// loggedOn is a limiter on d, and what it logs.
func loggedOn(t *testing.T, d *distant) (*hybrid.Limiter, *bytes.Buffer) {
	t.Helper()
	d.MemoryStore, d.opening = lease.NewMemoryStore(nil), make(chan bool, 1)
	var out bytes.Buffer
	return start(t, d, logging(&out, denying, hybrid.PerSecond(1000))), &out
}

// denials is how many are denied of one request every 10 ms for a minute.
func denials(l *hybrid.Limiter) int {
	return 6000 - admits(6000, 10*time.Millisecond, func() bool { return l.Allow("k") })
}

func TestAHandshakeLongerThanCallTimeoutIsNoOutageAndNoRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given a link of 50 ms, whose handshake takes 300,
		d := &distant{trip: 50 * time.Millisecond, handshake: 300 * time.Millisecond}
		l, out := loggedOn(t, d)
		// when a process starts,
		denied := denials(l)
		// then only the requests that came before there was a connection are denied: each after
		// CallTimeout, so 4 at most;
		check(t, denied <= 4, "%d of 6000 denied", denied)
		// nothing has failed,
		synctest.Wait()
		s := l.Stats()
		check(t, s.Errors == 0 && out.Len() == 0, "%d errors\n%s", s.Errors, out)
		// and the handshake is not taken for the network's delay, which would make leases last
		// longer.
		st, err := d.MemoryStore.Configure(t.Context(), "k", lease.OpInspect, lease.Config{})
		check(t, err == nil && st.Config.TTL == 400*time.Millisecond,
			"leases last %v, %v", st.Config.TTL, err)
	})
}

func TestAfterAPingTheFirstRequestIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &distant{trip: 50 * time.Millisecond, handshake: 300 * time.Millisecond}
		l, _ := loggedOn(t, d)
		noErr(t, l.Ping(t.Context()))
		equal(t, denials(l), 0, "of 6000 denied")
	})
}

func TestAConnectionThatNeverComesIsAnOutageThatSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given a port that swallows everything,
		l, out := loggedOn(t, &distant{handshake: time.Hour})
		begun := time.Now()
		// when requests come, then each of the first waits at most CallTimeout,
		for range 6 {
			d := took(func() { check(t, !l.Allow("k"), "admitted") })
			check(t, d <= 100*time.Millisecond, "waited %v", d)
		}
		// and none does any more once five CallTimeouts have passed;
		time.Sleep(time.Until(begun.Add(501 * time.Millisecond)))
		d := took(func() { check(t, !l.Allow("k"), "admitted") })
		check(t, d == 0, "waited %v", d)
		// and the log says why, when it has counted who is concerned.
		time.Sleep(time.Second)
		synctest.Wait()
		check(t, strings.Contains(out.String(), errDialling.Error()), "%v", out)
	})
}

func TestPingSaysWhyThereIsNoConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		d := &distant{pingErr: lease.ErrPermanent}
		l, _ := loggedOn(t, d)
		isErr(t, l.Ping(t.Context()), hybrid.ErrUnavailable, lease.ErrPermanent)
		// It ends with its context,
		d.pingErr, d.handshake = nil, time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		err := l.Ping(ctx)
		check(t, errors.Is(err, hybrid.ErrUnavailable) && time.Since(begun) == time.Second,
			"%v after %v", err, time.Since(begun))
		isErr(t, l.Ping(ctx), context.DeadlineExceeded)
		// and with the Limiter.
		time.AfterFunc(time.Second, func() { l.Close() })
		isErr(t, l.Ping(t.Context()), hybrid.ErrUnavailable)
		isErr(t, l.Ping(t.Context()), hybrid.ErrClosed)
		// A store without connections has nothing to warm.
		noErr(t, start(t, s, of(hybrid.PerSecond(1))).Ping(t.Context()))
	})
}
