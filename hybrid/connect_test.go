package hybrid_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

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

// limiterOn is a limiter on d, and what it logs.
func limiterOn(t *testing.T, d *distant) (*hybrid.Limiter, *bytes.Buffer) {
	t.Helper()
	d.MemoryStore, d.opening = lease.NewMemoryStore(nil), make(chan bool, 1)
	var out bytes.Buffer
	return start(t, d, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Logger: slog.New(slog.NewTextHandler(&out, nil)),
		Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny}}), &out
}

// ask is a minute of one request every 10 ms, and how many were denied.
func ask(l *hybrid.Limiter) (denied int) {
	for range 6000 {
		if !l.Allow("k") {
			denied++
		}
		time.Sleep(10 * time.Millisecond)
	}
	return denied
}

func TestAHandshakeLongerThanCallTimeoutIsNoOutageAndNoRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given a link of 50 ms, whose handshake takes 300,
		d := &distant{trip: 50 * time.Millisecond, handshake: 300 * time.Millisecond}
		l, out := limiterOn(t, d)
		// when a process starts,
		denied := ask(l)
		// then only the requests that came before there was a connection are denied: each after
		// CallTimeout, so 4 at most;
		check(t, denied <= 4, "%d of 6000 denied", denied)
		// nothing has failed,
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
		l, _ := limiterOn(t, d)
		noErr(t, l.Ping(t.Context()))
		denied := ask(l)
		check(t, denied == 0, "%d of 6000 denied", denied)
	})
}

func TestAConnectionThatNeverComesIsAnOutageThatSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given a port that swallows everything,
		l, out := limiterOn(t, &distant{handshake: time.Hour})
		begun := time.Now()
		// when requests come, then each of the first waits at most CallTimeout,
		for range 6 {
			asked := time.Now()
			if l.Allow("k") || time.Since(asked) > 100*time.Millisecond {
				t.Errorf("admitted, or after %v", time.Since(asked))
			}
		}
		// and none does any more once five CallTimeouts have passed;
		time.Sleep(time.Until(begun.Add(501 * time.Millisecond)))
		asked := time.Now()
		check(t, !l.Allow("k") && time.Since(asked) == 0,
			"admitted, or after %v", time.Since(asked))
		// and the log says why, when it has counted who is concerned.
		time.Sleep(time.Second)
		synctest.Wait()
		check(t, strings.Contains(out.String(), errDialling.Error()), "%v", out)
	})
}

func TestPingSaysWhyThereIsNoConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		d := &distant{pingErr: lease.ErrPermanent}
		l, _ := limiterOn(t, d)
		err := l.Ping(t.Context())
		check(t, errors.Is(err, hybrid.ErrUnavailable) && errors.Is(err, lease.ErrPermanent),
			"%v", err)
		// It ends with its context,
		d.pingErr, d.handshake = nil, time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		err = l.Ping(ctx)
		check(t, errors.Is(err, hybrid.ErrUnavailable) && time.Since(begun) == time.Second,
			"%v after %v", err, time.Since(begun))
		isErr(t, l.Ping(ctx), context.DeadlineExceeded)
		// and with the Limiter.
		time.AfterFunc(time.Second, func() { l.Close() })
		isErr(t, l.Ping(t.Context()), hybrid.ErrUnavailable)
		isErr(t, l.Ping(t.Context()), hybrid.ErrClosed)
		// A store without connections has nothing to warm.
		noErr(t, start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1))}).Ping(t.Context()))
	})
}
