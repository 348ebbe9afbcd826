package faults

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestRow16AReplicaThatLaggedIsProvedSoByTheCallCounter: 100 tokens an hour; 40 are spent, the
// replica loses touch, 30 more are spent, the master dies, and the replica, which believes that 60
// are left, takes its place.
func TestRow16AReplicaThatLaggedIsProvedSoByTheCallCounter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		who   int  // 0 knows all calls, 1 those that the replica knows too, 2 none
		finds bool // what the replica has; otherwise nothing
	}{
		{"the best informed asks first", 0, false},
		{"one that knows no more than the replica asks first", 1, true},
		{"a newcomer asks first", 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			master, replica := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
			toReplica := client(t, replica.Addr)
			do(t, toReplica, "REPLICAOF", "127.0.0.1", master.Port)
			replica.AwaitSync(t)
			var addr atomic.Value // where the service is, as DNS or a Sentinel would tell
			addr.Store(master.Addr)
			f := NewFleet(t, Options{Size: 3, Addr: master.Addr, Direct: replica.Addr,
				Config: patient(hourly, denying), Client: func(o *redis.Options) {
					o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
						return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
					}
				}})
			// Given that
			f.SpendAndSettle(0, 20)
			f.SpendAndSettle(1, 20)
			ofMaster := storeOn(t, client(t, master.Addr))
			has := settled(t, ofMaster)
			testkit.Eventually(t, "the replica has seen that",
				func() bool {
					st := f.State(key)
					return st.Levels == has.Levels &&
						st.Counter == has.Counter
				})
			do(t, toReplica, "REPLICAOF", "NO", "ONE")
			f.SpendAndSettle(0, 30)
			left := settled(t, ofMaster)
			// when the master dies, and process c.who is the first to find the new one,
			addr.Store(replica.Addr)
			master.Kill()
			// then it gets nothing if it can prove what was lost, and otherwise what the replica has.
			want := int64(0)
			if c.finds {
				want = has.Levels[0]
			}
			f.TakeAll(c.who, want)
			// And whoever comes later finds nothing, so the loss is paid once at most.
			for i := range 3 {
				f.Drain(i, key)
			}
			f.CheckBound(key, hourly, max(0, want-left.Levels[0]))
		})
	}
}
