package faults

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// key is the bucket of most tests.
const key = "k"

var (
	// busy is the limit of most tests under load. Its burst lasts 2 s at its rate, so every process that
	// calls now and then still knows the bucket when it is lost (a holder forgets a bucket before Redis may).
	busy = hybrid.PerSecond(1000).WithBurst(2000)
	// hourly refills so slowly that tokens can be counted one by one.
	hourly = hybrid.PerHour(100)
	// denying admits nothing without the store, so that the promise holds through outages too. strict
	// is denying, and spends no lease that has ended, even on a machine so busy that timers come late.
	denying = hybrid.Policy{Fallback: hybrid.FallbackDeny}
	strict  = hybrid.Policy{Fallback: hybrid.FallbackDeny, StrictExpiry: true}
)

// operatorTimeout bounds a test's wait for the answer to one of its own commands. No result depends
// on the length of a wait.
const operatorTimeout = time.Minute

// with returns a configuration of one limit.
func with(limit hybrid.Limit, p hybrid.Policy) hybrid.Config {
	return hybrid.Config{Limits: []hybrid.Limit{limit}, Policy: p}
}

// patient returns a configuration for tests that count tokens: on a machine that stalls requests
// wait, and none is denied.
func patient(limit hybrid.Limit, p hybrid.Policy) hybrid.Config {
	p.TTL = 2 * time.Second // the default would follow CallTimeout
	cfg := with(limit, p)
	cfg.CallTimeout = 20 * time.Second
	return cfg
}

// fleet is a set of limiters that share buckets, as processes do, with a record of their decisions.
// It reads the time from the time package alone, so a fleet on another store than Redis also runs
// inside testing/synctest.
type fleet struct {
	t        testing.TB
	limiters []*hybrid.Limiter
	taps     []*tap // on the store of each limiter
	cfg      hybrid.Config
	store    *redisbucket.Store // the operator's, past any proxy; nil for a fleet without Redis
	start    time.Time          // zero of all stamps

	mu        sync.Mutex
	decisions map[string][]decision // by key
	open      map[*request]struct{} // not decided yet
}

// request is one request to a fleet.
type request struct {
	name  string
	began time.Duration // fleet.now
}

// newFleet starts one limiter on each store. Stores may repeat. They are closed with the test,
// after their conservation has been checked.
func newFleet(t testing.TB, cfg hybrid.Config, stores ...lease.Store) *fleet {
	t.Helper()
	f := &fleet{t: t, cfg: cfg, start: time.Now(),
		decisions: make(map[string][]decision), open: make(map[*request]struct{})}
	for _, s := range stores {
		f.add(cfg, s)
	}
	t.Cleanup(func() {
		f.checkConserved()
		for _, l := range f.limiters {
			l.Close()
		}
	})
	return f
}

// add starts one more limiter.
func (f *fleet) add(cfg hybrid.Config, s lease.Store) *hybrid.Limiter {
	f.t.Helper()
	tap := newTap(s)
	l, err := hybrid.New(tap, cfg)
	testkit.NoErr(f.t, err)
	f.limiters, f.taps = append(f.limiters, l), append(f.taps, tap)
	return l
}

// now returns the time since the start of the fleet. All stamps use this clock.
func (f *fleet) now() time.Duration { return time.Since(f.start) }

// stats sums the fleet's Stats.
func (f *fleet) stats() (sum hybrid.Stats) {
	total := reflect.ValueOf(&sum).Elem()
	for _, l := range f.limiters {
		one := reflect.ValueOf(l.Stats())
		for i := range total.NumField() {
			if f := total.Field(i); f.CanInt() {
				f.SetInt(f.Int() + one.Field(i).Int())
			}
		}
	}
	return sum
}

// state inspects the bucket of name in Redis, past any proxy.
func (f *fleet) state(name string) lease.State {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), operatorTimeout)
	defer cancel()
	st, err := f.store.Inspect(ctx, name)
	testkit.NoErr(f.t, err)
	return st
}

// settled returns the bucket of key once no token of it is leased.
func (f *fleet) settled() (st lease.State) {
	f.t.Helper()
	testkit.Eventually(f.t, "an empty ledger", func() bool {
		st = f.state(key)
		return st.Ledger == 0
	})
	return st
}

// warm returns when every limiter has a lease on a key that is under load.
func (f *fleet) warm() {
	f.t.Helper()
	testkit.Eventually(f.t, "a lease for everybody", func() bool {
		return !slices.ContainsFunc(f.limiters, func(l *hybrid.Limiter) bool { return l.Stats().Leased == 0 })
	})
}

// shutdown shuts all limiters down.
func (f *fleet) shutdown() {
	f.t.Helper()
	for _, l := range f.limiters {
		err := l.Shutdown(f.t.Context())
		testkit.Check(f.t, err == nil, "%v", err)
	}
}

// close closes all limiters inside a synctest bubble, and lets calls under way come back: time
// stands still once the test is over.
func (f *fleet) close() {
	for _, l := range f.limiters {
		l.Close()
	}
	time.Sleep(time.Second)
}

