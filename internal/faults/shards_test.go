package faults

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// storedShard is the key under which the store has the i-th shard of key.
func storedShard(i int) string {
	if i == 0 {
		return key
	}
	return fmt.Sprintf("@#%d:%s", i, key)
}

// TestAKeyWithShardsOnOneServer: what holds of one bucket holds of four, in real Redis: several
// limiters together admit what the limit allows and all of it, every token is accounted for, and
// what looks at the key sums its shards up.
func TestAKeyWithShardsOnOneServer(t *testing.T) {
	t.Parallel()
	const shards = 4
	// Given four limiters that ask for more than the limit gives of a key with four shards,
	f := start(t).fleet(4, patient(busy, hybrid.Policy{Fallback: hybrid.FallbackDeny, Shards: shards}))
	load := f.load(key, int(busy.Tokens)/2)
	f.awaitAdmitted(key, busy.Burst+busy.Tokens)
	// when they are under way, then each shard is in use, and together they reach the rate.
	f.awaitRecovery(busy.Tokens)
	load.stop()
	f.checkBound(key, busy, 0)
	// When they have left, then every token that was spent is in the counters of the shards, or is
	// counted as leased until that lease has ended.
	f.shutdown()
	spent := int64(0)
	for i := range shards {
		st := f.state(storedShard(i))
		testkit.Check(t, st.Spent > 0, "shard %d: %+v", i, st)
		spent += st.Spent + st.Ledger
	}
	admitted := f.stats().Admitted
	testkit.Check(t, spent == admitted, "the shards have counted %d tokens, %d were admitted", spent, admitted)
	// An operation on the key is one on all of them.
	testkit.Eventually(t, "the end of all leases", func() bool {
		leased := int64(0)
		for i := range shards {
			leased += f.state(storedShard(i)).Ledger
		}
		return leased == 0
	})
	operator := f.add(f.cfg, f.store)
	half := hybrid.PerSecond(busy.Tokens / 2).WithBurst(busy.Burst / 2)
	testkit.NoErr(t, operator.SetLimits(t.Context(), key, half))
	testkit.NoErr(t, operator.Reset(t.Context(), key))
	limits, err := operator.LimitsOf(t.Context(), key)
	testkit.Check(t, err == nil && len(limits) == 1 && limits[0] == half, "the limits are %v, %v", limits, err)
	res, err := operator.Peek(t.Context(), key)
	testkit.Check(t, err == nil && res.Remaining == half.Burst, "Peek says %+v, %v", res, err)
	for i := range shards {
		st := f.state(storedShard(i))
		testkit.Check(t, st.Config.Limits[0].Burst == half.Burst/shards, "shard %d has %v", i, st.Config.Limits)
	}
}

// TestRow19AFailoverTakesAPartOfAKeyWithShards: a master dies that has some shards of a key.
func TestRow19AFailoverTakesAPartOfAKeyWithShards(t *testing.T) {
	t.Parallel()
	// Given a key with sixteen shards on a cluster of three masters with a replica each, of which four
	// limiters ask for twice the rate,
	const k = 16
	cfg := calmly
	cfg.Policy.Shards = k
	s := startShards(t, true, cfg, "--cluster-require-full-coverage", "no")
	for range 2 {
		s.add(cfg, storeOn(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.masters[2].Addr}})))
	}
	of := s.shardsOf(k)
	for i := range s.masters {
		testkit.Must(t, len(of[i]) > 0, "master %d has no shard of the key: %v", i, of)
	}
	s.load(key, int(busy.Tokens)/2)
	s.awaitRecovery(busy.Tokens)
	// when one master is killed, and nobody replaces it yet,
	for _, m := range append(s.masters[1:], s.replicas...) {
		m.set("cluster-node-timeout", "600000")
	}
	executed := s.executed(of[1])
	killed := s.now()
	s.masters[0].Kill()
	// then the other shards go on: they are called, and grant what was not leased before.
	testkit.Eventually(t, "calls of the others", func() bool { return s.executed(of[1]) > executed+10 })
	before := s.stats()
	testkit.Eventually(t, "tokens of the others", func() bool { return s.stats().Admitted > before.Admitted+2*busy.Tokens })
	testkit.Check(t, s.stats().Leased > before.Leased+busy.Tokens, "nothing is leased meanwhile")
	// When its replica takes over, then the whole rate is reached again.
	testkit.Eventually(t, "a replica that takes over", func() bool {
		return s.replicas[0].Ask("CLUSTER", "FAILOVER", "TAKEOVER") == "+OK\r\n" || s.replicas[0].isMaster()
	})
	taken := s.now()
	s.awaitRecovery(busy.Tokens)
	back := s.now()
	t.Logf("shards by master %v; the whole rate %v after the takeover; without the master %v", of, back-taken,
		s.seen(key, killed, taken))
	// Through all of it nobody waited, and (1) holds over all shards: but for what the replica may
	// have lacked, once the bursts of those that it has.
	s.checkNobodyWaited(key, killed, back)
	s.checkBound(key, busy, int64(len(of[0]))*busy.Burst/k)
}

// shardsOf are the numbers of the shards of key that each master has.
func (s *shards) shardsOf(k int) [][]int {
	s.t.Helper()
	of := make([][]int, len(s.masters))
	for i := range k {
		node, err := s.client.MasterForKey(context.Background(), bucketOf(storedShard(i)))
		testkit.NoErr(s.t, err)
		for m := range s.masters {
			if node.Options().Addr == s.masters[m].Addr {
				of[m] = append(of[m], i)
			}
		}
	}
	return of
}

// executed is how many calls the buckets of these shards have answered.
func (s *shards) executed(of []int) (calls int64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clientTimeout)
	defer cancel()
	store := storeOn(s.t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.masters[1].Addr}}))
	for _, i := range of {
		var st lease.State
		st, err := store.Inspect(ctx, storedShard(i))
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
