package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

func memoryCall(key, holder string, seq, want int64) *Call {
	return &Call{Key: key, Request: Request{Holder: holder, Seq: seq, Want: want, Waiting: want, Weight: 1,
		Config: Config{Limits: []Limit{PerSecond(10)}, TTL: time.Second, Target: 100 * time.Millisecond}}}
}

func TestMemoryStoreServesEveryKeyOnItsOwn(t *testing.T) {
	c := clock.NewManual(0)
	m := NewMemoryStore(c)
	calls := []*Call{memoryCall("a", "h", 1, 20), memoryCall("b", "h", 2, 5), memoryCall("a", "g", 1, 5)}
	groups := 0
	m.Exchange(context.Background(), calls, func(got []*Call) { groups += len(got) })
	if groups != 3 {
		t.Errorf("%d calls reported done", groups)
	}
	for i, want := range []int64{10, 5, 0} {
		if calls[i].Err != nil || calls[i].Grant.Granted != want {
			t.Errorf("call %d: %+v, %v", i, calls[i].Grant, calls[i].Err)
		}
	}
	// a bad call is that call's error alone
	bad := memoryCall("c", "", 1, 1)
	m.Exchange(context.Background(), []*Call{bad}, func([]*Call) {})
	if !errors.Is(bad.Err, ErrInvalidRequest) {
		t.Error(bad.Err)
	}
}

func TestMemoryStoreForgetsWhatExpired(t *testing.T) {
	c := clock.NewManual(0)
	m := NewMemoryStore(c)
	call := memoryCall("a", "h", 1, 10)
	m.Exchange(context.Background(), []*Call{call}, func([]*Call) {})
	st, err := m.Configure(context.Background(), "a", OpInspect, Config{})
	if err != nil || !st.Exists || st.Levels[0] != 0 {
		t.Fatalf("%+v, %v", st, err)
	}
	c.Advance(call.Grant.Expiry)
	if st, _ := m.Configure(context.Background(), "a", OpInspect, Config{}); st.Exists {
		t.Errorf("after its expiry of %v the bucket still exists", call.Grant.Expiry)
	}
	// reading creates nothing
	if st, _ := m.Configure(context.Background(), "new", OpInspect, Config{}); st.Exists || st.Changed {
		t.Errorf("%+v", st)
	}
}

func TestMemoryStoreConfigures(t *testing.T) {
	ctx := context.Background()
	m := NewMemoryStore(clock.NewManual(0))
	first := Config{Limits: []Limit{PerSecond(5)}, TTL: time.Second, Target: 100 * time.Millisecond}
	other := first
	other.Limits = []Limit{PerSecond(7)}
	if st, err := m.Configure(ctx, "k", OpSetIfAbsent, first); err != nil || !st.Changed ||
		st.Config.Limits[0] != PerSecond(5) {
		t.Errorf("set if absent on nothing: %+v, %v", st, err)
	}
	if st, err := m.Configure(ctx, "k", OpSetIfAbsent, other); err != nil || st.Changed ||
		st.Config.Limits[0] != PerSecond(5) {
		t.Errorf("set if absent on something: %+v, %v", st, err)
	}
	if st, err := m.Configure(ctx, "k", OpSet, other); err != nil || !st.Changed ||
		st.Config.Limits[0] != PerSecond(7) || st.Levels[0] != 5 {
		t.Errorf("a raised burst keeps the level: %+v, %v", st, err)
	}
	if st, err := m.Configure(ctx, "k", OpReset, Config{}); err != nil || !st.Changed || st.Levels[0] != 7 {
		t.Errorf("reset: %+v, %v", st, err)
	}
	if _, err := m.Configure(ctx, "k", OpSet, Config{}); !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("an invalid configuration: %v", err)
	}
	// a caller follows what was set
	call := memoryCall("k", "h", 1, 20)
	m.Exchange(ctx, []*Call{call}, func([]*Call) {})
	if call.Grant.Granted != 7 || call.Grant.Config.Limits[0] != PerSecond(7) {
		t.Errorf("%+v", call.Grant)
	}
}

func TestMemoryStoreMayBeShared(t *testing.T) {
	m := NewMemoryStore(clock.NewManual(0))
	var all sync.WaitGroup
	var mu sync.Mutex
	granted := map[string]int64{}
	for g := range 8 {
		all.Go(func() {
			for i := range int64(500) {
				key := fmt.Sprint("k", i%50)
				call := memoryCall(key, fmt.Sprint("h", g), i+1, 1)
				m.Exchange(context.Background(), []*Call{call}, func([]*Call) {})
				mu.Lock()
				granted[key] += call.Grant.Granted
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for key, n := range granted {
		// Time stands still here, so that a holder may find its own share used while another's is
		// left.
		if n > 10 || n < 5 {
			t.Errorf("%s granted %d, its burst is 10", key, n)
		}
	}
}
