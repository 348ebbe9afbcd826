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
	// busy is the limit of most tests under load. Its burst lasts 2 s at its rate, so every process
	// that calls now and then still knows the bucket when it is lost (a holder forgets a bucket before
	// Redis may).
	busy = hybrid.PerSecond(1000).WithBurst(2000)
	// hourly refills so slowly that tokens can be counted one by one.
	hourly = hybrid.PerHour(100)
	// denying admits nothing without the store, so that the promise holds through outages too. strict
	// is denying, and spends no lease that has ended, even on a machine so busy that timers come late.
	denying = hybrid.Policy{Fallback: hybrid.FallbackDeny}
	strict  = hybrid.Policy{Fallback: hybrid.FallbackDeny, StrictExpiry: true}
)

// operatorTimeout is how long a test waits for an answer to one command of its own. Nothing depends
// on how long that takes.
const operatorTimeout = time.Minute

// with is a configuration of one limit.
func with(limit hybrid.Limit, p hybrid.Policy) hybrid.Config {
	return hybrid.Config{Limits: []hybrid.Limit{limit}, Policy: p}
}

// patient is a configuration for tests that count tokens: a machine that stalls makes it wait, and
// denies nothing.
func patient(limit hybrid.Limit, p hybrid.Policy) hybrid.Config {
	p.TTL = 2 * time.Second // the default would follow CallTimeout
	cfg := with(limit, p)
	cfg.CallTimeout = 20 * time.Second
	return cfg
}

// fleet is limiters that share buckets, as processes do, and a record of what they decided. It
// reads the time from the time package alone, so a fleet on another store than Redis runs inside
// testing/synctest too.
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

// request is one request that a fleet was asked.
type request struct {
	name  string
	began time.Duration // fleet.now
}

// newFleet starts one limiter on each store, which may be one and the same. They are closed with
// the test, after their conservation has been checked.
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

// add starts one limiter more.
func (f *fleet) add(cfg hybrid.Config, s lease.Store) *hybrid.Limiter {
	f.t.Helper()
	tap := newTap(s)
	l, err := hybrid.New(tap, cfg)
	testkit.NoErr(f.t, err)
	f.limiters, f.taps = append(f.limiters, l), append(f.taps, tap)
	return l
}

// now is the time since the fleet was started; all stamps are on this clock.
func (f *fleet) now() time.Duration { return time.Since(f.start) }

// stats is the sum over the fleet.
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

// state is what the bucket of name in Redis says, asked past any proxy.
func (f *fleet) state(name string) lease.State {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), operatorTimeout)
	defer cancel()
	st, err := f.store.Inspect(ctx, name)
	testkit.NoErr(f.t, err)
	return st
}

// balance is oracle K: the tokens in the bucket of key, of its first limit, and those counted as
// leased.
func (f *fleet) balance() int64 {
	f.t.Helper()
	st := f.state(key)
	return st.Levels[0] + st.Ledger
}

// settled is the bucket of key once nothing of it is leased any more.
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

// load is goroutines that ask a fleet until they are told to stop.
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// stop ends the load and returns when its last request was decided. It may be called more than
// once.
func (l *load) stop() {
	l.cancel()
	l.wg.Wait()
}

// load calls Allow(name) on every limiter, each rate times a second on a goroutine of its own,
// until it is stopped or the test ends. A machine too slow for that asks less often.
func (f *fleet) load(name string, rate int) *load { return f.loadOn(f.limiters, name, rate) }

// loadOn is load on some limiters.
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
		// After a stall it makes up for half a second and no more.
		asked = max(asked, due-max(1, rate/2))
		for ; asked < due; asked++ {
			request()
		}
		time.Sleep(max(2*time.Millisecond, time.Second/time.Duration(rate))) // the pace of load
	}
}

// ask takes the one decision that allow makes on name and puts it on record.
func (f *fleet) ask(name string, allow func() bool) bool { return f.askAll([]string{name}, allow) }

// askAll takes one decision about all names, on the record of each.
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

// spend takes n tokens of name through limiter i, which must be there.
func (f *fleet) spend(i int, name string, n int64) {
	f.t.Helper()
	for range n {
		testkit.Must(f.t, f.allow(i, name), "%s is denied at limiter %d", name, i)
	}
}

// drain asks limiter i for one token of name after another and returns how many there were.
func (f *fleet) drain(i int, name string) (admitted int64) {
	for f.allow(i, name) {
		admitted++
	}
	return admitted
}

// spendAndSettle is spend on key that waits until what came along is given back, so that the bucket
// has what a central one would.
func (f *fleet) spendAndSettle(i int, n int64) {
	f.t.Helper()
	f.spend(i, key, n)
	// Nothing held may mean that a call is about to bring more: for many looks nothing may be held,
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

// refilled is what has flowed into an hourly bucket so far.
func (f *fleet) refilled() int64 { return int64(f.now().Hours() * float64(hourly.Tokens)) }

// takeAll drains the bucket of key through limiter i, which is to find n tokens in it and no more.
// While others count as active it gets only its share at a time. What it lost because the machine
// stood still for longer than a lease lasts counts as found.
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

// next is what became of the next n requests for name, or some more.
func (f *fleet) next(name string, n int64) (s seen) {
	f.t.Helper()
	from := f.now()
	testkit.Eventually(f.t, fmt.Sprintf("%d requests for %s", n, name), func() bool {
		s = f.seen(name, from, f.now())
		return s.asked() >= n
	})
	return s
}
