package faults

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

var (
	// lasting has a burst of a minute at its rate. A holder remembers a bucket that it has used up for
	// that long, so a process that stands still for a while can still prove a loss.
	lasting = hybrid.PerSecond(100).WithBurst(6000)
	// window admits 1,000 tokens in any second.
	window = lease.Sliding(1000, time.Second)
	// still refills nothing while a test runs.
	still = hybrid.PerHour(1).WithBurst(100)
)

// TestRow12ANewcomerAfterAnUnseenLossAdmitsAtMostOneBurstMore is the documented other case: a process that
// did not know the bucket calls before those that did. Then a lost bucket looks like one that never was.
func TestRow12ANewcomerAfterAnUnseenLossAdmitsAtMostOneBurstMore(t *testing.T) {
	type story struct {
		policy hybrid.Policy
		extra  int64 // what a newcomer may admit beyond (1)
	}
	each(t, map[string]story{
		"overcommit 0":  {denying, still.Burst},
		"overcommit 40": {hybrid.Policy{Fallback: hybrid.FallbackDeny, Overcommit: 40}, still.Burst + 40},
		"start empty":   {hybrid.Policy{Fallback: hybrid.FallbackDeny, StartEmpty: true}, 0},
	}, func(t *testing.T, c story) {
		// Given a bucket that one process has used up, with leases that do not end,
		server := start(t)
		cfg := patient(still, c.policy)
		cfg.Policy.TTL = time.Hour
		f := server.fleet(3, cfg)
		f.drain(0, key)
		// when it is lost, and a process that never knew it asks first,
		server.do("FLUSHALL")
		newcomer := f.drain(1, key)
		// and then one that knew it, and another newcomer,
		knower, third := f.drain(0, key), f.drain(2, key)
		// then the bucket was spent once more at most, and with StartEmpty not at all.
		testkit.Check(t, newcomer+knower+third <= c.extra,
			"%d, %d and %d admitted after the loss, at most %d are allowed", newcomer, knower, third, c.extra)
		if c.policy.StartEmpty {
			return // no admission to audit
		}
		over := c.policy.Overcommit
		f.checkBound(key, still, over+c.extra)
		// The documentation warns of that, so it must happen.
		testkit.Check(t, f.excess(key, still)-over >= still.Burst/2, "the documentation may promise more")
	})
}

// With "everysec" Redis hands every write to the system before it answers, so that a killed server
// loses nothing; only while a sync of the disk is under way it may postpone that, by 2 s at most.
// With "always" it never does.
var everySecond = []string{"--appendonly", "yes", "--appendfsync", "everysec"}

// TestAKilledServerKeepsItsLastFile: of 100 tokens 40 are spent, a snapshot is taken, 30 more are
// spent, and then the server is killed and starts again. One central bucket would have 30 left.
func TestAKilledServerKeepsItsLastFile(t *testing.T) {
	testkit.LongOnly(t)
	const knower, newcomer = 0, 1
	const nothing, whatIsLeft, whatTheSnapshotHas, everything = 0, 1, 2, 3
	type story struct {
		args         []string
		snapshot     bool
		first, finds int   // asks first
		extra        int64 // tokens that the server forgot, without a proof of the loss
	}
	each(t, map[string]story{
		// The file has every answered call.
		"append-only file, one that knew asks first": {everySecond, false, knower, whatIsLeft, 0},
		"append-only file, a newcomer asks first":    {everySecond, false, newcomer, whatIsLeft, 0},
		// The snapshot is older: later grants are undone, unless a process proves the loss. Then the
		// bucket starts empty.
		"snapshots only, one that knew asks first": {nil, true, knower, nothing, 0},
		"snapshots only, a newcomer asks first":    {nil, true, newcomer, whatTheSnapshotHas, 30},
		// Without either, it is a new bucket, or one that starts empty.
		"nothing, one that knew asks first": {nil, false, knower, nothing, 0},
		"nothing, a newcomer asks first":    {nil, false, newcomer, everything, 70},
	}, func(t *testing.T, c story) {
		server := start(t, c.args...)
		f := server.fleet(2, patient(still, denying))
		f.spendAndSettle(0, 40)
		found := [4]int64{everything: still.Burst, whatTheSnapshotHas: f.state(key).Levels[0]}
		if c.snapshot {
			server.do("SAVE")
		}
		f.spendAndSettle(0, 30)
		found[whatIsLeft] = f.state(key).Levels[0]
		if c.args != nil {
			server.awaitInfo("persistence", "aof_buffer_length:0")
		}
		// when the server is killed and starts again,
		server.Restart(t)
		// then the first process finds the tokens that the server still knows,
		f.takeAll(c.first, found[c.finds])
		// and (1) holds up to c.extra.
		f.checkBound(key, still, c.extra)
	})
}

// TestRow16AReplicaThatLaggedIsProvedSoByTheCallCounter: of 100 tokens 40 are spent, the replica is cut off,
// 30 more are spent, the master dies, and the replica, with a level of 60, takes its place.
func TestRow16AReplicaThatLaggedIsProvedSoByTheCallCounter(t *testing.T) {
	type story struct {
		first int  // 0 knows all calls, 1 those that the replica knows too, 2 none
		finds bool // it finds the replica's tokens; otherwise none
	}
	each(t, oneOrAll(t, "the best informed asks first", map[string]story{
		"the best informed asks first":                       {0, false},
		"one that knows no more than the replica asks first": {1, true},
		"a newcomer asks first":                              {2, true},
	}), func(t *testing.T, c story) {
		master, replica := start(t, "--repl-diskless-sync-delay", "0"), start(t)
		replica.do("REPLICAOF", "127.0.0.1", master.Port)
		replica.AwaitSync(t)
		var addr atomic.Value // address of the service, as from DNS or a Sentinel
		addr.Store(master.Addr)
		master.client = func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
			}
		}
		f := master.fleet(3, patient(still, denying))
		// Given that
		f.spendAndSettle(0, 20)
		f.spendAndSettle(1, 20)
		has := f.settled()
		ofReplica := replica.store()
		f.store = ofReplica
		testkit.Eventually(t, "the replica has seen that", func() bool {
			st := f.state(key)
			return st.Levels == has.Levels && st.Counter == has.Counter
		})
		replica.do("REPLICAOF", "NO", "ONE")
		const lost = 30
		f.spendAndSettle(0, lost)
		// when the master dies, and process c.first is the first to find the new one,
		addr.Store(replica.Addr)
		master.Kill()
		// then it gets nothing if it can prove the loss, and otherwise the replica's tokens.
		want, extra := int64(0), int64(0)
		if c.finds {
			want, extra = has.Levels[0], lost
		}
		f.takeAll(c.first, want)
		// Later processes find nothing, so the loss is paid once at most.
		for i := range 3 {
			f.drain(i, key)
		}
		f.checkBound(key, still, extra)
	})
}
