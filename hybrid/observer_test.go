package hybrid_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// recorder records the events of a Limiter, in order. Every hook uses the Limiter, as it may.
type recorder struct {
	*network // its lock guards what follows
	lines    []string
	burnt    map[hybrid.LossReason]int64
	limiter  atomic.Pointer[hybrid.Limiter]
}

// listening is a process whose events are kept.
func (t *world) listening(cfg hybrid.Config) (*hybrid.Limiter, *recorder) {
	t.Helper()
	heard := &recorder{network: t.network, burnt: make(map[hybrid.LossReason]int64)}
	say := func(key, format string, args ...any) {
		if l := heard.limiter.Load(); l != nil {
			l.Key(key).TryAllow()
			l.Stats()
		}
		heard.locked(func() { heard.lines = append(heard.lines, key+": "+fmt.Sprintf(format, args...)) })
	}
	cfg.Events = hybrid.Events{
		NodeAway: func(node string, err error) {
			say("k", "node %s away %t", node, errors.Is(err, lease.ErrUnavailable))
		},
		NodeBack:  func(node string, after time.Duration) { say("k", "node %s back after %v", node, after) },
		KeyFailed: func(key string, err error) { say(key, "failed %t", errors.Is(err, lease.ErrKey)) },
		Lost: func(key string, n int64, reason hybrid.LossReason) {
			say(key, "lost %s", reason)
			heard.locked(func() { heard.burnt[reason] += n })
		},
		Conflict:      func(key string, stored []hybrid.Limit) { say(key, "conflict %v", stored) },
		LimitsChanged: func(key string, l []hybrid.Limit) { say(key, "limits %v", l) },
	}
	l := t.start(cfg)
	heard.limiter.Store(l)
	return l, heard
}

// says checks the events since its last call.
func (h *recorder) says(t *world, want ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	h.locked(func() {
		got, h.lines = h.lines, nil
	})
	check(t, slices.Equal(got, want), "told %q, want %q", got, want)
}

// lost returns the number of tokens that events reported as lost for this reason.
func (h *recorder) lost(reason hybrid.LossReason) (n int64) {
	synctest.Wait()
	h.locked(func() { n = h.burnt[reason] })
	return n
}

// A key whose calls fail on a node that is well has an event of its own, once.
func TestEventsTellAKeyThatFails(t *testing.T) {
	bubble(t, func(t *world) {
		l, heard := t.listening(by(denying, hybrid.PerSecond(1000)))
		must(t, l.Allow("k") && l.Allow("other"), "denied")
		time.Sleep(time.Second)
		t.onKeys("k", verdict{err: fmt.Errorf("%w: %w", lease.ErrUnavailable, lease.ErrKey)})
		for range 20 {
			l.Allow("k")
			check(t, l.Allow("other"), "a key of a node that is well is denied")
			time.Sleep(ttl / 4)
		}
		heard.says(t, "k: failed true")
		st := l.Stats()
		check(t, st.Degraded == 1 && len(st.Nodes) == 1 && st.Nodes[0].Away == 0, "%+v", st)
	})
}

// An event reports each burnt token and the cause: the bucket has forgotten the lease, or it has ended.
func TestEventsTellWhatIsLost(t *testing.T) {
	bubble(t, func(t *world) {
		l, heard := t.listening(by(hybrid.Policy{MinBatch: 50}, hybrid.PerSecond(1000)))
		must(t, l.Allow("k"), "denied")
		held := l.Stats().Held
		must(t, held > 0, "nothing is held")
		t.loseAll()
		time.Sleep(ttl)
		heard.says(t, "k: lost void")
		equal(t, heard.lost(hybrid.LossVoid), held, "lost with the bucket")
		time.Sleep(2 * ttl) // the new bucket refills
		admits(200, 2*time.Millisecond, func() bool { return l.Allow("k") })
		held = l.Stats().Held
		must(t, held > 0, "nothing is held")
		t.hangs()
		time.Sleep(2 * ttl)
		equal(t, heard.lost(hybrid.LossExpired), held, "lost with the lease")
		equal(t, heard.lost(hybrid.LossExpired)+heard.lost(hybrid.LossVoid), l.Stats().Burnt, "lost")
		equal(t, l.Stats().UnknownToBucket, heard.lost(hybrid.LossVoid), "voided")
		t.every(verdict{})
		time.Sleep(time.Minute) // the key has left the table
		st := l.Stats()
		check(t, st.Keys == 0 && st.UnknownToBucket == heard.lost(hybrid.LossVoid), "%+v", st)
	})
}

