package hybrid_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// world is a test and where it takes place: processes on one store, which is empty at first, and
// between them a network without faults until it is told what to do.
type world struct {
	*testing.T
	*network
	clock     clock.Clock   // the store's; nil where that is Redis's own
	rdb       *redis.Client // nil in memory
	processes []*hybrid.Limiter
}

// newWorld is a world in memory.
func newWorld(t *testing.T) *world {
	w := &world{T: t, clock: clock.System()}
	w.network = &network{inner: memory.New(w.clock)}
	return w
}

// bubble runs body in a world of its own, in virtual time.
func bubble(t *testing.T, body func(t *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(newWorld(t)) })
}

// bubbleOf is bubble as a subtest.
func bubbleOf(t *testing.T, name any, body func(t *world)) {
	t.Helper()
	t.Run(fmt.Sprint(name), func(t *testing.T) { bubble(t, body) })
}

// seeds runs body in a bubble of its own for each of runs random seeds.
func seeds(t *testing.T, runs int, body func(t *world, seed uint64)) {
	t.Helper()
	for seed := range testkit.Seeds(t, runs) {
		bubble(t, func(t *world) { body(t, seed) })
	}
}

// start is one process. Where time is real, a machine that stalls must turn no wait for a lease
// into a denial.
func (t *world) start(cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	if t.clock == nil && cfg.CallTimeout == 0 {
		cfg.CallTimeout = 30 * time.Second
	}
	return t.startOn(t, cfg)
}

