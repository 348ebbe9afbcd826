package hybrid_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// Several limiters do everything at random - every verb and class, of keys alone and of joined ones,
// changes of limits, restarts - on a network that loses, delays, doubles and refuses, with an outage.
// Every token stays accounted for, every call returns, and in the end every Limiter serves.
func TestNothingIsLostOrForgedWhateverHappens(t *testing.T) {
	runs := testkit.ShortOrLong(t, 25, testkit.PlainOrRace(150, 25), "seeds")
	seeds(t, runs, func(t *world, seed uint64) {
		s := newChaos(t, seed, hybrid.Fallback(seed%3))
		s.changes()
		s.run()
		s.serves()
		s.close()
	})
}

// Where no limit changes and no fallback admits more, no key admits more than its limit in any window
// besides, and Stats counts the admissions that callers saw. In half of the runs the tables are too
// small, so that keys leave between a take and its give-back.
func TestJoinsKeepThePromiseOfEveryKey(t *testing.T) {
	seeds(t, testkit.ShortOrLong(t, 10, testkit.PlainOrRace(150, 10), "seeds"), func(t *world, seed uint64) {
		s := newChaos(t, seed, hybrid.FallbackDeny)
		s.run()
		s.close()
		equal(t, admittedBy(t, s.all), s.sum, "admitted by Stats, with nothing of what was given back")
		for key, spans := range s.spans {
			w, err := audit.Worst(spans, audit.Of(s.limits[key], 0))
			check(t, err == nil && w.ExceededBy == 0, "key %s, %v: %+v, %v", key, s.limits[key], w, err)
		}
	})
}

// Waits that are cancelled at any moment - in the queue, half gathered, while the call is under way,
// with the reply, or in the moment of success - give back everything: in the end each bucket lacks
// exactly the admitted tokens. So it is for one key, and for several that are joined.
func TestCancelledWaitsLeakNothing(t *testing.T) {
	seeds(t, testkit.ShortOrLong(t, 40, testkit.PlainOrRace(400, 40), "seeds"), func(t *world, seed uint64) {
		// Given processes on a network that is slow and uneven and loses nothing, and buckets that hardly
		// refill,
		s := newChaos(t, seed, hybrid.FallbackDeny)
		s.calm()
		// when all do everything but end, and settle for more,
		s.run()
		// (In half an hour what is held goes back, and half a token flows: what comes back is credited
		// without what may have flowed since it was drawn, which is less than that.)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		// then each bucket lacks what was admitted of its key.
		for key, spans := range s.spans {
			left := s.limits[key].Burst
			for _, span := range spans {
				left -= span.N
			}
			st := t.state(key)
			equal(t, st.Levels[0]+st.Ledger, left, "left of "+key)
		}
		equal(t, admittedBy(t, s.all), s.sum, "admitted, by Stats")
	})
}

// chaos is a world of Limiters that end and begin at random, on a bad network.
type chaos struct {
	*world
	rnd    *rand.Rand
	cfg    hybrid.Config
	limits map[string]hybrid.Limit
	deeds  int  // how many of deeds there are
	change bool // whether limits change, and classes are asked for
	settle bool // whether a reservation may cost more

	mu        sync.Mutex
	live, all []*hybrid.Limiter
	spans     map[string][]audit.Span
	sum       int64 // tokens that callers were admitted, of all keys
}

func newChaos(t *world, seed uint64, fallback hybrid.Fallback) *chaos {
	s := &chaos{world: t, rnd: rand.New(rand.NewPCG(seed, 1)), spans: make(map[string][]audit.Span),
		deeds: untilRestart + 1, settle: true}
	t.setJudge(badNetwork(rand.New(rand.NewPCG(seed, 2))))
	s.limits = map[string]hybrid.Limit{
		"a": hybrid.PerHour(1).WithBurst(20 + s.rnd.Int64N(100)),
		"b": hybrid.PerSecond(20 + s.rnd.Int64N(100)),
		"c": hybrid.PerSecond(5).WithBurst(1 + s.rnd.Int64N(20)),
		"d": hybrid.PerSecond(1000).WithBurst(50 + s.rnd.Int64N(500)),
	}
	s.cfg = by(hybrid.Policy{Fallback: fallback, StrictExpiry: s.rnd.IntN(2) == 0, MinBatch: s.rnd.Int64N(8)})
	s.cfg.Logger = slog.New(slog.DiscardHandler)
	s.cfg.LimitsFor = plans(func(key string) []hybrid.Limit { return limits(s.limits[key]) })
	if s.rnd.IntN(2) == 0 {
		s.cfg.KeysMax = 2 // of four
	}
	return s
}

