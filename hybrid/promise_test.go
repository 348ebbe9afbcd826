package hybrid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/hook"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// wholeMicroseconds is t as a bucket reads it. The promise is about the bucket's clock, which
// counts whole microseconds. By one that counts nanoseconds a window could be up to 1 us shorter
// than the one in which the bucket refilled.
func wholeMicroseconds(t clock.Instant) int64 { return int64(t) / 1000 * 1000 }

// meter audits that admissions keep the promise over every window. Goroutines may share it.
type meter struct {
	mu    sync.Mutex
	exact *audit.Meter
	sum   int64
}

func newMeter(l hybrid.Limit) *meter { return &meter{exact: audit.NewMeter(audit.Of(l, 0))} }

// admit records n tokens that were admitted now.
func (m *meter) admit(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.exact.Admit(wholeMicroseconds(clock.System().Now()), n)
	m.sum += n
}

// admitIf records a token if it was admitted, and returns whether it was.
func (m *meter) admitIf(ok bool) bool {
	if ok {
		m.admit(1)
	}
	return ok
}

func (m *meter) check(t *world) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	check(t, m.exact.ExceededBy() == 0, "the promise is exceeded by %d", m.exact.ExceededBy())
}

// However many processes share a bucket, and however they ask, no window admits more than one central bucket
// would, though an adversary in each of them spends all that it holds just before every report.
func TestTheBoundHoldsOverAllWindows(t *testing.T) {
	for limit, least := range map[hybrid.Limit]int64{ // admitted at least
		hybrid.PerSecond(1000):              8550, // 95 % of what one bucket has in the eight seconds
		hybrid.PerSecond(200).WithBurst(20): 380,  // 95 % of what it has while requests come; adversaries add to it
		hybrid.PerSecond(50).WithBurst(2):   60,   // fewer tokens than processes that hold some
		hybrid.Sliding(50, 2*time.Second):   100,
	} {
		for _, on := range []time.Duration{time.Second, 300 * time.Millisecond} {
			for _, overcommit := range []int64{0, 5} {
				bubbleOf(t, fmt.Sprintf("%v on for %v E %d", limit, on, overcommit), func(t *world) {
					boundRun(t, limit, overcommit, on, least)
				})
			}
		}
	}
}

// boundRun has five processes ask about 333 times a second each, in a part of each second.
func boundRun(t *world, limit hybrid.Limit, overcommit int64, on time.Duration, least int64) {
	const processes = 5
	bound := &meter{exact: audit.NewMeter(audit.Of(limit, overcommit))}
	var spent atomic.Int64 // by the adversaries
	for i := range processes {
		cfg := by(hybrid.Policy{Overcommit: overcommit}, limit)
		cfg.InstanceID = hook.BeforeReport(func(key string) {
			for bound.admitIf(t.processes[i].Key(key).TryAllow()) {
				spent.Add(1)
			}
		})
		t.start(cfg)
	}
	gap := float64(on) * 3 / 1000
	together(processes, func(i int) {
		l, r := t.processes[i], rand.New(rand.NewPCG(7, uint64(i)))
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Second - on) {
			for off := time.Now().Add(on); time.Now().Before(off); {
				if r.IntN(4) != 0 {
					bound.admitIf(l.Key("k").TryAllow())
				} else if n := 1 + r.Int64N(2); l.AllowN("k", n) {
					bound.admit(n)
				}
				time.Sleep(time.Duration(r.ExpFloat64() * gap))
			}
		}
	})()
	time.Sleep(3 * time.Second) // the adversaries spend what is left
	bound.check(t)
	check(t, spent.Load() != 0, "the adversary never spent anything")
	equal(t, admittedBy(t, t.processes), bound.sum, "admitted, by Stats")
	check(t, bound.sum >= least, "only %d admitted, want %d", bound.sum, least)
}

// ends are the ways to end a Limiter.
var ends = map[string]func(*hybrid.Limiter) error{
	"close":    (*hybrid.Limiter).Close,
	"shutdown": func(l *hybrid.Limiter) error { return l.Shutdown(context.Background()) },
}