// A limit that is nearly used is told of once: by the process whose call has brought it so far, be it by a
// draw, by a request that waits for a call, or by a lease in advance.
func TestEventsTellWhatIsNearlyUsed(t *testing.T) {
	for _, limit := range []hybrid.Limit{
		hybrid.PerHour(100), hybrid.Sliding(100, time.Hour), hybrid.Calendar(100, time.Hour, 0),
	} {
		for ask, wait := range map[string]time.Duration{"seldom": 2 * time.Second, "at once": 0} {
			bubbleOf(t, fmt.Sprint(limit, ", asked ", ask), func(t *world) {
				// Given a fleet that has used less than the share of a key's limit,
				var told []string
				var shares []float64
				cfg := of(limit, hybrid.PerSecond(1000))
				cfg.Events.NearlyUsed = func(key string, l hybrid.Limit, share float64) {
					told, shares = append(told, fmt.Sprint(key, " ", l)), append(shares, share)
				}
				ls := t.fleet(3, cfg)
				use := func(n int) {
					for i := range n {
						ls[i%3].Allow("k")
						time.Sleep(wait)
					}
					synctest.Wait()
				}
				use(65)
				must(t, len(told) == 0, "told %v early", told)
				// when all of it is used, then one of them tells so, once;
				use(40)
				time.Sleep(time.Second)
				must(t, slices.Equal(told, []string{fmt.Sprint("k ", limit)}), "told %v", told)
				check(t, shares[0] >= 0.8 && shares[0] < 0.9, "at %v", shares[0])
				// and again when it was full in between.
				time.Sleep(61 * time.Minute)
				use(150)
				check(t, len(told) == 2, "told %v", told)
			})
		}
	}
}

// A bucket that is used up all the time is told of once in the time in which it fills, for each limit and
// key, and a limit that admits nothing or everything is not.
func TestNearlyUsedDoesNotRepeatItself(t *testing.T) {
	bubble(t, func(t *world) {
		told := map[string]int{}
		cfg := hybrid.Config{LimitsFor: plans(func(key string) []hybrid.Limit {
			return map[string][]hybrid.Limit{
				"a": {hybrid.PerSecond(10)}, "b": {hybrid.PerMinute(60)}, "c": {hybrid.Blocked}, "d": {hybrid.Unlimited},
				"e": {hybrid.PerMinute(60)},
			}[key]
		})}
		cfg.Events.NearlyUsed = func(key string, _ hybrid.Limit, _ float64) { told[key]++ }
		l := t.start(cfg)
		for range 30_000 {
			for _, key := range []string{"a", "b", "c", "d"} {
				l.Allow(key)
			}
			time.Sleep(time.Millisecond)
		}
		// One whose level goes to and fro across the share passes it with each request.
		must(t, l.AllowN("e", 47), "denied")
		for range 50 {
			l.Allow("e")
			time.Sleep(time.Second)
		}
		for key, most := range map[string]int{"a": 31, "b": 1, "c": 0, "d": 0, "e": 1} {
			check(t, told[key] <= most && (told[key] > 0) == (most > 0), "%q: told %d times, want 1 to %d", key,
				told[key], most)
		}
	})
}

// Events report limits that replace the known ones: limits of another process under the same
// version, and limits set here or elsewhere.
func TestEventsTellOtherLimits(t *testing.T) {
	bubble(t, func(t *world) {
		other := t.process(hybrid.PerSecond(500))
		must(t, other.Allow("k"), "denied")
		l, heard := t.listening(of(hybrid.PerSecond(1000)))
		must(t, l.Allow("k"), "denied")
		stored := fmt.Sprint(limits(hybrid.PerSecond(500)))
		heard.says(t, "k: limits "+stored, "k: conflict "+stored)
		noErr(t, other.SetLimits(t.Context(), "k", hybrid.PerSecond(200)))
		admits(4, ttl/4, func() bool { return l.Allow("k") })
		heard.says(t, "k: limits "+fmt.Sprint(limits(hybrid.PerSecond(200))))
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerMinute(300)))
		synctest.Wait()
		l.Allow("k")
		heard.says(t, "k: limits "+fmt.Sprint(limits(hybrid.PerMinute(300))))
		time.Sleep(2 * time.Second) // the key goes to rest, and comes back with what it knew
		must(t, l.Stats().InUse == 0 && l.Stats().Keys == 1, "%+v", l.Stats())
		l.Allow("k")
		heard.says(t)
	})
}