// changes has limits change, and settings that admit more than a limit.
func (s *chaos) changes() {
	s.change, s.deeds = true, len(deeds)
	s.cfg.Limits = limits(hybrid.PerSecond(50).WithBurst(30), hybrid.PerHour(100))
	s.cfg.Policy.ColdStart = hybrid.ColdStart(s.rnd.IntN(2))
	s.cfg.Name = []string{"", "login"}[s.rnd.IntN(2)]
	if s.rnd.IntN(2) == 0 {
		s.limits["c"] = s.limits["c"].WithBurst(10)
		s.cfg.Priorities = []float64{0.1, 0.4}
	}
	if s.rnd.IntN(8) == 0 {
		s.cfg.Scope = hybrid.ScopeProcess
	}
	if s.rnd.IntN(2) == 0 {
		s.cfg.LimitsFor = plans(func(key string) []hybrid.Limit { // which changes twice a second
			return [][]hybrid.Limit{nil, limits(s.limits[key])}[time.Now().UnixMilli()/500%2]
		})
	}
}

// calm has no limit change, no process end and no call fail, and buckets hardly refill.
func (s *chaos) calm() {
	s.deeds, s.settle, s.cfg.KeysMax = untilRestart, false, 0
	for _, key := range []string{"a", "b", "c", "d"} {
		s.limits[key] = hybrid.PerHour(1).WithBurst(100 + s.rnd.Int64N(400))
	}
	rnd := rand.New(rand.NewPCG(s.rnd.Uint64(), 1))
	s.setJudge(func(*lease.Call) verdict {
		return verdict{delay: time.Duration(rnd.Int64N(int64(30 * time.Millisecond)))}
	})
}

func (s *chaos) run() {
	s.live = s.fleet(1+s.rnd.IntN(6), s.cfg)
	s.all = slices.Clone(s.live)
	var wg sync.WaitGroup
	for range 300 {
		at, act := time.Duration(s.rnd.Int64N(int64(8*time.Second))), s.act()
		wg.Go(func() {
			time.Sleep(at)
			act()
		})
	}
	wg.Wait()
}

// serves checks that all are served when the network is well again and all have been idle for a while.
func (s *chaos) serves() {
	s.setJudge(nil)
	time.Sleep(10 * time.Second)
	for key := range s.limits {
		noErr(s, s.live[0].SetLimits(s.Context(), key, hybrid.PerSecond(1000)))
		for _, l := range s.live {
			err := l.Key(key).WaitN(s.Context(), 5)
			for tries := 0; isOneOf(err, hybrid.ErrTableFull, hybrid.ErrExceedsBurst) && tries < 20; tries++ {
				// It did not know yet, and probes now. New limits are followed within T, which may have grown.
				time.Sleep(ttl)
				err = l.Key(key).WaitN(s.Context(), 5)
			}
			check(s, err == nil, "key %s: %v; %+v", key, err, l.Stats())
		}
		time.Sleep(2 * time.Second) // they give back, and make room in a small table
	}
}

// close ends every Limiter there was, with nothing left in any.
func (s *chaos) close() {
	for _, l := range s.all {
		l.Close()
		st := conserved(s, l)
		check(s, st.Held == 0 && st.InUse == 0 && st.Waiting == 0, "%+v", st)
	}
}

// verb draws the next verb by its weight.
func (s *chaos) verb() string {
	sum := 0
	for _, d := range deeds[:s.deeds] {
		sum += d.weight
	}
	i := s.rnd.IntN(sum)
	for _, d := range deeds[:s.deeds] {
		if i -= d.weight; i < 0 {
			return d.verb
		}
	}
	panic("no deed")
}

