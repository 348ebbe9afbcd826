package hybrid_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// What an operator should know is logged, and once.
func TestTheLogSaysOnceWhatTheLimitsDo(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given a network that is slow beside a small burst, and a process that was deployed with other limits
		// under the same version,
		s.every(verdict{delay: 20 * time.Millisecond})
		first := start(t, s, of(hybrid.PerSecond(1000).WithBurst(500)))
		must(t, first.Allow("k"), "denied")
		var out bytes.Buffer
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000).WithBurst(10)), Logger: slog.New(slog.NewTextHandler(&out, nil))})
		// when it is used,
		for _, key := range []string{"k", "k2", "k3", "k"} {
			l.Allow(key)
			time.Sleep(time.Second)
		}
		// then the log says each thing once, with the cure.
		synctest.Wait()
		for _, want := range []string{"Target reduced", "overcommit=70", "same version with other limits"} {
			if n := strings.Count(out.String(), want); n != 1 {
				t.Errorf("%q is there %d times in\n%s", want, n, out.String())
			}
		}
		check(t, l.Stats().Conflicts == 1, "%+v", l.Stats())
	})
}

// An outage is one line when it begins and one when it ends, however many keys there are and
// however long they are.
func TestAnOutageIsLoggedOnceAndNotForEachKey(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given 5,000 keys in use, with names of 300 bytes,
		var out bytes.Buffer
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Logger: slog.New(slog.NewTextHandler(&out, nil))})
		ask := func(from, to int) {
			for i := from; i < to; i++ {
				l.TryAllow(fmt.Sprint(i, "\n", strings.Repeat("x", 300)))
			}
			time.Sleep(ttl)
		}
		lines := func() []string {
			synctest.Wait()
			defer out.Reset()
			return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		}
		ask(0, 5000)
		must(t, out.Len() <= 0, "%s", out.String())
		// when the store is away for more than a second,
		s.every(verdict{err: fmt.Errorf("%w: nobody there", lease.ErrUnavailable)})
		for range 3 {
			ask(0, 5000)
		}
		// then the log says so once, for how many, and why;
		began := lines()
		check(t, len(began) <= 2 && strings.Contains(began[0], "lease calls fail") && strings.Contains(began[0], "nobody there"),
			"%d lines: %.2000s", len(began), began)
		var keys int
		if _, err := fmt.Sscanf(began[0][strings.Index(began[0], "keys="):], "keys=%d", &keys); err != nil || keys < 4000 {
			t.Errorf("%d keys, %v: %s", keys, err, began[0])
		}
		for _, line := range began {
			check(t, len(line) <= 500, "a line of %d bytes: %.600s", len(line), line)
		}
		// and once when it is over, and how long it took.
		s.every(verdict{})
		for range 3 {
			ask(0, 5000)
		}
		ended := lines()
		check(t, len(ended) == 1 && strings.Contains(ended[0], "lease calls succeed again") && strings.Contains(ended[0], "keys=5000") && strings.Contains(ended[0], "after="),
			"%d lines: %.2000s", len(ended), ended)
		// And when a call is lost now and then, it is not worth a line for each.
		n := 0
		s.setJudge(func(*lease.Call) (v verdict) {
			if n++; n%20 == 0 {
				v.err = lease.ErrUnavailable
			}
			return v
		})
		for range 60 {
			ask(0, 100)
		}
		some := lines()
		check(t, len(some) <= 20, "%d lines in half a minute of lost calls: %.2000s", len(some), some)
		// And when every bucket is lost, that is one thing and not 5,000.
		s.every(verdict{})
		ask(0, 5000)
		lines()
		s.replace(lease.NewMemoryStore(nil))
		for range 2 {
			ask(0, 5000)
		}
		lost := lines()
		check(t, len(lost) <= 2, "%d lines: %.2000s", len(lost), lost)
	})
}

// What somebody must mend is told beside what is just away.
func TestAPermanentFailureIsToldBesideAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		var out bytes.Buffer
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Logger: slog.New(slog.NewTextHandler(&out, nil))})
		s.setJudge(func(c *lease.Call) verdict {
			if c.Key == "damaged" {
				return verdict{err: errors.Join(lease.ErrUnavailable, lease.ErrPermanent)}
			}
			return verdict{err: lease.ErrUnavailable}
		})
		l.Allow("damaged")
		l.Allow("k")
		time.Sleep(ttl)
		synctest.Wait()
		n := strings.Count(out.String(), "lease calls fail")
		check(t, n == 2, "%d lines:\n%s", n, out.String())
	})
}

// An outage that begins soon after another is logged too, if it lasts.
func TestAnOutageSoonAfterAnotherIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		var out bytes.Buffer
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Logger: slog.New(slog.NewTextHandler(&out, nil))})
		for _, span := range []time.Duration{time.Second, time.Minute} {
			s.every(verdict{err: lease.ErrUnavailable})
			for from := time.Now(); time.Since(from) < span; time.Sleep(ttl) {
				l.Allow("k")
			}
			s.every(verdict{})
			for range 5 {
				l.Allow("k")
				time.Sleep(ttl)
			}
		}
		synctest.Wait()
		for _, line := range []string{"lease calls fail", "lease calls succeed again"} {
			if n := strings.Count(out.String(), line); n != 2 {
				t.Errorf("%q is there %d times in\n%s", line, n, out.String())
			}
		}
	})
}
