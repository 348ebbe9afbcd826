package hybrid_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// logging starts a process on s, and returns its log.
func (t *world) logging(s lease.Store, cfg hybrid.Config) (*hybrid.Limiter, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	return t.startOn(s, cfg), &out
}

// logs checks how often the log says something.
func logs(t *world, out *bytes.Buffer, times int, what ...string) {
	t.Helper()
	synctest.Wait()
	for _, w := range what {
		n := strings.Count(out.String(), w)
		check(t, n == times, "%q is there %d times in\n%s", w, n, out)
	}
}

// The log warns an operator of each condition once.
func TestTheLogSaysOnceWhatTheLimitsDo(t *testing.T) {
	bubble(t, func(t *world) {
		// The network is slow for a small burst, and limits differ under the same version.
		t.every(verdict{delay: 20 * time.Millisecond})
		must(t, t.process(hybrid.PerSecond(1000).WithBurst(500)).Allow("k"), "denied")
		l, out := t.logging(t, by(hybrid.Policy{}, hybrid.PerSecond(1000).WithBurst(10)))
		for _, key := range []string{"k", "k2", "k3", "k"} {
			l.Allow(key)
			time.Sleep(time.Second)
		}
		logs(t, out, 1, "Target capped", "overcommit=70", "other limits under the same version")
		check(t, l.Stats().Conflicts == 1, "%+v", l.Stats())
	})
}

// An outage is one line when it begins and one when it ends, however many keys there are and
// however long they are.
func TestAnOutageIsLoggedOnceAndNotForEachKey(t *testing.T) {
	crowd := testkit.ShortOrLong(t, 500, 5000/testkit.Slowdown, "keys")
	bubble(t, func(t *world) {
		l, out := t.logging(t, by(hybrid.Policy{}, hybrid.PerSecond(1000)))
		ask := func(times, keys int) {
			for range times {
				for i := range keys {
					l.TryAllow(fmt.Sprint(i, "\n", strings.Repeat("x", 300)))
				}
				time.Sleep(ttl)
			}
		}
		lines := func(most int) []string {
			t.Helper()
			synctest.Wait()
			defer out.Reset()
			got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			must(t, len(got) <= most, "%d lines, want %d at most: %.2000s", len(got), most, out.String())
			return got
		}
		ask(1, crowd)
		synctest.Wait()
		must(t, out.Len() == 0, "%s", out.String())
		// The store is away for more than a second: the log says so once, for how many, and why;
		t.every(verdict{err: fmt.Errorf("%w: no route", lease.ErrUnavailable)})
		ask(3, crowd)
		began := lines(2)
		check(t, strings.Contains(began[0], "no route"), "%s", began[0])
		must(t, strings.Contains(began[0], "lease calls fail"), "%s", began[0])
		var keys int
		_, err := fmt.Sscanf(began[0][strings.Index(began[0], "keys="):], "keys=%d", &keys)
		check(t, err == nil && keys >= crowd*4/5, "%d keys, %v: %s", keys, err, began[0])
		for _, line := range began {
			check(t, len(line) <= 500, "a line of %d bytes: %.600s", len(line), line)
		}
		// and once when it is over, and how long it took.
		t.every(verdict{})
		ask(3, crowd)
		ended := lines(1)
		for _, part := range []string{"lease calls succeed again", fmt.Sprint("keys=", crowd), "after="} {
			check(t, strings.Contains(ended[0], part), "%q is missing in %s", part, ended[0])
		}
		// And when a call is lost now and then for half a minute, it is not worth a line for each.
		n := 0
		t.setJudge(func(*lease.Call) (v verdict) {
			if n++; n%20 == 0 {
				v = away
			}
			return v
		})
		ask(60, 100)
		lines(20)
		// And when every bucket is lost, that is one thing and not thousands.
		t.every(verdict{})
		ask(1, crowd)
		lines(20)
		t.loseAll()
		ask(2, crowd)
		lines(2)
	})
}

// A key that is asked once and then rests tells of an outage as well as one that is asked on.
func TestAnOutageIsLoggedWhereItsKeysRest(t *testing.T) {
	bubble(t, func(t *world) {
		// Given a process whose keys rest sooner than an outage is worth a line,
		p := denying
		p.TTL = 400 * time.Millisecond
		cfg := by(p, hybrid.PerSecond(1000))
		cfg.CallTimeout = 5 * time.Second
		l, out := t.logging(t, cfg)
		must(t, l.Allow("k"), "denied")
		// when the store goes away, and a key is asked once,
		t.every(away)
		l.Allow("k")
		time.Sleep(3 * time.Second)
		must(t, l.Stats().InUse == 0, "it is still in use: %+v", l.Stats())
		// then the log says so;
		time.Sleep(3 * time.Second)
		logs(t, out, 1, "lease calls fail")
		// and when the store is back, so does the first call that succeeds.
		t.every(verdict{})
		logs(t, out, 0, "lease calls succeed again")
		l.Allow("another")
		time.Sleep(time.Second)
		must(t, l.Allow("another"), "denied")
		logs(t, out, 1, "lease calls fail", "lease calls succeed again")
	})
}

