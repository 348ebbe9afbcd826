package faults

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

const masterName = "buckets"

// sentinels is a master, a replica, and three Sentinels that watch them, each a process of its own.
type sentinels struct {
	master, replica *site
	addrs           []string // of the Sentinels
}

func startSentinels(t *testing.T) *sentinels {
	t.Helper()
	const soon = "--repl-diskless-sync-delay"
	s := &sentinels{master: start(t, soon, "0"), replica: start(t, soon, "0")}
	s.replica.do("SLAVEOF", "127.0.0.1", s.master.Port)
	s.replica.AwaitSync(t) // before a Sentinel looks, which it does every 10 s only
	for range 3 {
		s.addrs = append(s.addrs, redistest.StartSentinel(t, masterName, s.master.Server).Addr)
	}
	for _, addr := range s.addrs {
		sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { sentinel.Close() })
		testkit.Eventually(t, "a Sentinel that knows the others and a replica in sync", func() bool {
			others, _ := sentinel.Sentinels(t.Context(), masterName).Result()
			// "replicas" since Redis 5 only
			slaves := redis.NewMapStringStringSliceCmd(t.Context(), "sentinel", "slaves", masterName)
			_ = sentinel.Process(t.Context(), slaves)
			replicas := slaves.Val()
			return len(others) == 2 && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok" &&
				replicas[0]["flags"] == "slave"
		})
	}
	return s
}

// current is the address of the master as the first Sentinel knows it.
func (s *sentinels) current(t *testing.T) string {
	t.Helper()
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: s.addrs[0]})
	defer sentinel.Close()
	addr, err := sentinel.GetMasterAddrByName(t.Context(), masterName).Result()
	testkit.NoErr(t, err)
	return net.JoinHostPort(addr[0], addr[1])
}

func TestRow18SentinelReplacesAKilledMasterAndTheLimiterFollows(t *testing.T) {
	each(t, map[string]hybrid.Fallback{"FallbackDeny": hybrid.FallbackDeny,
		"FallbackLocalShare": hybrid.FallbackLocalShare}, func(t *testing.T, fallback hybrid.Fallback) {
		// Given three processes that ask for more than the rate, whose clients ask the Sentinels where
		// the master is,
		s := startSentinels(t)
		var stores []lease.Store
		for range 3 {
			stores = append(stores, storeOn(t, redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: masterName, SentinelAddrs: s.addrs})))
		}
		f := newFleet(t, with(busy, hybrid.Policy{Fallback: fallback}), stores...)
		f.store = s.replica.store()
		load := f.load(key, 2*int(busy.Tokens))
		f.warm()
		f.awaitRecovery(busy.Tokens)
		// when the master is killed,
		killed := f.now()
		s.master.Kill()
		// then the processes go on by what Policy.Fallback says, and nobody waits,
		testkit.Eventually(t, "calls that fail", func() bool { return f.stats().Errors >= 3 })
		testkit.Eventually(t, "a new master", func() bool { return s.current(t) == s.replica.Addr })
		elected := f.now()
		// and follow to the new one within 2T of the election.
		f.checkRecovers(busy.Tokens)
		back := f.now()
		load.stop()
		t.Logf("a new master %v after the kill, a second at the rate %v after it; meanwhile %v; %d by fallback",
			elected-killed, back-killed, f.seen(key, killed, back), f.stats().Fallback)
		f.checkNobodyWaited(key, killed, back)
		switch without := f.stats().Fallback; fallback {
		case hybrid.FallbackDeny:
			// Through all of it (1) holds.
			f.checkBound(key, busy, 0)
			testkit.Check(t, without == 0, "%d admitted without the store", without)
		case hybrid.FallbackLocalShare:
			// At most a local burst of each process and its share of the rate more: here, both once over.
			f.checkBound(key, hybrid.PerSecond(2*busy.Tokens).WithBurst(2*busy.Burst), 0)
			testkit.Check(t, without > 0, "nothing was admitted without the store")
		}
	})
}

// calm is what the tests of clusters ask of each key: half of what its limit gives, so that
// whatever is denied is the fault's doing.
const calm = 500

// calmly does not take a busy machine for a dead node.
var calmly = hybrid.Config{Limits: []hybrid.Limit{busy}, CallTimeout: time.Second,
	Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny, TTL: time.Second}}