// Everything at once, in real time, under the race detector: at the end no token is lost or forged,
// every request is accounted for, every caller was answered, and no window has more than the limits
// allow. Joined keys are asked for in any order.
func TestEverythingAtOnce(t *testing.T) {
	for _, policy := range []hybrid.Policy{
		{StrictExpiry: true},
		{TTL: time.Minute}, // so that a machine that stalls lets no lease end, whose timer would come late
	} {
		policy.Target, policy.Fallback = 5*time.Millisecond, hybrid.FallbackDeny
		for _, end := range ends {
			everythingAtOnce(newWorld(t), policy, end)
		}
	}
}

func everythingAtOnce(t *world, policy hybrid.Policy, end func(*hybrid.Limiter) error) {
	var n atomic.Int64
	t.setJudge(func(*lease.Call) verdict {
		switch n.Add(1) % 50 {
		case 7:
			return away
		case 23:
			return verdict{twice: true, delay: time.Millisecond}
		}
		return verdict{delay: time.Duration(rand.IntN(500)) * time.Microsecond}
	})
	both := limits(hybrid.PerSecond(20000).WithBurst(500), hybrid.PerMinute(600_000).WithBurst(3000))
	l := t.start(hybrid.Config{Limits: both, Policy: policy, CallTimeout: 5 * time.Millisecond, KeysMax: 12})
	var mu sync.Mutex
	admitted, record := int64(0), make(map[string][]audit.Span)
	span := time.Duration(testkit.ShortOrLong(t, 100, 500, "milliseconds")) * time.Millisecond
	stop := time.Now().Add(span)
	asked := together(16, func(i int) {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		own := l.Key("0")
		for j := 0; j%64 != 0 || time.Now().Before(stop); j++ {
			from := clock.System().Now()
			if keys, n := askAnyhow(l, own, r); n > 0 {
				span := audit.Span{Before: wholeMicroseconds(from), After: wholeMicroseconds(clock.System().Now()), N: n}
				mu.Lock()
				for _, key := range keys {
					admitted += n
					record[key] = append(record[key], span)
				}
				mu.Unlock()
			}
		}
	})
	watched := background(func() {
		for time.Now().Before(stop) {
			conserved(t, l)
			time.Sleep(time.Millisecond)
		}
	})
	time.Sleep(span * 4 / 5)
	_ = end(l)
	asked()
	watched()
	st := conserved(t, l)
	// Tokens drawn for requests that had ended do not count as admitted.
	check(t, st.Held == 0 && st.Admitted == admitted, "the callers were admitted %d: %+v", admitted, st)
	must(t, len(record) > 4, "requests of %d keys were admitted", len(record))
	for key, spans := range record {
		for _, limit := range both {
			w, err := audit.Worst(spans, audit.Of(limit, 0))
			check(t, err == nil && w.ExceededBy == 0, "key %s, %v: %+v, %v", key, limit, w, err)
		}
	}
}

// askAnyhow asks by a verb at random for a key at random, or two, half of the time for own, and says
// how many tokens of each it was admitted.
func askAnyhow(l *hybrid.Limiter, own *hybrid.Key, r *rand.Rand) (keys []string, n int64) {
	keys, n = []string{fmt.Sprint(r.IntN(16))}, 1
	var k keyLimiter = l.Key(keys[0])
	switch verb := r.IntN(16); {
	case verb < 8:
		return []string{own.Name()}, int64(admits(20, 0, own.Allow)) // at once on all cores
	case verb < 10:
		k, keys[0] = own, own.Name()
	case verb < 13:
		keys = append(keys, fmt.Sprint(r.IntN(16)))
		k = joined(l, keys...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(3000))*time.Microsecond)
	defer cancel()
	ok := false
	switch r.IntN(8) {
	case 0:
		n = 1 + r.Int64N(5)
		ok = k.AllowN(n)
	case 1, 2:
		ok = k.TryAllow()
	case 3:
		ok = k.Wait(ctx) == nil
	case 4:
		var res hybrid.Result
		res, _ = k.TakeUpTo(ctx, 1+r.Int64N(50))
		ok, n = res.OK, res.Taken
	case 5:
		made, _ := k.Reserve(ctx, 2)
		made.Cancel()
	default:
		ok = k.Allow()
	}
	if !ok {
		return nil, 0
	}
	return keys, n
}