// startOn is a process on another store. It has a Store value of its own, as a process has: what
// one process may not have twice, two may.
func (t *world) startOn(s lease.Store, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	if _, pings := s.(lease.Pinger); !pings {
		s = &struct{ lease.Store }{s}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	l, err := hybrid.New(s, cfg)
	must(t, err == nil, "%v", err)
	t.Cleanup(func() {
		conserved(t, l)
		l.Close()
	})
	t.processes = append(t.processes, l)
	return l
}

// process is a process with default settings.
func (t *world) process(l ...hybrid.Limit) *hybrid.Limiter {
	t.Helper()
	return t.start(of(l...))
}

// fleet starts n processes with the same configuration.
func (t *world) fleet(n int, cfg hybrid.Config) (ls []*hybrid.Limiter) {
	for range n {
		ls = append(ls, t.start(cfg))
	}
	return ls
}

// drained is a process that has emptied the bucket "k".
func (t *world) drained(cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l := t.start(cfg)
	drain(l, "k")
	return l
}

// warm is a process whose key "k" is in steady use and holds tokens.
func (t *world) warm(cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l := t.start(cfg)
	admits(500, 2*time.Millisecond, func() bool { return l.Allow("k") })
	must(t, l.Stats().Held != 0, "the key holds nothing")
	return l
}

// rested is a process whose key "k" was used, gave back, and went to rest.
func (t *world) rested(cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l := t.start(cfg)
	must(t, l.Allow("k"), "denied")
	time.Sleep(2 * time.Second)
	st := l.Stats()
	must(t, st.Keys == 1 && st.InUse == 0 && st.Admitted == 1, "the key should be at rest: %+v", st)
	return l
}

// ttl is the T of a limiter with default settings; at the very end of it, both orders are right.
const ttl, afterTTL = 400 * time.Millisecond, 401 * time.Millisecond

// hourly is a bucket of 10 that gets nothing back while a test runs.
var hourly = hybrid.PerHour(1).WithBurst(10)

// denying admits nothing while the store is away.
var denying = hybrid.Policy{Fallback: hybrid.FallbackDeny}

func limits(l ...hybrid.Limit) []hybrid.Limit { return l }

// of is a configuration with these limits, by one with a policy too.
func of(l ...hybrid.Limit) hybrid.Config { return hybrid.Config{Limits: l} }

func by(p hybrid.Policy, l ...hybrid.Limit) hybrid.Config { return hybrid.Config{Limits: l, Policy: p} }

// oneBucketHas is how many tokens a bucket that is full at first has for d.
func oneBucketHas(l hybrid.Limit, d time.Duration) int64 {
	return l.Capacity() + int64(d)*l.Tokens/int64(l.Per)
}

// hangs holds back every call from now on, until the test ends, and its caller with it.
func (t *world) hangs() {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	t.every(verdict{late: hang, stuck: true})
}

// hangsFor holds back every call for d, and executes them afterwards.
func (t *world) hangsFor(d time.Duration) {
	hang := make(chan struct{})
	t.every(verdict{late: hang, stuck: true})
	time.Sleep(d)
	t.every(verdict{})
	close(hang)
}

// loseAll makes the store forget everything.
func (t *world) loseAll() { t.replace(memory.New(t.clock)) }

// state returns the state of the bucket.
func (t *world) state(key string) lease.State {
	t.Helper()
	st, err := t.Configure(context.Background(), key, lease.OpInspect, lease.Config{})
	noErr(t, err)
	return st
}

// has checks how many tokens are in the bucket, and how many it counts as leased.
func (t *world) has(key string, level, ledger int64) {
	t.Helper()
	st := t.state(key)
	check(t, st.Levels[0] == level && st.Ledger == ledger,
		"the bucket of %q has %d, %d leased, want %d and %d", key, st.Levels[0], st.Ledger, level, ledger)
}

// silent checks that no call goes out for d.
func (t *world) silent(d time.Duration) {
	t.Helper()
	_, calls := t.during(func() { time.Sleep(d) })
	check(t, calls == 0, "%d calls in %v", calls, d)
}

// limitsAre checks which limits Levels returns.
func limitsAre(t *world, l *hybrid.Limiter, key string, want ...hybrid.Limit) {
	t.Helper()
	levels, err := l.Levels(t.Context(), key)
	var got []hybrid.Limit
	for _, level := range levels {
		got = append(got, level.Limit)
	}
	check(t, err == nil && slices.Equal(got, want), "the limits of %q are %v, %v, want %v", key, got, err, want)
}

// conserved checks that every token which was ever leased is somewhere, and returns the Stats.
func conserved(t testing.TB, l *hybrid.Limiter) hybrid.Stats {
	t.Helper()
	s := l.Stats()
	check(t, s.Conserved() && s.Denied >= 0, "tokens were lost or forged: %+v", s)
	return s
}

// admittedBy is how many tokens ls have admitted, each of which conserves its own.
func admittedBy(t testing.TB, ls []*hybrid.Limiter) (n int64) {
	t.Helper()
	for _, l := range ls {
		n += conserved(t, l).Admitted
	}
	return n
}

// within is a context with a deadline, and ended one that has ended.
func within(t *world, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// admitted takes a token of each key.
func (t *world) admitted(l *hybrid.Limiter, keys ...string) {
	t.Helper()
	for _, k := range keys {
		must(t, l.Allow(k), "%q is denied", k)
	}
}

// drain takes tokens one by one until there are none, and counts them.
func drain(l *hybrid.Limiter, key string) (n int64) {
	for l.Allow(key) {
		n++
	}
	return n
}

// admits asks n times, with a pause after each, and counts how often the answer was yes.
func admits(n int, pause time.Duration, ask func() bool) (yes int) {
	for range n {
		if ask() {
			yes++
		}
		time.Sleep(pause)
	}
	return yes
}

// used calls each of ask every 20 ms for d.
func used(d time.Duration, ask ...func()) {
	for range d / (20 * time.Millisecond) {
		for _, a := range ask {
			a()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// together runs f n times at once in goroutines; wait waits for all to end.
func together(n int, f func(i int)) (wait func()) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	return wg.Wait
}

// inTurn is together in a bubble, where the next begins when those before it wait.
func inTurn(n int, f func(i int)) (wait func()) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
		synctest.Wait()
	}
	return wg.Wait
}

// background runs f in a goroutine; wait waits for its end.
func background(f func()) (wait func()) { return together(1, func(int) { f() }) }

// lasts checks how long f takes; where time is real a machine that stalls may make it longer.
func (t *world) lasts(least, most time.Duration, f func()) {
	if d := took(f); d < least || d > most && t.virtual() {
		t.Helper()
		t.Errorf("it took %v, want %v to %v", d, least, most)
	}
}

// soon waits until holds, and checks that it does within most.
func (t *world) soon(most time.Duration, holds func() bool) {
	t.Helper()
	t.lasts(0, most, func() {
		for !holds() {
			time.Sleep(time.Millisecond)
		}
	})
}

// took is how long f took, by the bubble's clock.
func took(f func()) time.Duration {
	from := time.Now()
	f()
	return time.Since(from)
}

var check, must = testkit.Check, testkit.Must

// equal fails the test unless got is want.
func equal[T comparable](t testing.TB, got, want T, what string) {
	if got != want {
		t.Helper()
		t.Errorf("%v %s, want %v", got, what, want)
	}
}

// noErr fails the test if err is not nil, on any goroutine.
func noErr(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Error(err)
	}
}

// isErr fails the test unless err wraps all that is wanted, or is nil where that is nil.
func isErr(t testing.TB, err, want error, more ...error) {
	t.Helper()
	for _, w := range append(more, want) {
		check(t, errors.Is(err, w), "the error is %v, want %v", err, w)
	}
}

// keyLimiter has the verbs of a Key and of a Joined.
type keyLimiter interface {
	Allow() bool
	AllowN(n int64) bool
	TryAllow() bool
	Take(ctx context.Context, n int64) (hybrid.Result, error)
	TakeUpTo(ctx context.Context, n int64) (hybrid.Result, error)
	Wait(ctx context.Context) error
	WaitN(ctx context.Context, n int64) error
	Reserve(ctx context.Context, estimate int64) (*hybrid.Reservation, error)
	Refund(n int64)
}

// plans is a Config.LimitsFor that never fails.
func plans(of func(key string) []hybrid.Limit) func(context.Context, string) ([]hybrid.Limit, error) {
	return func(_ context.Context, key string) ([]hybrid.Limit, error) { return of(key), nil }
}
