package hybrid_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// upTo checks how many tokens of "k" TakeUpTo takes, and the rest of its answer.
func (t *world) upTo(l *hybrid.Limiter, n, want int64, source hybrid.Source) {
	t.Helper()
	before := conserved(t, l)
	r, err := l.TakeUpTo(t.Context(), "k", n)
	after := conserved(t, l)
	check(t, err == nil && r.Taken == want && r.OK == (want > 0) && r.Source == source,
		"up to %d: %+v, %v; want %d from %v", n, r, err, want, source)
	check(t, r.OK == (r.RetryAfter == 0), "RetryAfter is %v with OK %v", r.RetryAfter, r.OK)
	check(t, after.Admitted-before.Admitted == want,
		"%d are counted as admitted", after.Admitted-before.Admitted)
	n = min(n, hourly.Burst)
	check(t, after.Denied-before.Denied == n-want, "%d are counted as denied", after.Denied-before.Denied)
}

// redis_rate, AllowAtMost: as many as there are, none of which is left.
func TestTakeUpToTakesWhatThereIs(t *testing.T) {
	bubbleOf(t, "all that was asked for, and the burst at most", func(t *world) {
		l := t.process(hourly)
		t.upTo(l, 4, 4, hybrid.SourceStore)
		t.upTo(l, 100, 6, hybrid.SourceStore)
		t.upTo(l, 100, 0, hybrid.SourceLocal)
	})
	bubbleOf(t, "what others have left, with one call", func(t *world) {
		// Given a bucket of which another process has taken 7,
		must(t, t.process(hourly).AllowN("k", 7), "denied")
		l := t.process(hourly)
		_, calls := t.during(func() { t.upTo(l, 8, 3, hybrid.SourceStore) })
		equal(t, calls, 1, "calls")
		t.upTo(l, 8, 0, hybrid.SourceLocal)
		t.has("k", 0, 0)
	})
	bubbleOf(t, "what the process holds and the bucket has", func(t *world) {
		l := t.warm(of(hybrid.PerSecond(1000).WithBurst(1000)))
		held := l.Stats().Held
		r, err := l.TakeUpTo(t.Context(), "k", 1000)
		check(t, err == nil && r.Taken > held && r.Taken <= 1000, "%+v, %v; %d were held", r, err, held)
		st := t.state("k")
		check(t, st.Levels[0] == 0 && l.Stats().Held == 0, "%d are left, %+v", st.Levels[0], l.Stats())
	})
	bubbleOf(t, "what is held where the bucket has nothing", func(t *world) {
		// Given a process that holds 4, which knows that another one has taken the rest,
		l := t.start(by(hybrid.Policy{MinBatch: 5}, hourly))
		must(t, l.Allow("k") && l.Stats().Held == 4, "%+v", l.Stats())
		other := t.process(hourly)
		must(t, other.AllowN("k", 5) && !l.AllowN("k", 8), "the other one has not taken the rest")
		// then it takes them, and makes no call.
		_, calls := t.during(func() { t.upTo(l, 9, 4, hybrid.SourceLocal) })
		equal(t, calls, 0, "calls")
	})
	bubbleOf(t, "of the scarcest limit", func(t *world) {
		l := t.process(hybrid.PerHour(100), hybrid.PerHour(1).WithBurst(10))
		t.upTo(l, 50, 10, hybrid.SourceStore)
	})
	bubbleOf(t, "what comes in while it is asked for nothing", func(t *world) {
		l := t.process(hybrid.PerSecond(10).WithBurst(10))
		for range 20 {
			r, err := l.TakeUpTo(t.Context(), "k", 10)
			noErr(t, err)
			if !r.OK {
				time.Sleep(r.RetryAfter)
			}
		}
		got := l.Stats().Admitted
		check(t, got >= 19 && got <= 20, "%d of 10 and one for each wait", got)
	})
}

func TestTakeUpToDoesNotOvertake(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hybrid.PerSecond(100).WithBurst(10))
		must(t, l.AllowN("k", 10), "denied")
		wait := background(func() { noErr(t, l.WaitN(t.Context(), "k", 10)) })
		time.Sleep(50 * time.Millisecond)
		r, err := l.TakeUpTo(t.Context(), "k", 10)
		check(t, err == nil && r.Taken == 0, "it took %d before the request in line: %v", r.Taken, err)
		wait()
	})
}

