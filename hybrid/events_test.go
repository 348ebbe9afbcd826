package hybrid_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
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
			l.TryAllow(key)
			l.Stats()
		}
		heard.locked(func() { heard.lines = append(heard.lines, key+": "+fmt.Sprintf(format, args...)) })
	}
	cfg.Events = hybrid.Events{
		Degraded:  func(key string, err error) { say(key, "degraded %t", errors.Is(err, lease.ErrUnavailable)) },
		Recovered: func(key string, after time.Duration) { say(key, "recovered after %v", after) },
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

// An outage of a key has an event when it begins, with the cause, and one when it ends, with the
// duration. A hook may use the Limiter.
func TestEventsTellAnOutageOfAKey(t *testing.T) {
	bubble(t, func(t *world) {
		l, heard := t.listening(of(hybrid.PerSecond(1000)))
		must(t, l.Allow("k"), "denied")
		heard.says(t)
		t.every(away)
		time.Sleep(ttl)
		for range 5 {
			l.TryAllow("k")
			l.AllowN("k", 1000) // fails, and is probed
			time.Sleep(ttl)
		}
		equal(t, l.Stats().Degraded, 1, "keys degraded")
		heard.says(t, "k: degraded true")
		t.every(verdict{})
		l.Allow("k")
		time.Sleep(5 * ttl)
		l.Allow("k")
		synctest.Wait()
		heard.locked(func() {
			must(t, len(heard.lines) == 1, "told %q", heard.lines)
			text, ok := strings.CutPrefix(heard.lines[0], "k: recovered after ")
			after, err := time.ParseDuration(text)
			check(t, ok && err == nil && after >= 4*ttl && after <= 12*ttl, "told %q, %v", heard.lines, err)
		})
		equal(t, l.Stats().Degraded, 0, "keys degraded")
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
		equal(t, l.Stats().Voided, heard.lost(hybrid.LossVoid), "voided")
		t.every(verdict{})
		time.Sleep(time.Minute) // the key has left the table
		st := l.Stats()
		check(t, st.Keys == 0 && st.Voided == heard.lost(hybrid.LossVoid), "%+v", st)
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
		cfg.Events.Degraded = func(key string, _ error) { hook(key, "degraded", time.Second) }
		cfg.Events.Recovered = func(key string, _ time.Duration) { hook(key, "recovered", 0) }
		l := t.start(cfg)
		t.every(away)
		ask := inTurn(2, func(i int) { l.Allow(fmt.Sprint(i)) })
		t.every(verdict{})
		t.lasts(0, 0, func() {
			ask()
			for i := range 2 {
				l.TryAllow(fmt.Sprint(i))
				l.Stats()
			}
		})
		time.Sleep(5 * time.Second)
		t.locked(func() {
			must(t, len(told) == 4, "told %q", told)
			for i := range 2 {
				key := fmt.Sprint(i)
				check(t, slices.Index(told, key+" degraded") < slices.Index(told, key+" recovered"), "told %q", told)
			}
		})
	})
}

// readings counts how often a clock is read.
type readings struct {
	clock.Clock
	n atomic.Int64
}

func (r *readings) Now() clock.Instant {
	r.n.Add(1)
	return r.Clock.Now()
}

// Every method calls the Denied hook on the goroutine of the request. That costs the call alone: a
// denial by Allow reads no clock, takes no lock and allocates nothing, as without a hook.
func TestDeniedIsToldAndDoesNotSlowDenials(t *testing.T) {
	bubble(t, func(t *world) {
		var times, tokens int64
		clock := &readings{Clock: clock.System()}
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
		before := clock.n.Load()
		times, tokens = 0, 0
		const often = 1000
		for range often {
			check(t, !k.Allow() && !l.Allow("k"), "admitted")
		}
		check(t, times == 2*often && tokens == 2*often, "told %d times of %d tokens", times, tokens)
		equal(t, clock.n.Load()-before, 0, "times the clock was read")
		equal(t, testing.AllocsPerRun(often, func() { k.Allow() }), 0, "allocations")
		denied := l.Stats().Denied
		times, tokens = 0, 0
		_, err := l.Take(t.Context(), "k", 1)
		noErr(t, err)
		_, err = k.Take(t.Context(), 2)
		noErr(t, err)
		check(t, !l.TryAllow("k") && !k.TryAllow() && !l.AllowN("k", 3) && !k.AllowN(3), "admitted")
		check(t, times == 6 && tokens == 11 && l.Stats().Denied == denied+11,
			"told %d times of %d tokens", times, tokens)
	})
}