// load is a set of goroutines that ask a fleet until stop.
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// stop ends the load and returns when its last request was decided. It may be called more than once.
func (l *load) stop() {
	l.cancel()
	l.wg.Wait()
}

// load calls Allow(name) on every limiter, each rate times a second on a goroutine of its own,
// until it is stopped or the test ends. A machine too slow for that asks less often.
func (f *fleet) load(name string, rate int) *load { return f.loadOn(f.limiters, name, rate) }

// loadOn starts load on some limiters.
func (f *fleet) loadOn(limiters []*hybrid.Limiter, name string, rate int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	load := &load{cancel: cancel}
	for _, l := range limiters {
		k := l.Key(name)
		load.wg.Go(func() { f.drive(ctx, rate, func() { f.ask(name, k.Allow) }) })
	}
	f.t.Cleanup(load.stop)
	return load
}

// drive makes requests until ctx ends.
func (f *fleet) drive(ctx context.Context, rate int, request func()) {
	began, asked := f.now(), 0
	for ctx.Err() == nil {
		due := int(float64(rate) * (f.now() - began).Seconds())
		// After a stall it makes up for at most half a second.
		asked = max(asked, due-max(1, rate/2))
		for ; asked < due; asked++ {
			request()
		}
		time.Sleep(max(2*time.Millisecond, time.Second/time.Duration(rate))) // the pace of load
	}
}

// ask records the decision of allow on name.
func (f *fleet) ask(name string, allow func() bool) bool { return f.askAll([]string{name}, allow) }

// askAll records the decision of allow on every name.
func (f *fleet) askAll(names []string, allow func() bool) bool {
	began := f.now()
	f.mu.Lock()
	open := make([]*request, len(names))
	for i, name := range names {
		open[i] = &request{name, began}
		f.open[open[i]] = struct{}{}
	}
	f.mu.Unlock()
	before := f.now()
	d := decision{before: before, ok: allow(), after: f.now()}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, name := range names {
		f.decisions[name] = append(f.decisions[name], d)
		delete(f.open, open[i])
	}
	return d.ok
}

// allow asks limiter i for a token of name, on record.
func (f *fleet) allow(i int, name string) bool {
	return f.ask(name, func() bool { return f.limiters[i].Allow(name) })
}

// spend takes n tokens of name through limiter i. The bucket must have them.
func (f *fleet) spend(i int, name string, n int64) {
	f.t.Helper()
	for range n {
		testkit.Must(f.t, f.allow(i, name), "%s is denied at limiter %d", name, i)
	}
}

// drain takes tokens of name one by one through limiter i, and returns their number.
func (f *fleet) drain(i int, name string) (admitted int64) {
	for f.allow(i, name) {
		admitted++
	}
	return admitted
}

// spendAndSettle spends on key, and waits until the rest of the leases is given back. Then the
// bucket's level is that of a central one.
func (f *fleet) spendAndSettle(i int, n int64) {
	f.t.Helper()
	f.spend(i, key, n)
	// Held may be 0 just before a call brings more, so it must stay 0 for many looks, with no call
	// under way or begun.
	calls, looks := int64(-1), 0
	testkit.Eventually(f.t, "all given back", func() bool {
		s := f.limiters[i].Stats()
		if looks++; s.Held != 0 || s.Calls != s.RoundTrips || s.Calls != calls {
			calls, looks = s.Calls, 0
		}
		return looks >= 100
	})
}

// refilled returns the refill of an hourly bucket so far, in tokens.
func (f *fleet) refilled() int64 { return int64(f.now().Hours() * float64(hourly.Tokens)) }

// takeAll drains the bucket of key through limiter i, and checks that it had n tokens. While others
// count as active the limiter gets only its share at a time. Tokens that it lost because the
// machine stalled for longer than a lease count as found.
func (f *fleet) takeAll(i int, n int64) {
	f.t.Helper()
	had := int64(0)
	testkit.Eventually(f.t, "all tokens", func() bool {
		had += f.drain(i, key)
		st := f.state(key)
		return st.Exists && st.Levels[0] == 0 && st.Ledger == 0 && had+f.limiters[i].Stats().Burnt >= n
	})
	testkit.Check(f.t, had <= n+f.refilled(), "%d admitted, %d were to be found", had, n)
}

// awaitAdmitted returns when n more requests for name have been admitted.
func (f *fleet) awaitAdmitted(name string, n int64) {
	f.t.Helper()
	from := f.now()
	testkit.Eventually(f.t, "admissions", func() bool { return f.seen(name, from, f.now()).admitted >= n })
}

// next returns the decisions of the next n requests for name, or some more.
func (f *fleet) next(name string, n int64) (s seen) {
	f.t.Helper()
	from := f.now()
	testkit.Eventually(f.t, fmt.Sprintf("%d requests for %s", n, name), func() bool {
		s = f.seen(name, from, f.now())
		return s.asked() >= n
	})
	return s
}
