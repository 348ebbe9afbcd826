package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// startCluster is two masters that share the slots, and a store whose client knows one of them.
func startCluster(t *testing.T) ([]*redistest.Server, *Store) {
	t.Helper()
	masters := redistest.StartCluster(t, 2, false).Masters
	return masters, storeOver(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{masters[0].Addr}}))
}

func TestAClusterIsServedNodeByNode(t *testing.T) {
	servers, s := startCluster(t)
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
	must(t, servers[1].Signal(syscall.SIGSTOP))
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
	servers, s := startCluster(t)
	ctx := context.Background()
	if _, err := exchange(s, "k", request(1)); err != nil {
		t.Fatal(err)
	}
	key := s.bucketKey("k")
	var ids [2]string
	for i, server := range servers {
		id, err := proto.ReadString(server.Do(t, "CLUSTER", "MYID"))
		must(t, err)
		ids[i] = id
	}
	from, to := 0, 1
	if slot(key) > 8191 {
		from, to = 1, 0
	}
	number := fmt.Sprint(slot(key))
	// when the slot is migrating and the record of a new holder does not exist yet
	servers[to].Do(t, "CLUSTER", "SETSLOT", number, "IMPORTING", ids[from])
	servers[from].Do(t, "CLUSTER", "SETSLOT", number, "MIGRATING", ids[to])
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
	testkit.Eventually(t, "that the call is refused",
		func() bool { return redis.HasErrorPrefix(held[0].Unsent(), "TRYAGAIN") })
	// and when the slot has moved
	servers[from].Do(t, "MIGRATE", "127.0.0.1", fmt.Sprint(servers[to].Port), "", "0", "5000", "KEYS", key,
		recordKey(key, "h"))
	for _, n := range []int{to, from} {
		servers[n].Do(t, "CLUSTER", "SETSLOT", number, "NODE", ids[to])
	}
	// then the call follows it by itself, the state came along, and each was executed once
	<-finished
	if held[0].Err != nil || held[0].Grant.Counter != 3 {
		t.Errorf("after the move: %+v, %v", held[0].Grant, held[0].Err)
	}
}