// A slow hook delays later events, which keep their order, and no request.
func TestASlowHookHoldsUpNoRequest(t *testing.T) {
	bubble(t, func(t *world) {
		var told []string
		cfg := by(denying, hourly)
		hook := func(key, what string, takes time.Duration) {
			time.Sleep(takes)
			t.locked(func() { told = append(told, key+" "+what) })
		}
		cfg.Events.NodeAway = func(node string, _ error) { hook(node, "away", time.Second) }
		cfg.Events.NodeBack = func(node string, _ time.Duration) { hook(node, "back", 0) }
		l := t.startOn(t.cluster(), cfg)
		t.every(away)
		ask := inTurn(2, func(i int) { l.Allow(fmt.Sprint(i)) })
		t.every(verdict{})
		t.lasts(0, 0, func() {
			ask()
			for i := range 2 {
				l.Key(fmt.Sprint(i)).TryAllow()
				l.Stats()
			}
		})
		time.Sleep(ttl)
		for i := range 2 {
			l.Allow(fmt.Sprint(i))
		}
		time.Sleep(5 * time.Second)
		t.locked(func() {
			must(t, len(told) == 4, "told %q", told)
			for i := range 2 {
				node := fmt.Sprint("node ", i)
				check(t, slices.Index(told, node+" away") < slices.Index(told, node+" back"), "told %q", told)
			}
		})
	})
}

// Every method calls the Denied hook on the goroutine of the request. That costs the call alone: a
// denial by Allow reads no clock, takes no lock and allocates nothing, as without a hook.
func TestDeniedIsToldAndDoesNotSlowDenials(t *testing.T) {
	bubble(t, func(t *world) {
		var times, tokens int64
		clock := &watchedClock{}
		cfg := of(hourly)
		cfg.Clock = clock
		cfg.Events.Denied = func(key string, n int64) {
			if key == "k" {
				times++
			}
			tokens += n
		}
		l := t.drained(cfg)
		k := l.Key("k")
		k.Allow()
		synctest.Wait()
		before := clock.reads.Load()
		times, tokens = 0, 0
		const often = 1000
		for range often {
			check(t, !k.Allow() && !l.Allow("k"), "admitted")
		}
		check(t, times == 2*often && tokens == 2*often, "told %d times of %d tokens", times, tokens)
		equal(t, clock.reads.Load()-before, 0, "times the clock was read")
		equal(t, testing.AllocsPerRun(often, func() { k.Allow() }), 0, "allocations")
		denied := l.Stats().Denied
		times, tokens = 0, 0
		_, err := l.Take(t.Context(), "k", 1)
		noErr(t, err)
		_, err = k.Take(t.Context(), 2)
		noErr(t, err)
		check(t, !l.Key("k").TryAllow() && !k.TryAllow() && !l.AllowN("k", 3) && !k.AllowN(3), "admitted")
		check(t, times == 6 && tokens == 11 && l.Stats().Denied == denied+11,
			"told %d times of %d tokens", times, tokens)
	})
}

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
		l, out := t.logging(t, by(hybrid.Policy{Target: 100 * time.Millisecond},
			hybrid.PerSecond(1000).WithBurst(10)))
		for _, key := range []string{"k", "k2", "k3", "k4", "k5", "k"} {
			l.Allow(key)
			time.Sleep(time.Second)
		}
		logs(t, out, 1, "Target capped", "overcommit_needed=70", "other limits under the same version")
		check(t, l.Stats().Conflicts == 1, "%+v", l.Stats())
	})
}

