package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// storedShard is the key under which the store has the i-th shard of name.
func storedShard(name string, i int) string {
	if i == 0 {
		return name
	}
	return fmt.Sprintf("@#%d:%s", i, name)
}

// TestAKeyWithShardsOnOneServer: in real Redis, several limiters together admit what the limit
// allows, every token is accounted for, and operations on the key are operations on its shards.
// (That they admit all that the limit allows: TestFewProcessesUseAllShards in hybrid.)
func TestAKeyWithShardsOnOneServer(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	const shards = 4
	// Given four limiters that ask for more than the limit gives of a key with four shards, with
	// leases that do not end,
	cfg := patient(busy, strict)
	cfg.Policy.Shards, cfg.Policy.TTL = shards, time.Hour
	f := start(t).fleet(4, cfg)
	load := f.load(key, int(busy.Tokens)/2)
	// when they are under way, then each shard is in use,
	testkit.Eventually(t, "tokens of every shard", func() bool {
		for i := range shards {
			if f.state(storedShard(key, i)).Spent == 0 {
				return false
			}
		}
		return true
	})
	f.awaitLeased(busy.Burst + busy.Tokens)
	load.stop()
	f.checkBound(key, busy, 0)
	// When they have left, then every token that was spent is in the counters of the shards, or is
	// counted as leased.
	f.shutdown()
	spent := int64(0)
	for i := range shards {
		st := f.state(storedShard(key, i))
		spent += st.Spent + st.Ledger
	}
	admitted := f.stats().Admitted
	testkit.Check(t, spent == admitted, "the shards have counted %d tokens, %d were admitted", spent, admitted)
	// An operation on a key, of which nothing is leased, is one on all of its shards.
	const other = "other"
	operator := f.add(f.cfg, f.store)
	testkit.Must(t, operator.Allow(other), "denied")
	half := hybrid.PerSecond(busy.Tokens / 2).WithBurst(busy.Burst / 2)
	testkit.NoErr(t, operator.SetLimits(t.Context(), other, half))
	testkit.NoErr(t, operator.Reset(t.Context(), other))
	limits, err := operator.LimitsOf(t.Context(), other)
	testkit.Check(t, err == nil && len(limits) == 1 && limits[0] == half, "the limits are %v, %v", limits, err)
	res, err := operator.Peek(t.Context(), other)
	testkit.Check(t, err == nil && res.Remaining == half.Burst, "Peek says %+v, %v", res, err)
	for i := range shards {
		st := f.state(storedShard(other, i))
		testkit.Check(t, st.Config.Limits[0].Burst == half.Burst/shards, "shard %d has %v", i, st.Config.Limits)
	}
}

// TestRow19AFailoverTakesAPartOfAKeyWithShards: a master dies that has some shards of a key.
func TestRow19AFailoverTakesAPartOfAKeyWithShards(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// Given a key with sixteen shards on a cluster of three masters with a replica each, of which four
	// limiters ask for twice the rate,
	const k = 16
	cfg := calmly
	cfg.Policy.Shards = k
	s := startShards(t, true, cfg, "--cluster-require-full-coverage", "no")
	for range 2 {
		s.add(cfg, storeOn(t, clusterClient(s.masters[2].Server)))
	}
	of := s.shardsOf(k)
	for i := range s.masters {
		testkit.Must(t, len(of[i]) > 0, "master %d has no shard of the key: %v", i, of)
	}
	s.load(key, int(busy.Tokens)/2)
	s.awaitLeased(busy.Burst)
	// when one master is killed, and no replica replaces it yet,
	executed := s.executed(s.masters[1], of[1])
	killed := s.now()
	s.masters[0].Kill()
	// then the other shards go on: they are called, and grant what was not leased before.
	awaitCalls := func(node *site, of []int, executed int64) {
		t.Helper()
		testkit.Eventually(t, "calls", func() bool { return s.executed(node, of) > executed+10 })
	}
	awaitCalls(s.masters[1], of[1], executed)
	s.awaitLeased(busy.Tokens)
	// When its replica takes over, then its shards are called again.
	testkit.Eventually(t, "a replica that takes over", func() bool {
		return s.replicas[0].Ask("CLUSTER", "FAILOVER", "TAKEOVER") == "+OK\r\n" || s.replicas[0].isMaster()
	})
	taken, executed := s.now(), s.executed(s.replicas[0], of[0])
	awaitCalls(s.replicas[0], of[0], executed)
	t.Logf("shards by master %v; its own are called %v after the takeover; without the master %v", of,
		s.now()-taken, s.seen(key, killed, taken))
	// Through all of it (1) holds over all shards: but for what the replica may have lacked, once the
	// bursts of those that it has.
	s.checkBound(key, busy, int64(len(of[0]))*busy.Burst/k)
}

// shardsOf are the numbers of the shards of key that each master has.
func (s *shards) shardsOf(k int) [][]int {
	s.t.Helper()
	of := make([][]int, len(s.masters))
	for i := range k {
		node, err := s.client.MasterForKey(context.Background(), bucketOf(storedShard(key, i)))
		testkit.NoErr(s.t, err)
		for m := range s.masters {
			if node.Options().Addr == s.masters[m].Addr {
				of[m] = append(of[m], i)
			}
		}
	}
	return of
}

// executed is how many calls the buckets of these shards, which node has, have answered.
func (s *shards) executed(node *site, of []int) (calls int64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clientTimeout)
	defer cancel()
	store := storeOn(s.t, clusterClient(node.Server))
	for _, i := range of {
		var st lease.State
		st, err := store.Inspect(ctx, storedShard(key, i))
		testkit.NoErr(s.t, err)
		calls += st.Counter
	}
	return calls
}

// isMaster reports whether s says so itself.
func (s *site) isMaster() bool {
	role, err := s.ctl.Do(context.Background(), "ROLE").Slice()
	return err == nil && role[0] == "master"
}
