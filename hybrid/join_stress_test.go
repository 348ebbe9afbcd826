package hybrid_test

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// Several processes, with two Limiters each, join keys and reserve tokens at random, and give up or
// cancel at any moment, on a network that loses, delays, doubles and refuses, with an outage; they
// are closed and shut down in the middle, and in half of the runs their tables are too small, so
// that keys leave between a take and its give-back. Every token stays accounted for. Where no
// fallback admits more, no key admits more than its limit in any window, and Stats counts the
// admissions that callers saw.
func TestJoinsKeepThePromiseOfEveryKey(t *testing.T) {
	seeds(t, testkit.ShortOrLong(t, 16, testkit.PlainOrRace(200, 16), "seeds"), func(t *world, seed uint64) {
		fallback := []hybrid.Fallback{hybrid.FallbackDeny, hybrid.FallbackDeny, hybrid.FallbackLocalShare,
			hybrid.FallbackAllowAll}[seed%4]
		s := newJoinStress(t, seed, fallback)
		s.run()
		if fallback == hybrid.FallbackDeny {
			s.audit()
		}
	})
}

type joinStress struct {
	*chaos // its lock guards what follows limits, too
	limits map[string]hybrid.Limit
	spans  map[string][]audit.Span
	sum    int64 // tokens that callers were admitted, of all keys
}

func newJoinStress(t *world, seed uint64, fallback hybrid.Fallback) *joinStress {
	s := &joinStress{chaos: newChaos(t, seed), spans: make(map[string][]audit.Span)}
	s.limits = map[string]hybrid.Limit{
		"a": hybrid.PerHour(1).WithBurst(20 + s.rnd.Int64N(100)),
		"b": hybrid.PerSecond(20 + s.rnd.Int64N(100)),
		"c": hybrid.PerSecond(5).WithBurst(1 + s.rnd.Int64N(20)),
		"d": hybrid.PerSecond(1000).WithBurst(50 + s.rnd.Int64N(500)),
	}
	s.cfg = by(hybrid.Policy{Fallback: fallback, StrictExpiry: s.rnd.IntN(2) == 0, MinBatch: s.rnd.Int64N(8)})
	s.cfg.Logger = slog.New(slog.DiscardHandler)
	s.cfg.LimitsFor = func(key string) []hybrid.Limit { return limits(s.limits[key]) }
	if s.rnd.IntN(2) == 0 {
		s.cfg.KeysMax = 2 // of four
	}
	s.begin(2 * (1 + s.rnd.IntN(3)))
	return s
}

func (s *joinStress) run() {
	var wg sync.WaitGroup
	for range 250 {
		at, act := time.Duration(s.rnd.Int64N(int64(8*time.Second))), s.act()
		wg.Go(func() {
			time.Sleep(at)
			act()
		})
	}
	wg.Wait()
	s.close()
}

func (s *joinStress) audit() {
	equal(s, admittedBy(s, s.all), s.sum, "admitted by Stats, with nothing of what was given back")
	for key, spans := range s.spans {
		w, err := audit.Worst(spans, audit.Of(s.limits[key], 0))
		check(s, err == nil && w.ExceededBy == 0, "key %s, %v: %+v, %v", key, s.limits[key], w, err)
	}
}

// act is something to do with some of the keys of one or two Limiters.
func (s *joinStress) act() func() {
	names := []string{"a", "b", "c", "d"}
	s.rnd.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	names = names[:1+s.rnd.IntN(4)]
	one, two := s.rnd.IntN(len(s.live)), s.rnd.IntN(len(s.live))
	from := make([]int, len(names)) // which of the two has the key
	for i := range from {
		from[i] = s.rnd.IntN(2)
	}
	n := 1 + s.rnd.Int64N(3)
	if s.rnd.IntN(4) == 0 {
		n = 1 + s.rnd.Int64N(30)
	}
	times, patience := 1+s.rnd.IntN(20), time.Duration(s.rnd.Int64N(int64(2*time.Second)))
	hold, byDeadline := time.Duration(s.rnd.Int64N(int64(3*time.Second))), s.rnd.IntN(2) == 0
	verb, cancels, settles := s.rnd.IntN(20), s.rnd.IntN(2) == 0, s.rnd.IntN(2) == 0
	return func() {
		ls := []*hybrid.Limiter{s.number(one), s.number(two)}
		keys := make([]*hybrid.Key, len(names))
		for i, name := range names {
			keys[i] = ls[from[i]].Key(name)
		}
		j := ls[0].Join(keys...)
		ctx, cancel := s.patience(patience, byDeadline)
		defer cancel()
		switch {
		case verb < 4:
			for range times {
				s.admitted(names, 1, func() bool { return j.Allow() })
			}
		case verb < 6:
			s.admitted(names, 1, j.TryAllow)
			s.admitted(names, n, func() bool { return j.AllowN(n) })
		case verb < 9:
			s.admitted(names, n, func() bool { r, _ := j.Take(ctx, n); return r.OK })
		case verb < 13:
			s.admitted(names, n, func() bool { return j.WaitN(ctx, n) == nil })
		case verb < 15:
			s.admittedUpTo(names, func() int64 { r, _ := j.TakeUpTo(ctx, n); return r.Taken })
		case verb < 19:
			var r *hybrid.Reservation
			s.admitted(names, n, func() bool {
				if r, _ = j.Reserve(ctx, n); cancels {
					time.Sleep(hold)
					r.Cancel() // leaves no trace
				}
				return r.OK() && !cancels
			})
			time.Sleep(hold)
			if settles {
				_ = r.Settle(n + 1 + int64(times)) // more, which is paid for later
			}
		case times < 4:
			s.restart(ctx, one, byDeadline)
		}
		for _, l := range ls {
			conserved(s, l)
		}
	}
}

// admitted records n tokens of every key if they are admitted between now and when ask returns.
func (s *joinStress) admitted(keys []string, n int64, ask func() bool) {
	s.admittedUpTo(keys, func() int64 {
		if ask() {
			return n
		}
		return 0
	})
}

func (s *joinStress) admittedUpTo(keys []string, ask func() int64) {
	before := wholeMicroseconds(clock.System().Now())
	n := ask()
	if n == 0 {
		return
	}
	span := audit.Span{Before: before, After: wholeMicroseconds(clock.System().Now()), N: n}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		s.spans[key] = append(s.spans[key], span)
		s.sum += n
	}
}
