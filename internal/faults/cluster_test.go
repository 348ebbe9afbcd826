package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// calm is what the tests of clusters ask of each key: half of what its limit gives, so that
// whatever is denied is the fault's doing.
const calm = 500

// calmly does not take a busy machine for a dead node.
var calmly = hybrid.Config{Limits: []hybrid.Limit{busy}, CallTimeout: time.Second,
	Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny, TTL: time.Second}}

// shards is a cluster of three masters, each with a replica if it is to have one.
type shards struct {
	*redistest.Cluster
	admins []*redis.Client // of the masters
}

func startShards(t *testing.T, replicas bool, args ...string) *shards {
	t.Helper()
	s := &shards{Cluster: redistest.StartCluster(t, 3, replicas, append(args, "--cluster-node-timeout",
		"1000")...)}
	for _, m := range s.Masters {
		s.admins = append(s.admins, client(t, m.Addr))
	}
	return s
}

// fleet is one limiter for each process, on cluster clients that know one node each.
func (s *shards) fleet(t *testing.T, size int, cfg hybrid.Config) (*Fleet, *redis.ClusterClient) {
	t.Helper()
	var stores []lease.Store
	var cluster *redis.ClusterClient
	for i := range size {
		cluster = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Masters[i%len(s.Masters)].Addr}})
		stores = append(stores, storeOn(t, cluster))
	}
	return NewFleetOn(t, cfg, stores...), cluster
}

// keyOn is a key whose bucket is on master i.
func (s *shards) keyOn(t *testing.T, cluster *redis.ClusterClient, i int) string {
	t.Helper()
	for n := range 1000 {
		name := fmt.Sprint("key-", n)
		node, err := cluster.MasterForKey(context.Background(), bucketOf(name))
		must(t, err)
		if node.Options().Addr == s.Masters[i].Addr {
			return name
		}
	}
	t.Fatalf("no key on master %d", i)
	return ""
}

// failed says when the cluster, as admin's node sees it, has given up the dead node.
func failed(t *testing.T, admin *redis.Client, dead *redistest.Server) {
	t.Helper()
	testkit.Eventually(t, "the others notice", func() bool {
		for line := range strings.SplitSeq(admin.ClusterNodes(context.Background()).Val(), "\n") {
			f := strings.Fields(line)
			if len(f) > 2 && strings.HasPrefix(f[1], dead.Addr+"@") &&
				strings.Contains(","+f[2]+",", ",fail,") {
				return true
			}
		}
		return false
	})
}

func TestRow19AFailoverInAClusterDegradesItsSlotsOnly(t *testing.T) {
	t.Parallel()
	// Given two processes that use a key on each of three masters, each of which has a replica,
	s := startShards(t, true, "--cluster-require-full-coverage", "no")
	f, cluster := s.fleet(t, 2, calmly)
	var names []string
	for i := range s.Masters {
		names = append(names, s.keyOn(t, cluster, i))
		f.Load(names[i], calm/2)
	}
	serves := func(name string) func() bool {
		return func() bool { return f.Next(name, 100).Denied == 0 }
	}
	for _, name := range names {
		testkit.Eventually(t, "service", serves(name))
	}
	// when one master is killed,
	killed := f.Now()
	s.Masters[0].Kill()
	testkit.Eventually(t, "that its key is denied",
		func() bool { return f.Seen(names[0], killed, f.Now()).Denied > 0 })
	// then its replica takes over, and its key is served again,
	failed(t, s.admins[1], s.Masters[0])
	noticed := f.Now()
	testkit.Eventually(t, "service by the replica", serves(names[0]))
	back := f.Now()
	t.Logf("%s: failed %v after the kill, served again %v after it: %s", names[0], noticed-killed,
		back-killed, f.Seen(names[0], killed, back))
	// the other keys were served all the time,
	for _, name := range names[1:] {
		t.Logf("%s, of another master: %s", name, f.Seen(name, killed, back))
		// not none: a machine that stands still denies some
		if seen := f.Seen(name, killed, back); seen.Denied > seen.Admitted {
			t.Errorf("%s was denied too: %+v", name, seen)
		}
	}
	// nobody waited for the dead node, and the promise held for every key.
	for _, name := range names {
		f.CheckNobodyWaited(name, killed, back)
		f.CheckBound(name, busy, 0)
	}
}