// shards is a cluster of three masters, and two limiters on clients that know one of them each.
type shards struct {
	*fleet
	masters  []*site
	replicas []*site // of the masters, in their order; none where there are no replicas
	client   *redis.ClusterClient
}

func startShards(t *testing.T, replicas bool, cfg hybrid.Config, args ...string) *shards {
	t.Helper()
	s := &shards{}
	args = append(args, "--cluster-node-timeout", "1000")
	cluster := redistest.StartCluster(t, 3, replicas, args...)
	for _, m := range cluster.Masters {
		s.masters = append(s.masters, siteOf(t, m))
	}
	for _, r := range cluster.Replicas {
		s.replicas = append(s.replicas, siteOf(t, r))
	}
	var stores []lease.Store
	for i := range 2 {
		s.client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.masters[i].Addr}})
		stores = append(stores, storeOn(t, s.client))
	}
	s.fleet = newFleet(t, cfg, stores...)
	return s
}

// keyOn is a key whose bucket is on master i.
func (s *shards) keyOn(i int) string {
	s.t.Helper()
	for n := range 1000 {
		name := fmt.Sprint("key-", n)
		node, err := s.client.MasterForKey(context.Background(), bucketOf(name))
		testkit.NoErr(s.t, err)
		if node.Options().Addr == s.masters[i].Addr {
			return name
		}
	}
	s.t.Fatalf("no key on master %d", i)
	return ""
}

// killFirst kills the first master, and returns when the others have noticed; before says when.
func (s *shards) killFirst() (before time.Duration) {
	s.t.Helper()
	before = s.now()
	s.masters[0].Kill()
	for _, m := range s.masters[1:] {
		testkit.Eventually(s.t, "the others notice", func() bool {
			for line := range strings.SplitSeq(m.ctl.ClusterNodes(context.Background()).Val(), "\n") {
				f := strings.Fields(line)
				if len(f) > 2 && strings.HasPrefix(f[1], s.masters[0].Addr+"@") &&
					strings.Contains(","+f[2]+",", ",fail,") {
					return true
				}
			}
			return false
		})
	}
	return before
}

// check is the end of every story: nobody has waited for a dead node since, and the promise held.
func (s *shards) check(since time.Duration, names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.checkNobodyWaited(name, since, s.now())
		s.checkBound(name, busy, 0)
	}
}

func TestRow19AFailoverInAClusterDegradesItsSlotsOnly(t *testing.T) {
	t.Parallel()
	// Given two processes that use a key on each of three masters, each of which has a replica,
	s := startShards(t, true, calmly, "--cluster-require-full-coverage", "no")
	names := []string{s.keyOn(0), s.keyOn(1), s.keyOn(2)}
	served := func(name string) {
		t.Helper()
		testkit.Eventually(t, "service", func() bool { return s.next(name, 100).denied == 0 })
	}
	for _, name := range names {
		s.load(name, calm/2)
	}
	for _, name := range names {
		served(name)
	}
	// when one master is killed,
	killed := s.killFirst()
	// then its replica takes over, and its key is served again after a while,
	testkit.Eventually(t, "denials", func() bool { return s.seen(names[0], killed, s.now()).denied > 0 })
	served(names[0])
	back := s.now()
	t.Logf("served again %v after the kill: %v", back-killed, s.seen(names[0], killed, back))
	// the other keys were served all the time,
	for _, name := range names[1:] {
		// not none denied: a machine that stands still denies some
		seen := s.seen(name, killed, back)
		testkit.Check(t, seen.denied <= seen.admitted, "%s was denied too: %v", name, seen)
	}
	s.check(killed, names...)
}

func TestRow20AShardWithoutAReplicaTakesDownItsOwnKeysOrAll(t *testing.T) {
	t.Parallel()
	for name, coverage := range map[string]string{"any slots will do": "no", "all slots are required": "yes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Given a cluster without replicas,
			s := startShards(t, false, calmly, "--cluster-require-full-coverage", coverage)
			lost, kept := s.keyOn(0), s.keyOn(1)
			for _, name := range []string{lost, kept} {
				s.load(name, calm/2)
				s.awaitAdmitted(name, 100)
			}
			// when a master is killed and the others have noticed,
			killed := s.killFirst()
			// then its keys are denied for good, and the others' where the cluster insists on all slots.
			testkit.Eventually(t, "that its key is denied", func() bool { return s.next(lost, 200).admitted == 0 })
			testkit.Eventually(t, "the state of the other", func() bool {
				seen := s.next(kept, 200)
				return coverage == "no" && seen.denied == 0 || coverage == "yes" && seen.admitted == 0
			})
			s.check(killed, lost, kept)
		})
	}
}

