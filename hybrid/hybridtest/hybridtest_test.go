package hybridtest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridtest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

func TestAWellFaultyStoreKeepsTheContract(t *testing.T) {
	hybridtest.CheckStore(t, func(*testing.T) lease.Store {
		return &hybridtest.FaultyStore{Store: memory.New(nil)}
	})
}

// broken is a store that treats calls as its function does.
type broken struct {
	lease.Store
	exchange func(s lease.Store, calls []*lease.Call, done func([]*lease.Call))
}

func (b broken) Exchange(_ context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	b.exchange(b.Store, calls, done)
}

// brokenStores are the faults by the subtests that find them.
var brokenStores = map[string]func(s lease.Store, calls []*lease.Call, done func([]*lease.Call)){
	"answers_are_those_of_the_specification": func(s lease.Store, calls []*lease.Call, done func([]*lease.Call)) {
		s.Exchange(context.Background(), calls, func([]*lease.Call) {}) // and once more
		s.Exchange(context.Background(), calls, done)
	},
	"each_call_is_answered_once": func(s lease.Store, calls []*lease.Call, done func([]*lease.Call)) {
		s.Exchange(context.Background(), calls, done)
		done(calls[:1])
	},
	"each_key_has_a_bucket": func(s lease.Store, calls []*lease.Call, done func([]*lease.Call)) {
		for _, c := range calls {
			c.Key = strings.ToLower(c.Key)
		}
		s.Exchange(context.Background(), calls, done)
	},
	"a_call_with_an_ended_context_reports_its_outcome": func(s lease.Store, calls []*lease.Call, done func([]*lease.Call)) {
		s.Exchange(context.Background(), calls, func([]*lease.Call) {})
		for _, c := range calls {
			c.Err = errors.Join(lease.ErrUnavailable, lease.ErrRefused)
		}
		done(calls)
	},
}

// TestBrokenStoresAreFound runs CheckStore in a process of its own, where it is to fail.
func TestBrokenStoresAreFound(t *testing.T) {
	const variable = "YUZHI_BROKEN_STORE"
	if exchange := brokenStores[os.Getenv(variable)]; exchange != nil {
		hybridtest.CheckStore(t, func(*testing.T) lease.Store { return broken{memory.New(nil), exchange} })
		return
	}
	for part := range brokenStores {
		test := exec.Command(os.Args[0], "-test.run=^TestBrokenStoresAreFound$")
		test.Env = append(os.Environ(), variable+"="+part)
		out, err := test.CombinedOutput()
		testkit.Check(t, err != nil && strings.Contains(string(out), "--- FAIL: TestBrokenStoresAreFound/"+part),
			"%q does not fail: %v\n%s", part, err, out)
	}
}

func TestAFaultyStoreFailsOnCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hybridtest.FaultyStore{Store: memory.New(nil)}
		l, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(10)}})
		testkit.NoErr(t, err)
		defer l.Close()
		for _, c := range []struct {
			key    string
			fault  func()
			source hybrid.Source
			took   time.Duration
			ping   error
		}{
			{"well", store.Back, hybrid.SourceStore, 0, nil},
			{"slow", func() { store.Slow(50 * time.Millisecond) }, hybrid.SourceStore, 50 * time.Millisecond, nil},
			{"away", store.Away, hybrid.SourceFallback, 0, lease.ErrRefused},
			{"back", store.Back, hybrid.SourceStore, 0, nil},
			{"late", func() { store.Slow(time.Hour) }, hybrid.SourceFallback, 100 * time.Millisecond,
				context.DeadlineExceeded},
		} {
			c.fault()
			time.Sleep(10 * time.Second)
			from := time.Now()
			r, err := l.Key(c.key).Take(t.Context(), 1)
			took := time.Since(from)
			testkit.Check(t, err == nil && r.Source == c.source && took == c.took, "%s: %+v, %v after %v", c.key, r,
				err, took)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err = l.Ping(ctx)
			cancel()
			testkit.Check(t, errors.Is(err, c.ping) && (err == nil) == (c.ping == nil), "%s: ping: %v", c.key, err)
		}
	})
}

func TestFaultyStoresOverOneStoreFailByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// given two processes on one store
		buckets := memory.New(nil)
		var away [2]int
		var stores [2]*hybridtest.FaultyStore
		var limiters [2]*hybrid.Limiter
		for i := range limiters {
			stores[i] = &hybridtest.FaultyStore{Store: buckets}
			l, err := hybrid.New(stores[i], hybrid.Config{
				Limits: []hybrid.Limit{hybrid.PerSecond(100)}, Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny},
				Events: hybrid.Events{NodeAway: func(string, error) { away[i]++ }},
			})
			testkit.NoErr(t, err)
			defer l.Close()
			limiters[i] = l
		}
		// when one cannot reach it
		ask := func() {
			for range 50 {
				limiters[0].Allow("k")
				limiters[1].Allow("k")
				time.Sleep(20 * time.Millisecond)
			}
		}
		ask()
		stores[0].Away()
		ask()
		// then only that one is in an outage
		testkit.Check(t, away == [2]int{1, 0}, "NodeAway ran %v times", away)
	})
}