func TestRow20AShardWithoutAReplicaTakesDownItsOwnKeysOrAll(t *testing.T) {
	t.Parallel()
	for coverage, others := range map[string]bool{"no": true, "yes": false} {
		t.Run("require full coverage "+coverage, func(t *testing.T) {
			t.Parallel()
			// Given a cluster without replicas,
			s := startShards(t, false, "--cluster-require-full-coverage", coverage)
			f, cluster := s.fleet(t, 2, calmly)
			lost, kept := s.keyOn(t, cluster, 0), s.keyOn(t, cluster, 1)
			f.Load(lost, calm/2)
			f.Load(kept, calm/2)
			testkit.Eventually(t, "leases", func() bool {
				return f.Seen(lost, 0, f.Now()).Admitted > 100 &&
					f.Seen(kept, 0, f.Now()).Admitted > 100
			})
			// when a master is killed and the others have noticed,
			killed := f.Now()
			s.Masters[0].Kill()
			failed(t, s.admins[1], s.Masters[0])
			failed(t, s.admins[2], s.Masters[0])
			// then its keys are denied for good, and the others' where the cluster insists on all slots.
			testkit.Eventually(t, "that its key is denied",
				func() bool { return f.Next(lost, 200).Admitted == 0 })
			testkit.Eventually(t, "the state of the other", func() bool {
				seen := f.Next(kept, 200)
				return others && seen.Denied == 0 || !others && seen.Admitted == 0
			})
			t.Logf("after %v: %s, on the dead master: %s; %s: %s", f.Now()-killed, lost,
				f.Seen(lost, killed, f.Now()), kept, f.Seen(kept, killed, f.Now()))
			// Nobody waited, and the promise held.
			for _, name := range []string{lost, kept} {
				f.CheckNobodyWaited(name, killed, f.Now())
				f.CheckBound(name, busy, 0)
			}
		})
	}
}

func TestRow20ASlotMovedByHandIsFollowedInSilence(t *testing.T) {
	t.Parallel()
	// Given a process that uses a key, and one that has never heard of it,
	s := startShards(t, false)
	var log diary
	cfg := calmly
	cfg.Logger = log.logger()
	f, cluster := s.fleet(t, 2, cfg)
	name := s.keyOn(t, cluster, 0)
	bucket := bucketOf(name)
	f.LoadOn(f.Limiters[:1], name, calm)
	testkit.Eventually(t, "leases", func() bool { return f.Seen(name, 0, f.Now()).Admitted > 100 })
	from, to := s.admins[0], s.admins[1]
	slot := do(t, from, "CLUSTER", "KEYSLOT", bucket)
	// when the slot of the key is moved by hand, and the newcomer begins in the middle of it,
	do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", do(t, from, "CLUSTER", "MYID"))
	do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", do(t, to, "CLUSTER", "MYID"))
	newcomer := f.LoadOn(f.Limiters[1:], name, calm)
	testkit.Eventually(t, "the newcomer's call", func() bool { return f.Limiters[1].Stats().Calls > 0 })
	for range 10 { // and what becomes of it: others are refused too, longer than it takes to be told so
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := directly(ctx, storeOn(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Masters[0].Addr}})), name); err == nil {
			t.Error("the slot is not on its way")
		}
		cancel()
	}
	id := do(t, to, "CLUSTER", "MYID")
	for left := 2; left > 0; { // more may come while some go
		keys := do(t, from, "CLUSTER", "GETKEYSINSLOT", slot, 10).([]any)
		args := []any{"MIGRATE", "127.0.0.1", s.Masters[1].Port, "", 0, 5000, "KEYS"}
		if left = len(keys); left > 0 {
			do(t, from, append(args, keys...)...)
		}
	}
	for _, admin := range []*redis.Client{to, from, s.admins[2]} {
		do(t, admin, "CLUSTER", "SETSLOT", slot, "NODE", id)
	}
	// then both are served there, and nobody has said a word about it.
	moved := f.Now()
	testkit.Eventually(t, "service of both", func() bool {
		return f.Seen(name, moved,
			f.Now()).Admitted > 500
	})
	newcomer.Stop()
	if out := log.String(); out != "" || f.Stats().Errors > 0 {
		t.Errorf("%d errors\n%s", f.Stats().Errors, out)
	}
	f.CheckBound(name, busy, 0)
}
