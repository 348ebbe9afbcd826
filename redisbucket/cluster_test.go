package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// startCluster is two masters that share the slots, and a client that knows one of them.
func startCluster(t *testing.T) ([2]*redistest.Server, *redis.ClusterClient) {
	t.Helper()
	ctx := context.Background()
	var servers [2]*redistest.Server
	var nodes [2]*redis.Client
	for i, slots := range [2][2]int{{0, 8191}, {8192, 16383}} {
		servers[i] = redistest.Start(t, "--cluster-enabled", "yes")
		nodes[i] = redis.NewClient(&redis.Options{Addr: servers[i].Addr})
		defer nodes[i].Close()
		if err := nodes[i].ClusterAddSlotsRange(ctx, slots[0], slots[1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodes[0].ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(servers[1].Port)).Err(); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		testkit.Eventually(t, "the cluster is up", func() bool {
			info := nodes[i].ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384")
		})
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].Addr}})
	t.Cleanup(func() { c.Close() })
	return servers, c
}

func TestAClusterIsServedNodeByNode(t *testing.T) {
	servers, cluster := startCluster(t)
	s, err := New(cluster, Config{})
	if err != nil {
		t.Fatal(err)
	}
	batch := func(seq int64) []*lease.Call {
		var calls []*lease.Call
		for i := range 40 {
			calls = append(calls, &lease.Call{Key: fmt.Sprintf("key} %d", i), Request: request(seq)})
		}
		return calls
	}

	// when 40 keys are called at once
	calls := batch(1)
	var mu sync.Mutex
	var groups [][]*lease.Call
	s.Exchange(context.Background(), calls, func(g []*lease.Call) {
		mu.Lock()
		defer mu.Unlock()
		groups = append(groups, g)
	})
	// then each node answers its own as one group, each call is in exactly one, and all are served
	if len(groups) != 2 || len(groups[0])+len(groups[1]) != len(calls) {
		t.Fatalf("%d groups", len(groups))
	}
	for _, g := range groups {
		for _, c := range g {
			if c.Err != nil || c.Grant.Granted != 10 || c.Node != g[0].Node {
				t.Errorf("%q on node %d: %+v, %v", c.Key, c.Node, c.Grant, c.Err)
			}
		}
	}
	if groups[0][0].Node == groups[1][0].Node {
		t.Error("both groups claim the same node")
	}
	if st, err := s.Inspect(context.Background(), calls[0].Key); err != nil || st.Counter != 1 {
		t.Errorf("%+v, %v", st, err)
	}

	// given that one of them hangs
	if err := servers[1].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer servers[1].Signal(syscall.SIGCONT)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served, failed := 0, 0
	s.Exchange(ctx, batch(2), func(g []*lease.Call) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range g {
			switch {
			case c.Err == nil:
				served++
			case errors.Is(c.Err, lease.ErrUnavailable):
				failed++
			default:
				t.Errorf("%q: %v", c.Key, c.Err)
			}
		}
		cancel() // only now: the healthy node's calls came back while the other still hung
	})
	// then only its own calls wait
	if served == 0 || failed == 0 || served+failed != len(calls) {
		t.Errorf("%d served, %d failed", served, failed)
	}
}

func TestAMovedSlotIsFollowed(t *testing.T) {
	// given a client whose idea of the slots is out of date
	servers, cluster := startCluster(t)
	s, err := New(cluster, Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := exchange(s, "k", request(1)); err != nil {
		t.Fatal(err)
	}
	key := s.bucketKey("k")
	var nodes [2]*redis.Client
	var ids [2]string
	for i, server := range servers {
		nodes[i] = redis.NewClient(&redis.Options{Addr: server.Addr})
		defer nodes[i].Close()
		ids[i] = nodes[i].Do(ctx, "CLUSTER", "MYID").Val().(string)
	}
	from, to := 0, 1
	if slot(key) > 8191 {
		from, to = 1, 0
	}
	must := func(c *redis.Client, args ...any) {
		t.Helper()
		if err := c.Do(ctx, args...).Err(); err != nil {
			t.Fatal(args, err)
		}
	}
	// when the slot is migrating and the record of a new holder does not exist yet
	must(nodes[to], "CLUSTER", "SETSLOT", slot(key), "IMPORTING", ids[from])
	must(nodes[from], "CLUSTER", "SETSLOT", slot(key), "MIGRATING", ids[to])
	r := request(1)
	r.Holder = "new"
	// then its call waits as long as its caller does,
	brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	given := &lease.Call{Key: "k", Request: r}
	s.Exchange(brief, []*lease.Call{given}, func([]*lease.Call) {})
	if !errors.Is(given.Err, lease.ErrUnavailable) || errors.Is(given.Err, lease.ErrPermanent) {
		t.Errorf("while the slot migrates: %v", given.Err)
	}
	// and says meanwhile that it has not been executed; one that travels with it and has a record
	// is served at once.
	r.Seq = 2
	known := request(2)
	held := []*lease.Call{{Key: "k", Request: r}, {Key: "k", Request: known}}
	served, finished := make(chan []*lease.Call, 2), make(chan bool)
	go func() {
		s.Exchange(ctx, held, func(g []*lease.Call) { served <- g })
		close(finished)
	}()
	if first := <-served; len(first) != 1 || first[0] != held[1] || first[0].Err != nil {
		t.Fatalf("%+v", first[0])
	}
	testkit.Eventually(t, "that the call is refused", func() bool { return redis.HasErrorPrefix(held[0].Unsent(), "TRYAGAIN") })
	// and when the slot has moved
	must(nodes[from], "MIGRATE", "127.0.0.1", servers[to].Port, "", 0, 5000, "KEYS", key, recordKey(key, "h"))
	for _, n := range []int{to, from} {
		must(nodes[n], "CLUSTER", "SETSLOT", slot(key), "NODE", ids[to])
	}
	// then the call follows it by itself, the state came along, and each was executed once
	<-finished
	if held[0].Err != nil || held[0].Grant.Counter != 3 {
		t.Errorf("after the move: %+v, %v", held[0].Grant, held[0].Err)
	}
}