// deeds lists the verbs of a process with their weights. From Refund on they change the limits in force.
var deeds = []struct {
	verb   string
	weight int
}{
	{"Allow", 4}, {"TryAllow", 2}, {"Take", 1}, {"TakeEach", 1}, {"WaitN", 5}, {"TakeUpTo", 1}, {"Reserve", 3},
	{"restart", 1},
	{"Refund", 1}, {"SetLimits", 1}, {"ClearLimits", 1}, {"Reset", 1}, {"KeyWithLimits", 1}, {"Refresh", 1}, {"Refresh all", 1},
}

// untilRestart is the number of deeds before "restart".
const untilRestart = 7

// act is something to do with some of the keys of one or two Limiters.
func (s *chaos) act() func() {
	names := []string{"a", "b", "c", "d"}
	s.rnd.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	names = names[:1+max(0, s.rnd.IntN(6)-2)]
	one, two := s.rnd.IntN(len(s.live)), s.rnd.IntN(len(s.live))
	from := make([]int, len(names)) // which of the two has the key
	for i := range from {
		from[i] = s.rnd.IntN(2)
	}
	n, class := 1+s.rnd.Int64N(3), 0
	if s.rnd.IntN(4) == 0 {
		n = 1 + s.rnd.Int64N(30)
	}
	if s.change {
		class = s.rnd.IntN(4) - 1
	}
	times, patience := 1+s.rnd.IntN(20), time.Duration(s.rnd.Int64N(int64(2*time.Second)))
	hold, byDeadline := time.Duration(s.rnd.Int64N(int64(3*time.Second))), s.rnd.IntN(2) == 0
	verb, cancels, settles := s.verb(), s.rnd.IntN(2) == 0, s.rnd.IntN(2) == 0
	other := s.limits[[]string{"b", "c", "d"}[s.rnd.IntN(3)]]
	set := []hybrid.Limit{other, other, hybrid.Blocked, hybrid.Sliding(30, time.Second)}[s.rnd.IntN(4)]
	return func() {
		ls := []*hybrid.Limiter{s.number(one), s.number(two)}
		l, name := ls[0], names[0]
		keys := make([]*hybrid.Key, len(names))
		for i, name := range names {
			keys[i] = ls[from[i]].Key(name).Class(class)
		}
		var k keyLimiter = keys[0]
		if len(keys) > 1 || settles {
			k = l.Join(keys...)
		}
		ctx, cancel := s.patience(patience, byDeadline)
		defer cancel()
		switch verb {
		case "Allow":
			for range times {
				s.admitted(names, 1, k.Allow)
			}
		case "TryAllow":
			s.admitted(names, 1, k.TryAllow)
			s.admitted(names, n, func() bool { return k.AllowN(n) })
		case "Take":
			s.admitted(names, n, func() bool { r, _ := k.Take(ctx, n); return r.OK })
		case "TakeEach":
			each := make([]int64, len(names))
			for i := range each {
				each[i] = (n + int64(i*times)) % 20
			}
			s.admittedEach(names, each, func() bool { r, _ := l.Join(keys...).TakeEach(ctx, each...); return r.OK })
		case "WaitN":
			s.admitted(names, n, func() bool {
				err := k.WaitN(ctx, n)
				check(s, err == nil || isOneOf(err, context.Canceled, context.DeadlineExceeded,
					hybrid.ErrWouldExceedDeadline, hybrid.ErrTableFull, hybrid.ErrClosed, hybrid.ErrExceedsBurst),
					"%v", err)
				return err == nil
			})
		case "TakeUpTo":
			s.admittedUpTo(names, func() int64 {
				r, _ := k.TakeUpTo(ctx, n)
				check(s, r.Taken <= n && r.OK == (r.Taken > 0), "up to %d: %+v", n, r)
				return r.Taken
			})
		case "Reserve":
			var r *hybrid.Reservation
			s.admitted(names, n, func() bool {
				if r, _ = k.Reserve(ctx, n); cancels {
					time.Sleep(hold)
					r.Cancel() // leaves no trace
				}
				return r.OK() && !cancels
			})
			time.Sleep(hold)
			if settles && s.settle {
				_ = r.Settle(n + 1 + int64(times)) // more, which is paid for later
			}
		case "restart":
			if times < 4 {
				s.restart(ctx, one, byDeadline)
			}
		case "Refund":
			k.Refund(n)
		case "SetLimits":
			_ = l.SetLimits(ctx, name, set)
		case "ClearLimits":
			_ = l.ClearLimits(ctx, name)
		case "Reset":
			if byDeadline {
				_ = l.Reset(ctx, name)
			} else {
				_ = l.ReplaceLimits(ctx, name, set)
			}
		case "KeyWithLimits":
			l.KeyWithLimits(name, other).AllowN(n)
		case "Refresh":
			isErr(s, cmp.Or(l.Refresh(context.Background(), name), hybrid.ErrClosed), hybrid.ErrClosed)
		case "Refresh all":
			isErr(s, cmp.Or(l.Refresh(context.Background()), hybrid.ErrClosed), hybrid.ErrClosed)
		}
		for _, l := range ls {
			conserved(s, l)
		}
	}
}

