package faults

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

const masterName = "buckets"

// sentinels is a master, a replica, and three Sentinels that watch them, each a process of its own.
type sentinels struct {
	master, replica *redistest.Server
	addrs           []string // of the Sentinels
}

func startSentinels(t *testing.T, args ...string) *sentinels {
	t.Helper()
	ctx := context.Background()
	args = append(args, "--repl-diskless-sync-delay", "0")
	s := &sentinels{master: redistest.Start(t, args...), replica: redistest.Start(t, args...)}
	do(t, client(t, s.replica.Addr), "SLAVEOF", "127.0.0.1", s.master.Port)
	s.replica.AwaitSync(t) // before a Sentinel looks, which it does every 10 s only
	for range 3 {
		s.addrs = append(s.addrs, redistest.StartSentinel(t, masterName, s.master).Addr)
	}
	for _, addr := range s.addrs {
		sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { sentinel.Close() })
		testkit.Eventually(t, "a Sentinel that knows the others and a replica in sync", func() bool {
			others, _ := sentinel.Sentinels(ctx, masterName).Result()
			// "replicas" since Redis 5 only
			slaves := redis.NewMapStringStringSliceCmd(ctx, "sentinel", "slaves", masterName)
			_ = sentinel.Process(ctx, slaves)
			replicas := slaves.Val()
			return len(others) == 2 && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok" &&
				replicas[0]["flags"] == "slave"
		})
	}
	return s
}

// current is the address of the master as the first Sentinel knows it.
func (s *sentinels) current(t *testing.T, sentinel *redis.SentinelClient) string {
	t.Helper()
	addr, err := sentinel.GetMasterAddrByName(context.Background(), masterName).Result()
	must(t, err)
	return net.JoinHostPort(addr[0], addr[1])
}

// failoverFleet is limiters whose clients ask the Sentinels where the master is.
func failoverFleet(t *testing.T, s *sentinels, size int, cfg hybrid.Config) *Fleet {
	t.Helper()
	var stores []lease.Store
	for range size {
		stores = append(stores, storeOn(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: masterName, SentinelAddrs: s.addrs})))
	}
	return NewFleetOn(t, cfg, stores...)
}

func TestRow18SentinelReplacesAKilledMasterAndTheLimiterFollows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		fallback hybrid.Fallback
	}{{"FallbackDeny", hybrid.FallbackDeny}, {"FallbackLocalShare", hybrid.FallbackLocalShare}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// Given three processes that ask for more than the rate, and three Sentinels,
			s := startSentinels(t)
			first := redis.NewSentinelClient(&redis.Options{Addr: s.addrs[0]})
			t.Cleanup(func() { first.Close() })
			limits := []hybrid.Limit{busy}
			f := failoverFleet(t, s, 3, hybrid.Config{Limits: limits,
				Policy: hybrid.Policy{Fallback: c.fallback}})
			load := f.Load(key, 2*int(busy.Tokens))
			f.Warm()
			f.AwaitRecovery(busy.Tokens)
			// when the master is killed,
			killed := f.Now()
			s.master.Kill()
			// then the processes go on by what Policy.Fallback says, and nobody waits,
			testkit.Eventually(t, "calls that fail", func() bool { return f.Stats().Errors >= 3 })
			testkit.Eventually(t, "a new master",
				func() bool { return s.current(t, first) == s.replica.Addr })
			elected := f.Now()
			// and follow to the new one.
			took := f.AwaitRecovery(busy.Tokens)
			st, err := storeOn(t, client(t, s.replica.Addr)).Inspect(t.Context(), key)
			must(t, err)
			took.CheckInTime(t, st.Config.TTL) // of the election
			back := elected + took.After
			load.Stop()
			during := f.Seen(key, killed, back)
			t.Logf("a new master %v after the kill, the rate again %v after it; meanwhile %d admitted, %d denied; %d admitted by fallback; slowest decision %v",
				elected-killed, back-killed, during.Admitted, during.Denied, f.Stats().Fallback,
				during.Slowest)
			f.CheckNobodyWaited(key, killed, back)
			switch c.fallback {
			case hybrid.FallbackDeny:
				// Through all of it (1) holds.
				f.CheckBound(key, busy, 0)
				if n := f.Stats().Fallback; n != 0 {
					t.Errorf("%d admitted without the store", n)
				}
			case hybrid.FallbackLocalShare:
				// At most a local burst of each process and its share of the rate more: here, both once over.
				f.CheckBound(key, hybrid.PerSecond(2*busy.Tokens).WithBurst(2*busy.Burst), 0)
				if f.Stats().Fallback == 0 {
					t.Error("nothing was admitted without the store")
				}
			}
		})
	}
}
