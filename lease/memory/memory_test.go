package memory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid/hybridtest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func memoryCall(key, holder string, seq, want int64) *lease.Call {
	return &lease.Call{Key: key, Request: lease.Request{Holder: holder, Seq: seq, Want: want, Waiting: want,
		Weight: 1,
		Config: lease.Config{Limits: []lease.Limit{lease.PerSecond(10)}, TTL: time.Second,
			Target: 100 * time.Millisecond}}}
}

func TestStoreKeepsTheContract(t *testing.T) {
	hybridtest.CheckStore(t, func(*testing.T) lease.Store { return New(nil) })
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
