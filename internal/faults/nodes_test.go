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

// shards is a cluster of three masters, each with a replica if it is to have one.
type shards struct {
	masters, replicas []*redistest.Server
	admins            []*redis.Client // of the masters
}

func startShards(t *testing.T, replicas bool, args ...string) *shards {
	t.Helper()
	ctx := context.Background()
	s := &shards{}
	args = append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0"}, args...)
	start := func() (*redistest.Server, *redis.Client) {
		server := redistest.Start(t, args...)
		return server, client(t, server.Addr)
	}
	slots := [][2]int{{0, 5460}, {5461, 10922}, {10923, 16383}}
	var others []*redis.Client // all but the first
	for i := range slots {
		server, admin := start()
		s.masters, s.admins = append(s.masters, server), append(s.admins, admin)
		if err := admin.ClusterAddSlotsRange(ctx, slots[i][0], slots[i][1]).Err(); err != nil {
			t.Fatal(err)
		}
		do(t, admin, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i > 0 {
			do(t, admin, "CLUSTER", "MEET", "127.0.0.1", s.masters[0].Port)
			others = append(others, admin)
		}
	}
	var followers []*redis.Client
	if replicas {
		for range s.masters {
			server, admin := start()
			s.replicas, followers = append(s.replicas, server), append(followers, admin)
			do(t, admin, "CLUSTER", "MEET", "127.0.0.1", s.masters[0].Port)
		}
	}
	all := append(append([]*redis.Client{s.admins[0]}, others...), followers...)
	for _, admin := range all {
		looks := 0
		testkit.Eventually(t, "the cluster is up", func() bool {
			if looks++; looks%200 == 0 { // a handshake that takes a busy machine longer than the node timeout is given up
				for _, other := range all[1:] {
					_ = other.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(s.masters[0].Port)).Err()
				}
			}
			info := admin.ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384") &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(all)))
		})
	}
	for i, admin := range followers {
		id := do(t, s.admins[i], "CLUSTER", "MYID").(string)
		testkit.Eventually(t, "a replica that knows its master", func() bool { return admin.ClusterReplicate(ctx, id).Err() == nil })
	}
	for _, admin := range followers {
		testkit.Eventually(t, "a replica in sync", func() bool {
			return strings.Contains(admin.Info(ctx, "replication").Val(), "master_link_status:up")
		})
	}
	return s
}

// fleet is one limiter for each process, on cluster clients that know one node each.
func (s *shards) fleet(t *testing.T, size int, cfg hybrid.Config) (*Fleet, *redis.ClusterClient) {
	t.Helper()
	var stores []lease.Store
	var cluster *redis.ClusterClient
	for i := range size {
		cluster = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.masters[i%len(s.masters)].Addr}})
		stores = append(stores, storeOn(t, cluster))
	}
	return NewFleetOn(t, cfg, stores...), cluster
}

// keyOn is a key whose bucket is on master i.
func (s *shards) keyOn(t *testing.T, cluster *redis.ClusterClient, i int) string {
	t.Helper()
	for n := range 1000 {
		name := fmt.Sprint("key-", n)
		node, err := cluster.MasterForKey(context.Background(), "yuzhi:{"+name+"}")
		if err != nil {
			t.Fatal(err)
		}
		if node.Options().Addr == s.masters[i].Addr {
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
			if len(f) > 2 && strings.HasPrefix(f[1], dead.Addr+"@") && strings.Contains(","+f[2]+",", ",fail,") {
				return true
			}
		}
		return false
	})
}

// between is what became of key while the test did something.
func between(f *Fleet, name string, from, to time.Duration) string {
	s := f.Seen(name, from, to)
	return fmt.Sprintf("%d admitted, %d denied, slowest %v", s.Admitted, s.Denied, s.Slowest.Round(time.Microsecond))
}