// A process that starts while the store is away, and denies or admits everything, says that this is why,
// and which setting decides.
func TestTheLogSaysWhatDecidesBeforeTheStoreWasHeard(t *testing.T) {
	for start, says := range map[hybrid.ColdStart]string{
		hybrid.ColdStartDeny:  "Policy.ColdStart denies everything",
		hybrid.ColdStartAllow: "Policy.ColdStart admits everything",
	} {
		bubbleOf(t, start, func(t *world) {
			l, out := t.logging(t, by(hybrid.Policy{ColdStart: start}, hybrid.PerSecond(1000)))
			t.every(away)
			must(t, l.Allow("k") == (start == hybrid.ColdStartAllow), "Allow says the other thing")
			time.Sleep(time.Second)
			logs(t, out, 1, "lease calls fail", says)
			// In an outage after it has heard of the store, Policy.Fallback decides.
			t.every(verdict{})
			time.Sleep(time.Minute)
			l.Allow("k")
			time.Sleep(time.Minute)
			t.every(away)
			l.Allow("k")
			l.Allow("another")
			time.Sleep(time.Minute)
			logs(t, out, 2, "lease calls fail")
			logs(t, out, 1, says)
		})
	}
}

func TestASecondFailureIsLoggedToo(t *testing.T) {
	bubbleOf(t, "a permanent failure and an outage", func(t *world) {
		l, out := t.logging(t, by(hybrid.Policy{}, hybrid.PerSecond(1000)))
		t.setJudge(func(c *lease.Call) verdict {
			if c.Key == "damaged" {
				return verdict{err: errors.Join(lease.ErrUnavailable, lease.ErrPermanent)}
			}
			return away
		})
		l.Allow("damaged")
		l.Allow("k")
		time.Sleep(ttl)
		logs(t, out, 2, "lease calls fail")
	})
	bubbleOf(t, "an outage soon after another, if it lasts", func(t *world) {
		l, out := t.logging(t, by(hybrid.Policy{}, hybrid.PerSecond(1000)))
		ask := func() bool { return l.Allow("k") }
		for _, span := range []time.Duration{time.Second, time.Minute} {
			t.every(away)
			admits(int(span/ttl)+1, ttl, ask)
			t.every(verdict{})
			admits(5, ttl, ask)
		}
		logs(t, out, 2, "lease calls fail", "lease calls succeed again")
	})
}

// Any bytes but none at all are a key, a key is a key of its own whatever it looks like, and a log
// stays one line.
func TestAnyBytesAreAKeyAndQuotedInLogs(t *testing.T) {
	bubble(t, func(t *world) {
		keys := []string{"\x00", "a\r\nERROR forged", "\xff\xfe", "{", "}", "{}", "{a}b", "{a}c", "%7D", " ",
			strings.Repeat("x", 10_000), strings.Repeat("x", 10_001)}
		l, out := t.logging(t, by(denying, hybrid.PerHour(2)))
		for _, key := range keys {
			check(t, l.Allow(key) && l.Key(key).Allow() && !l.Allow(key), "%.20q has not 2 of its own", key)
		}
		time.Sleep(2 * ttl)
		t.every(away)
		for _, key := range keys {
			l.Allow(key)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for line := range strings.Lines(out.String()) {
			check(t, strings.HasPrefix(line, "time=") &&
				!strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x00\r\n") && utf8.ValidString(line),
				"a key broke out of the log: %q", line)
		}
		check(t, strings.Contains(out.String(), "key="), "no key is in the log: %s", out.String())
	})
}

// The text of a server reaches the log and the events on one line, without control characters, and bounded.
func TestAServersTextIsBoundedAndEscaped(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := by(denying, hourly)
		var events []string
		cfg.Events.Degraded = func(_ string, err error) {
			isErr(t, err, lease.ErrUnavailable)
			events = append(events, err.Error())
		}
		var texts []string // as they are, before a handler quotes them
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				texts = append(texts, a.Value.String())
				return a
			},
		}))
		l := t.start(cfg)
		t.every(verdict{err: fmt.Errorf("%w: \x1b[2J\n%s", lease.ErrUnavailable, strings.Repeat("x", 1<<20))})
		l.Allow("k")
		time.Sleep(time.Second)
		synctest.Wait()
		must(t, len(events) == 1 && slices.ContainsFunc(texts, func(s string) bool { return len(s) > 900 }),
			"%d events, %d texts", len(events), len(texts))
		for _, text := range append(events, texts...) {
			check(t, !strings.ContainsAny(text, "\x1b\n") && len(text) < 1100, "%d bytes: %.100q", len(text), text)
		}
		check(t, strings.Contains(events[0], `\x1b[2J\nxxx`), "%.100q", events[0])
	})
}
