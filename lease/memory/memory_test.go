package memory

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func memoryCall(key, holder string, seq, want int64) *lease.Call {
	return &lease.Call{Key: key, Request: lease.Request{Holder: holder, Seq: seq, Want: want, Waiting: want,
		Weight: 1,
		Config: lease.Config{Limits: []lease.Limit{lease.PerSecond(10)}, TTL: time.Second,
			Target: 100 * time.Millisecond}}}
}

func TestStoreServesEveryKeyOnItsOwn(t *testing.T) { synctest.Test(t, servesEveryKey) }

func servesEveryKey(t *testing.T) {
	m := New(nil)
	calls := []*lease.Call{memoryCall("a", "h", 1, 20), memoryCall("b", "h", 2, 5), memoryCall("a", "g", 1, 5),
		memoryCall("c", "", 1, 1)}
	done := 0
	m.Exchange(t.Context(), calls, func(got []*lease.Call) { done += len(got) })
	testkit.Check(t, done == 4, "%d calls reported done", done)
	for i, want := range []int64{10, 5, 0} {
		c := calls[i]
		testkit.Check(t, c.Err == nil && c.Grant.Granted == want, "call %d: %+v, %v", i, c.Grant, c.Err)
	}
	// a bad call is that call's error alone
	testkit.Check(t, errors.Is(calls[3].Err, lease.ErrInvalidRequest), "%v", calls[3].Err)
}

func TestStoreForgetsWhatExpired(t *testing.T) { synctest.Test(t, forgets) }

func forgets(t *testing.T) {
	m := New(nil)
	call := memoryCall("a", "h", 1, 10)
	m.Exchange(t.Context(), []*lease.Call{call}, func([]*lease.Call) {})
	look := func(key string) lease.State {
		st, err := m.Configure(t.Context(), key, lease.OpInspect, lease.Config{})
		testkit.NoErr(t, err)
		return st
	}
	st := look("a")
	testkit.Must(t, st.Exists && st.Levels[0] == 0, "%+v", st)
	time.Sleep(call.Grant.Expiry)
	testkit.Check(t, !look("a").Exists, "after its expiry of %v the bucket still exists", call.Grant.Expiry)
	// reading creates nothing
	st = look("new")
	testkit.Check(t, !st.Exists && !st.Changed, "%+v", st)
}

func TestStoreConfigures(t *testing.T) { synctest.Test(t, configures) }

func configures(t *testing.T) {
	m := New(nil)
	with := func(n int64) lease.Config {
		return lease.Config{Limits: []lease.Limit{lease.PerSecond(n)}, TTL: time.Second,
			Target: 100 * time.Millisecond}
	}
	for _, c := range []struct {
		name          string
		op            lease.Op
		config        lease.Config
		changed       bool
		tokens, level int64
	}{
		{"set on nothing", lease.OpSet, with(5), true, 5, 5},
		{"a raised burst keeps the level", lease.OpSet, with(7), true, 7, 5},
		{"reset", lease.OpReset, lease.Config{}, true, 7, 7},
		{"replace", lease.OpReplace, with(9), true, 9, 9},
		{"clear", lease.OpClear, with(5), true, 5, 5},
		{"clear once more", lease.OpClear, with(7), false, 5, 5},
		{"set again", lease.OpReplace, with(9), true, 9, 9},
	} {
		st, err := m.Configure(t.Context(), "k", c.op, c.config)
		testkit.NoErr(t, err)
		testkit.Check(t, st.Changed == c.changed && st.Config.Limits[0] == lease.PerSecond(c.tokens) &&
			st.Levels[0] == c.level, "%s: %+v", c.name, st)
	}
	_, err := m.Configure(t.Context(), "k", lease.OpSet, lease.Config{})
	testkit.Check(t, errors.Is(err, lease.ErrInvalidConfig), "an invalid configuration: %v", err)
	// a caller follows what was set
	call := memoryCall("k", "h", 1, 20)
	m.Exchange(t.Context(), []*lease.Call{call}, func([]*lease.Call) {})
	testkit.Check(t, call.Grant.Granted == 9 && call.Grant.Config.Limits[0] == lease.PerSecond(9), "%+v",
		call.Grant)
}

func TestStoreMayBeShared(t *testing.T) { synctest.Test(t, shared) }

func shared(t *testing.T) {
	m := New(nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	granted := map[string]int64{}
	for g := range 8 {
		all.Go(func() {
			for i := range int64(500) {
				key := fmt.Sprint("k", i%50)
				call := memoryCall(key, fmt.Sprint("h", g), i+1, 1)
				m.Exchange(t.Context(), []*lease.Call{call}, func([]*lease.Call) {})
				mu.Lock()
				granted[key] += call.Grant.Granted
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for key, n := range granted {
		// Time stands still here, so that a holder may find its own share used while another's is left.
		testkit.Check(t, n >= 5 && n <= 10, "%s granted %d, its burst is 10", key, n)
	}
}