// number returns the Limiter with that number.
func (s *chaos) number(who int) *hybrid.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[who]
}

// restart replaces the Limiter with that number.
func (s *chaos) restart(ctx context.Context, who int, atOnce bool) {
	fresh, err := hybrid.New(s, s.cfg)
	noErr(s, err)
	s.mu.Lock()
	old := s.live[who]
	s.live[who] = fresh
	s.all = append(s.all, fresh)
	s.mu.Unlock()
	if atOnce {
		old.Close()
	} else {
		_ = old.Shutdown(ctx)
	}
}

// patience returns a context that ends after d, by a deadline or by a cancellation.
func (s *chaos) patience(d time.Duration, byDeadline bool) (context.Context, context.CancelFunc) {
	if byDeadline {
		return context.WithTimeout(s.Context(), d)
	}
	ctx, cancel := context.WithCancel(s.Context())
	timer := time.AfterFunc(d, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

func isOneOf(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(e error) bool { return errors.Is(err, e) })
}

// badNetwork has a spell of outage somewhere within ten seconds, and faults all the time.
func badNetwork(rnd *rand.Rand) func(*lease.Call) verdict {
	began := time.Now()
	within := func(d time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(d))) }
	from := within(5 * time.Second)
	to := from + within(4*time.Second)
	return func(*lease.Call) verdict {
		kinds := 20
		if at := time.Since(began); at >= from && at < to {
			kinds = 4
		}
		switch rnd.IntN(kinds) {
		case 0:
			return away
		case 1:
			return verdict{lost: true}
		case 2:
			return verdict{delay: within(900 * time.Millisecond)}
		case 3:
			return verdict{delay: within(20 * time.Millisecond), twice: true}
		case 4:
			return verdict{err: lease.ErrStale}
		}
		return verdict{delay: within(20 * time.Millisecond)}
	}
}

// admitted records n tokens of every key if they are admitted between now and when ask returns.
func (s *chaos) admitted(keys []string, n int64, ask func() bool) {
	s.admittedEach(keys, slices.Repeat([]int64{n}, len(keys)), ask)
}

func (s *chaos) admittedUpTo(keys []string, ask func() int64) {
	each := make([]int64, len(keys))
	s.admittedEach(keys, each, func() bool {
		n := ask()
		for i := range each {
			each[i] = n
		}
		return n > 0
	})
}

// admittedEach records n[i] tokens of keys[i].
func (s *chaos) admittedEach(keys []string, n []int64, ask func() bool) {
	before := wholeMicroseconds(clock.System().Now())
	if !ask() {
		return
	}
	after := wholeMicroseconds(clock.System().Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, key := range keys {
		if n[i] > 0 {
			s.spans[key] = append(s.spans[key], audit.Span{Before: before, After: after, N: n[i]})
			s.sum += n[i]
		}
	}
}