// Round trips that are long for want of CPU, as only some are, are no reason to advise a larger burst.
func TestALackOfCPUIsNotTakenForALongWay(t *testing.T) {
	bubble(t, func(t *world) {
		l, out := t.logging(t, by(hybrid.Policy{}, hybrid.PerSecond(1000).WithBurst(100)))
		var calls atomic.Int64
		t.setJudge(func(*lease.Call) verdict {
			return verdict{delay: time.Duration(1+calls.Add(1)%3*30) * time.Millisecond}
		})
		admits(2000, time.Millisecond, func() bool { return l.Allow("k") })
		must(t, l.Stats().RTT > 50*time.Millisecond, "round trips take %v", l.Stats().RTT)
		logs(t, out, 0, "burst too small")
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
					l.Key(fmt.Sprint(i, "\n", strings.Repeat("x", 300))).TryAllow()
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
		// The store is away for more than a second: the log says so once, and why;
		t.every(verdict{err: fmt.Errorf("%w: no route", lease.ErrUnavailable)})
		ask(3, crowd)
		began := lines(2)
		check(t, strings.Contains(began[0], "no route"), "%s", began[0])
		must(t, strings.Contains(began[0], "lease calls fail") && strings.Contains(began[0], "node=0"), "%s", began[0])
		for _, line := range began {
			check(t, len(line) <= 500, "a line of %d bytes: %.600s", len(line), line)
		}
		// and once when it is over, and how long it took.
		t.every(verdict{})
		ask(3, crowd)
		ended := lines(1)
		for _, part := range []string{"lease calls succeed again", "node=0", "after="} {
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

// A process that starts while the store is away, and denies or admits everything, says that this is why,
// and which setting decides.
func TestTheLogSaysWhatDecidesBeforeTheStoreWasHeard(t *testing.T) {
	for start, says := range map[hybrid.ColdStart]string{
		hybrid.ColdStartDeny:  `cold_start="denies every request`,
		hybrid.ColdStartAllow: `cold_start="admits every request`,
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

func TestASecondOutageIsLoggedToo(t *testing.T) {
	bubbleOf(t, "an outage that an operator must end", func(t *world) {
		l, out := t.logging(t, by(hybrid.Policy{}, hybrid.PerSecond(1000)))
		t.every(away)
		admits(5, ttl, func() bool { return l.Allow("k") })
		logs(t, out, 1, "lease calls fail")
		t.every(verdict{err: errors.Join(lease.ErrUnavailable, lease.ErrPermanent)})
		admits(50, ttl, func() bool { return l.Allow("k") })
		logs(t, out, 2, "lease calls fail")
		logs(t, out, 1, "permanent error")
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
		t.every(verdict{err: errors.Join(lease.ErrUnavailable, lease.ErrKey)})
		for _, key := range keys {
			l.Allow(key)
			time.Sleep(11 * time.Second) // or the log does not repeat itself
		}
		synctest.Wait()
		for line := range strings.Lines(out.String()) {
			check(t, strings.HasPrefix(line, "time=") &&
				!strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x00\r\n") && utf8.ValidString(line),
				"a key broke out of the log: %q", line)
		}
		must(t, strings.Count(out.String(), "key=") >= len(keys), "a key is not in the log: %s", out.String())
	})
}

// The text of a server reaches the log and the events on one line, without control characters, and bounded.
func TestAServersTextIsBoundedAndEscaped(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := by(denying, hourly)
		var events []string
		cfg.Events.NodeAway = func(_ string, err error) {
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

// An outage is the node's: one line in the log when it begins and one when it ends, and the same in Stats and
// Events, with one new key a second, with a key in use, and where no key is left in use.
func TestAnOutageIsTheNodes(t *testing.T) {
	keys := map[string]func(second int) string{
		"a new key each second": func(second int) string { return fmt.Sprint("payment ", second) },
		"a hot key":             func(int) string { return "hot" },
		"a key that rests":      func(int) string { return "" },
	}
	for name, keyOf := range keys {
		for _, p := range []hybrid.Policy{denying, {}} {
			bubbleOf(t, fmt.Sprint(name, ", ", p.Fallback), func(t *world) {
				// Given a process that the store has answered,
				cfg := by(p, hybrid.PerSecond(10).WithBurst(20))
				var events []string
				cfg.Events.NodeAway = func(node string, err error) {
					t.locked(func() { events = append(events, fmt.Sprint(node, " away: ", err)) })
				}
				cfg.Events.NodeBack = func(node string, after time.Duration) {
					t.locked(func() { events = append(events, fmt.Sprint(node, " back after ", after)) })
				}
				l, out := t.logging(t.cluster(), cfg)
				ask := func(second int) {
					if key := keyOf(second); key != "" {
						l.Allow("1" + key)
					}
				}
				must(t, l.Allow("1hot"), "denied")
				time.Sleep(time.Second)
				denied := l.Stats().Denied
				// when a node of it dies for a minute,
				t.every(verdict{err: fmt.Errorf("%w: connection refused", lease.ErrUnavailable)})
				l.Allow("1first")
				for second := range 60 {
					ask(second)
					time.Sleep(time.Second)
				}
				// then Stats names the node, for how long it is away, why, and the denials for that reason,
				st := l.Stats()
				must(t, len(st.Nodes) == 1, "%+v", st)
				n := st.Nodes[0]
				check(t, n.Node == "node 1" && n.Away == time.Minute && n.Err != nil &&
					strings.Contains(n.Err.Error(), "connection refused"), "%+v", n)
				check(t, st.FallbackDenied == st.Denied-denied && n.FallbackDenied == st.FallbackDenied &&
					n.Fallback == st.Fallback, "%d denied before, %+v", denied, st)
				if p.Fallback == hybrid.FallbackDeny {
					check(t, st.FallbackDenied > 0 && st.Fallback == 0, "%+v", st)
				}
				logs(t, out, 1, "lease calls fail", "node=\"node 1\"", "connection refused")
				logs(t, out, 0, "lease calls succeed again")
				// and the first answer ends it, everywhere.
				t.every(verdict{})
				time.Sleep(time.Second)
				for second := range 5 {
					l.Allow(fmt.Sprint("1last ", second))
					time.Sleep(time.Second)
				}
				logs(t, out, 1, "lease calls fail", "lease calls succeed again")
				check(t, !strings.Contains(out.String(), "after=-"), "%s", out)
				st = l.Stats()
				check(t, len(st.Nodes) == 1 && st.Nodes[0].Away == 0 && st.Nodes[0].Err == nil && st.Degraded == 0,
					"%+v", st)
				synctest.Wait()
				t.locked(func() {
					check(t, len(events) == 2 && strings.HasPrefix(events[0], "node 1 away: ") &&
						strings.HasPrefix(events[1], "node 1 back after 1m"), "%q", events)
				})
			})
		}
	}
}

// Limiters on one Store have one line of an outage together. One without requests hears that it is over.
func TestLimitersOnAStoreShareItsOutages(t *testing.T) {
	bubble(t, func(t *world) {
		// Given nine Limiters with two loggers, all of which find out that the store is away,
		var out bytes.Buffer
		handler := slog.NewTextHandler(&out, nil)
		loggers := []*slog.Logger{slog.New(handler), slog.New(handler)}
		store := t.cluster()
		var ls []*hybrid.Limiter
		for i := range 9 {
			cfg := by(denying, hybrid.PerSecond(10))
			cfg.Name, cfg.Logger = fmt.Sprint("limiter", i), loggers[i%2]
			ls = append(ls, t.startOn(store, cfg))
		}
		t.every(away)
		for range 10 {
			for _, l := range ls {
				l.Allow("1")
			}
			time.Sleep(time.Second)
		}
		logs(t, &out, 2, "lease calls fail") // one by each logger
		for _, l := range ls {
			st := l.Stats()
			must(t, len(st.Nodes) == 1 && st.Nodes[0].Away > 9*time.Second && st.FallbackDenied == 10, "%+v", st)
		}
		// when one of them is answered, then it is over for all.
		t.every(verdict{})
		time.Sleep(time.Second)
		ls[3].Allow("1")
		time.Sleep(time.Second)
		must(t, ls[3].Allow("1"), "denied")
		logs(t, &out, 2, "lease calls succeed again")
		for _, l := range ls {
			check(t, l.Stats().Nodes[0].Away == 0, "%+v", l.Stats())
		}
	})
}

// A Limiter made in an outage of its Store says the same as those that were there before it.
func TestALimiterMadeInAnOutageKnowsOfIt(t *testing.T) {
	bubble(t, func(t *world) {
		store := t.cluster()
		cfg := by(denying, hybrid.PerSecond(10))
		finds := t.startOn(store, cfg)
		t.every(away)
		check(t, !finds.Allow("1:0"), "admitted without the store")
		var events []string
		cfg.Events.NodeAway = func(node string, _ error) { t.locked(func() { events = append(events, node+" away") }) }
		cfg.Events.NodeBack = func(node string, _ time.Duration) {
			t.locked(func() { events = append(events, node+" back") })
		}
		late := t.startOn(store, cfg)
		time.Sleep(time.Second)
		st := late.Stats()
		check(t, len(st.Nodes) == 1 && st.Nodes[0].Node == "node 1" && st.Nodes[0].Away == time.Second,
			"%+v", st.Nodes)
		t.every(verdict{})
		admits(8, ttl/4, func() bool { return finds.Allow("1:0") })
		synctest.Wait()
		t.locked(func() { check(t, slices.Equal(events, []string{"node 1 away", "node 1 back"}), "%q", events) })
	})
}

// A handler of the log may ask for the Stats of an outage, and one that blocks holds up no request.
func TestASlowLogHoldsUpNoOtherLimiter(t *testing.T) {
	bubble(t, func(t *world) {
		store := t.cluster()
		cfg := by(denying, hybrid.PerSecond(10))
		cfg.Name = "reads"
		var reads *hybrid.Limiter
		var once sync.Once
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				once.Do(func() {
					check(t, reads.Stats().Nodes[0].Away > 0, "not away in its own line")
					time.Sleep(time.Hour)
				})
				return a
			},
		}))
		reads = t.startOn(store, cfg)
		cfg.Name, cfg.Logger = "other", nil
		other := t.startOn(store, cfg)
		t.every(away)
		go reads.Allow("1:0")
		time.Sleep(time.Minute)
		t.lasts(0, 100*time.Millisecond, func() { check(t, !other.Allow("1:0"), "admitted without the store") })
		t.lasts(0, 0, func() { check(t, other.Stats().Nodes[0].Away > 0, "%+v", other.Stats()) })
		time.Sleep(time.Hour)
	})
}

// A bucket that the store has lost is said, also where the keys rest between their requests.
func TestTheLogSaysThatABucketIsLost(t *testing.T) {
	for _, pause := range []time.Duration{ttl / 8, 4 * time.Second} {
		bubbleOf(t, fmt.Sprint("a request every ", pause), func(t *world) {
			l, out := t.logging(t, by(denying, hybrid.PerHour(100)))
			use := func() { admits(10, pause, func() bool { return l.Allow("k") }) }
			use()
			logs(t, out, 0, "bucket lost")
			t.loseAll()
			use()
			logs(t, out, 1, "bucket lost by the store", "grants_nothing_for=", "key=k")
		})
	}
}

// An outage whose line is put off is logged although the Limiter that found it has closed.
func TestAnOutageOutlivesTheLimiterThatFoundIt(t *testing.T) {
	bubble(t, func(t *world) {
		// Given two Limiters on one Store, and an outage that is over,
		store := t.cluster()
		cfg := by(denying, hybrid.PerSecond(10))
		cfg.Name = "finds"
		finds := t.startOn(store, cfg)
		cfg.Name = "stays"
		stays, out := t.logging(store, cfg)
		ask := func(l *hybrid.Limiter) { admits(8, ttl/4, func() bool { return l.Allow("1") }) }
		t.every(away)
		ask(finds)
		t.every(verdict{})
		ask(finds)
		logs(t, out, 1, "lease calls fail", "lease calls succeed again")
		// when the first one finds another outage soon after, and closes,
		t.every(away)
		ask(finds)
		noErr(t, finds.Close())
		// then the other one's log has it.
		time.Sleep(20 * time.Second)
		logs(t, out, 2, "lease calls fail")
		t.every(verdict{})
		ask(stays)
		logs(t, out, 2, "lease calls succeed again")
	})
}