func TestRow20ASlotMovedByHandIsFollowedInSilence(t *testing.T) {
	t.Parallel()
	// Given a process that uses a key, and one that has never heard of it,
	var log diary
	cfg := calmly
	cfg.Logger = log.logger()
	s := startShards(t, false, cfg)
	name := s.keyOn(0)
	s.loadOn(s.limiters[:1], name, calm)
	s.awaitAdmitted(name, 100)
	from, to := s.masters[0], s.masters[1]
	slot, id := from.do("CLUSTER", "KEYSLOT", bucketOf(name)), to.do("CLUSTER", "MYID")
	// when the slot of the key is moved by hand, and the newcomer begins in the middle of it,
	to.do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.do("CLUSTER", "MYID"))
	from.do("CLUSTER", "SETSLOT", slot, "MIGRATING", id)
	newcomer := s.loadOn(s.limiters[1:], name, calm)
	testkit.Eventually(t, "the newcomer's call", func() bool { return s.limiters[1].Stats().Calls > 0 })
	for range 10 { // and what becomes of it: others are refused too, longer than it takes to be told so
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		other := storeOn(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{from.Addr}}))
		testkit.Check(t, call(ctx, other, name) != nil, "the slot is not on its way")
		cancel()
	}
	for left := 2; left > 0; { // more may come while some go
		keys := from.do("CLUSTER", "GETKEYSINSLOT", slot, 10).([]any)
		if left = len(keys); left > 0 {
			from.do(append([]any{"MIGRATE", "127.0.0.1", to.Port, "", 0, 5000, "KEYS"}, keys...)...)
		}
	}
	for _, m := range []*site{to, from, s.masters[2]} {
		m.do("CLUSTER", "SETSLOT", slot, "NODE", id)
	}
	// then both are served there, and nobody has said a word about it.
	s.awaitAdmitted(name, 500)
	newcomer.stop()
	errs := s.stats().Errors
	testkit.Check(t, log.String() == "" && errs == 0, "%d errors\n%s", errs, log.String())
	s.checkBound(name, busy, 0)
}

// awkward are keys that users make of their input. (Random ones: FuzzBucketKey in redisbucket.)
var awkward = []string{"{", "}", "{}", "}{", "a{b}c{d}", "{a}", "{a}}", "%", "%7D", "%e", "\x00", "a\x00b",
	"\r\n", "*1\r\n$4\r\nPING\r\n", "\xff\xfe", ":", "a:b", "用户:{1}", " ", strings.Repeat("k", 1024),
	strings.Repeat("k", 1025), strings.Repeat("}", 10_000), strings.Repeat("{", 10_000)}

func TestRow21AnyBytesAsAKeyAreServedByACluster(t *testing.T) {
	t.Parallel()
	// Given a server that checks, as every node of a cluster does, that the keys of a script are in
	// one slot,
	server := siteOf(t, redistest.StartCluster(t, 1, false).Masters[0])
	err := server.ctl.Eval(t.Context(), "return 1", []string{"yuzhi:k", "yuzhi:k:holder"}).Err()
	testkit.Must(t, redis.HasErrorPrefix(err, "CROSSSLOT"), "it does not: %v", err)
	store := storeOn(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}}))
	f := newFleet(t, patient(hourly, denying), store, store)
	for _, name := range awkward {
		// when two processes use keys of any bytes,
		for _, l := range f.limiters {
			// then each is served by the store,
			r, err := l.Take(t.Context(), name, 1)
			testkit.Check(t, err == nil && r.OK && r.Source == hybrid.SourceStore, "%.20q: %+v, %v", name, r, err)
		}
	}
	testkit.Check(t, f.stats().Errors == 0, "%d calls failed", f.stats().Errors)
	for _, name := range awkward {
		// and no two keys share a bucket: two tokens of each are gone.
		st, err := store.Inspect(t.Context(), name)
		testkit.Check(t, err == nil && st.Levels[0]+st.Ledger == hourly.Tokens-2, "%.20q: %+v, %v", name, st, err)
	}
}