func TestTakeUpToWithoutTheStore(t *testing.T) {
	for name, c := range map[string]struct {
		fallback hybrid.Fallback
		want     int64
	}{
		"nothing":   {hybrid.FallbackDeny, 0},
		"the share": {hybrid.FallbackLocalShare, 6},
		"all":       {hybrid.FallbackAllowAll, 10},
	} {
		bubbleOf(t, name, func(t *world) {
			// Given a bucket that has 6 of 10 when the store goes away,
			l := t.start(by(hybrid.Policy{Fallback: c.fallback}, hourly))
			must(t, l.AllowN("k", 4), "denied")
			t.every(away)
			t.soon(time.Second, func() bool { l.Allow("k"); return l.Stats().Errors > 0 })
			// then the fallback decides, also on more than it has.
			fallback := l.Stats().Fallback
			r, err := l.TakeUpTo(t.Context(), "k", 1000)
			noErr(t, err)
			if c.fallback == hybrid.FallbackLocalShare {
				c.want -= fallback
			}
			check(t, r.Taken == c.want && r.OK == (c.want > 0) && r.Source == hybrid.SourceFallback, "%+v", r)
			equal(t, l.Stats().Fallback-fallback, c.want, "counted as fallback")
		})
	}
	bubbleOf(t, "what is held", func(t *world) {
		// Given a process that holds 4 when it learns that the store is away,
		l := t.start(by(hybrid.Policy{MinBatch: 5, Fallback: hybrid.FallbackDeny}, hourly))
		must(t, l.Allow("k") && l.Stats().Held == 4, "%+v", l.Stats())
		t.every(away)
		must(t, !l.AllowN("k", 8) && l.Stats().Errors > 0, "%+v", l.Stats())
		// then it grants the held tokens.
		t.upTo(l, 9, 4, hybrid.SourceLocal)
		t.upTo(l, 9, 0, hybrid.SourceFallback)
	})
	bubbleOf(t, "a call that hangs", func(t *world) {
		l := t.start(by(hybrid.Policy{}, hourly))
		must(t, l.AllowN("k", 3), "denied")
		t.hangs()
		t.lasts(0, lease.DefaultCallTimeout, func() {
			r, err := l.TakeUpTo(t.Context(), "k", 9)
			check(t, err == nil && r.Taken == 7 && r.Source == hybrid.SourceFallback, "%+v, %v", r, err)
		})
	})
}

func TestTakeUpToOfWhatCannotBe(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hourly)
		for _, c := range []struct {
			ctx  context.Context
			key  string
			n    int64
			want error
		}{
			{t.Context(), "k", -1, hybrid.ErrInvalidN},
			{t.Context(), "", 1, hybrid.ErrInvalidKey},
			{ended(), "k", 1, context.Canceled},
		} {
			r, err := l.TakeUpTo(c.ctx, c.key, c.n)
			check(t, errors.Is(err, c.want) && !r.OK && r.Taken == 0, "%+v: %+v, %v", c, r, err)
		}
		r, err := l.Key("k").TakeUpTo(t.Context(), 0)
		check(t, err == nil && r.OK && r.Taken == 0, "%+v, %v", r, err)
		check(t, !t.remembers("k"), "the store remembers it")
		l.Close()
		_, err = l.TakeUpTo(t.Context(), "k", 1)
		isErr(t, err, hybrid.ErrClosed)
	})
	bubbleOf(t, "shadow", func(t *world) {
		l := t.start(by(hybrid.Policy{Shadow: true}, hourly))
		r, err := l.TakeUpTo(t.Context(), "k", 4)
		check(t, err == nil && r.Taken == 4 && !r.Shadowed, "%+v, %v", r, err)
		r, err = l.Key("k").TakeUpTo(t.Context(), 9)
		check(t, err == nil && r.OK && r.Taken == 9 && r.Shadowed, "%+v, %v", r, err)
	})
}