// Bursts of requests in no time at all, with pauses between them that are long enough for the delay
// after a shortfall to end, are decided one by one as golang.org/x/time/rate decides them.
func TestBurstsAreDecidedAsByTimeRate(t *testing.T) {
	for _, c := range []struct {
		limit hybrid.Limit
		n     int64         // tokens a request; negative: 1 to -n at random
		pause time.Duration // the least
	}{
		{hybrid.PerSecond(10), 1, 300 * time.Millisecond},
		{hybrid.PerSecond(10).WithBurst(3), 1, 300 * time.Millisecond},
		{hybrid.Every(70 * time.Millisecond), 1, 200 * time.Millisecond},
		{hybrid.PerSecond(1000), 1, 300 * time.Millisecond},
		{hybrid.PerSecond(1000).WithBurst(50), 1, 300 * time.Millisecond},
		{hybrid.PerSecond(100).WithBurst(5000), 1, 300 * time.Millisecond},
		{hybrid.PerMinute(600).WithBurst(20), 3, time.Second},
		{hybrid.PerSecond(1000), 7, 300 * time.Millisecond},
		{hybrid.PerSecond(200).WithBurst(64), 64, time.Second},
		{hybrid.PerSecond(50).WithBurst(10), 4, 500 * time.Millisecond},
		{hybrid.PerSecond(50).WithBurst(10), -10, 500 * time.Millisecond},
		{hybrid.PerMinute(600).WithBurst(20), -5, time.Second},
		{hybrid.PerSecond(1000).WithBurst(3000), -50, 300 * time.Millisecond},
	} {
		bubbleOf(t, fmt.Sprintf("%v n %d", c.limit, c.n), func(t *world) {
			r := rand.New(rand.NewPCG(1, 2))
			l := t.process(c.limit)
			ref := rate.NewLimiter(rate.Limit(c.limit.Rate()), int(c.limit.Capacity()))
			for round := range 40 {
				for i, denied := 1, 0; denied < 5; i++ {
					n := c.n
					if n < 0 {
						n = 1 + r.Int64N(-n)
					}
					want := ref.AllowN(time.Now(), int(n))
					got := l.AllowN("k", n)
					must(t, got == want, "round %d, request %d of %d: %v, x/time/rate says %v", round, i, n, got, want)
					if !want {
						denied++
					}
				}
				// The store counts in microseconds.
				time.Sleep(c.pause + time.Duration(r.Int64N(c.pause.Microseconds()))*time.Microsecond)
			}
		})
	}
}

// x/time/rate, TestLongRunningQPS: demand beyond the rate is admitted 99.9 to 100 % of it. Three
// processes together, where a token may lie with one while another is asked, get at least 99.5 %.
func TestPeerLongRunAdmitsTheRate(t *testing.T) {
	bubble(t, func(t *world) {
		limit := hybrid.PerSecond(20)
		const run = 50 * time.Second
		for processes, least := range map[int]int64{1: 999, 3: 995} { // of 1000
			bound, ls := newMeter(limit), t.fleet(processes, of(limit))
			// They ask for three times the rate together.
			ask := func(span time.Duration) int64 {
				before, pace := bound.sum, time.Duration(processes)*17*time.Millisecond
				together(processes, func(i int) {
					allow := func() bool { return bound.admitIf(ls[i].Allow(fmt.Sprint(processes))) }
					admits(int(span/pace), pace, allow)
				})()
				return bound.sum - before
			}
			ask(10 * time.Second)
			n := ask(run)
			bound.check(t)
			ideal := int64(run) * limit.Tokens / int64(limit.Per)
			check(t, n >= ideal*least/1000, "%d processes: %d of %d admitted in %v", processes, n, ideal, run)
		}
	})
}
