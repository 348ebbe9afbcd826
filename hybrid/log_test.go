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
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// logging is a configuration whose log goes to out.
func logging(out *bytes.Buffer, p hybrid.Policy, l ...hybrid.Limit) hybrid.Config {
	return hybrid.Config{Limits: l, Policy: p, Logger: slog.New(slog.NewTextHandler(out, nil))}
}

// logs checks how often the log says something.
func logs(t *testing.T, out *bytes.Buffer, times int, what ...string) {
	t.Helper()
	synctest.Wait()
	for _, w := range what {
		n := strings.Count(out.String(), w)
		check(t, n == times, "%q is there %d times in\n%s", w, n, out)
	}
}

// What an operator should know is logged, and once.
func TestTheLogSaysOnceWhatTheLimitsDo(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given a network that is slow beside a small burst, and a process that was deployed with
		// other limits under the same version,
		s.every(verdict{delay: 20 * time.Millisecond})
		first := start(t, s, of(hybrid.PerSecond(1000).WithBurst(500)))
		must(t, first.Allow("k"), "denied")
		var out bytes.Buffer
		l := start(t, s, logging(&out, hybrid.Policy{}, hybrid.PerSecond(1000).WithBurst(10)))
		// when it is used,
		for _, key := range []string{"k", "k2", "k3", "k"} {
			l.Allow(key)
			time.Sleep(time.Second)
		}
		// then the log says each thing once, with the cure.
		logs(t, &out, 1, "Target reduced", "overcommit=70", "same version with other limits")
		check(t, l.Stats().Conflicts == 1, "%+v", l.Stats())
	})
}

// An outage is one line when it begins and one when it ends, however many keys there are and
// however long they are.
func TestAnOutageIsLoggedOnceAndNotForEachKey(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given thousands of keys in use, with names of 300 bytes,
		const crowd = 5000 / testkit.Slowdown
		var out bytes.Buffer
		l := start(t, s, logging(&out, hybrid.Policy{}, hybrid.PerSecond(1000)))
		ask := func(times, keys int) {
			for range times {
				for i := range keys {
					l.TryAllow(fmt.Sprint(i, "\n", strings.Repeat("x", 300)))
				}
				time.Sleep(ttl)
			}
		}
		lines := func() []string {
			synctest.Wait()
			defer out.Reset()
			return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		}
		ask(1, crowd)
		synctest.Wait()
		must(t, out.Len() == 0, "%s", out.String())
		// when the store is away for more than a second,
		s.every(verdict{err: fmt.Errorf("%w: nobody there", lease.ErrUnavailable)})
		ask(3, crowd)
		// then the log says so once, for how many, and why;
		began := lines()
		must(t, len(began) <= 2 && strings.Contains(began[0], "lease calls fail") &&
			strings.Contains(began[0], "nobody there"),
			"%d lines: %.2000s", len(began), began)
		var keys int
		_, err := fmt.Sscanf(began[0][strings.Index(began[0], "keys="):], "keys=%d", &keys)
		check(t, err == nil && keys >= crowd*4/5, "%d keys, %v: %s", keys, err, began[0])
		for _, line := range began {
			check(t, len(line) <= 500, "a line of %d bytes: %.600s", len(line), line)
		}
		// and once when it is over, and how long it took.
		s.every(verdict{})
		ask(3, crowd)
		ended := lines()
		check(t, len(ended) == 1, "%d lines: %.2000s", len(ended), ended)
		for _, part := range []string{"lease calls succeed again", fmt.Sprint("keys=", crowd), "after="} {
			check(t, strings.Contains(ended[0], part), "%q is missing in %s", part, ended[0])
		}
		// And when a call is lost now and then, it is not worth a line for each.
		n := 0
		s.setJudge(func(*lease.Call) (v verdict) {
			if n++; n%20 == 0 {
				v.err = lease.ErrUnavailable
			}
			return v
		})
		ask(60, 100)
		some := lines()
		check(t, len(some) <= 20, "%d lines in half a minute of lost calls: %.2000s", len(some), some)
		// And when every bucket is lost, that is one thing and not thousands.
		s.every(verdict{})
		ask(1, crowd)
		lines()
		s.replace(lease.NewMemoryStore(nil))
		ask(2, crowd)
		lost := lines()
		check(t, len(lost) <= 2, "%d lines: %.2000s", len(lost), lost)
	})
}

// What somebody must mend is told beside what is just away.
func TestAPermanentFailureIsToldBesideAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		var out bytes.Buffer
		l := start(t, s, logging(&out, hybrid.Policy{}, hybrid.PerSecond(1000)))
		s.setJudge(func(c *lease.Call) verdict {
			if c.Key == "damaged" {
				return verdict{err: errors.Join(lease.ErrUnavailable, lease.ErrPermanent)}
			}
			return away
		})
		l.Allow("damaged")
		l.Allow("k")
		time.Sleep(ttl)
		logs(t, &out, 2, "lease calls fail")
	})
}

// An outage that begins soon after another is logged too, if it lasts.
func TestAnOutageSoonAfterAnotherIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		var out bytes.Buffer
		l := start(t, s, logging(&out, hybrid.Policy{}, hybrid.PerSecond(1000)))
		ask := func() bool { return l.Allow("k") }
		for _, span := range []time.Duration{time.Second, time.Minute} {
			s.every(away)
			admits(int(span/ttl)+1, ttl, ask)
			s.every(verdict{})
			admits(5, ttl, ask)
		}
		logs(t, &out, 2, "lease calls fail", "lease calls succeed again")
	})
}
