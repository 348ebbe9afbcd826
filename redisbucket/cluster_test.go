package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// TestOnACluster runs several tests on two masters that share the slots, because a cluster takes two
// seconds to serve. Each has a store of its own, whose client knows one of them.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	masters := redistest.StartCluster(t, 2, false).Masters
	for name, test := range map[string]func(*testing.T, []*redistest.Server, *Store){
		"ping reaches every master": pingReachesEveryMaster, "it is served node by node": servedNodeByNode,
		"it is scanned whole": scannedWhole, "a moved slot is followed": movedSlotIsFollowed,
		"a node refuses draws that travel together": nodeRefusesTogether,
	} {
		t.Run(name, func(t *testing.T) {
			for _, m := range masters {
				m.Do(t, "FLUSHALL")
				m.Do(t, "SCRIPT", "FLUSH")
			}
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{masters[0].Addr},
				DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience})
			test(t, masters, storeOver(t, rdb))
		})
	}
}

func pingReachesEveryMaster(t *testing.T, servers []*redistest.Server, s *Store) {
	testkit.NoErr(t, s.Ping(t.Context()))
	for _, server := range servers {
		one := redis.NewClient(patient(server.Addr))
		defer one.Close()
		known := one.ScriptExists(t.Context(), s.leaseScript.sha, s.configureScript.sha).Val()
		testkit.Check(t, len(known) == 2 && known[0] && known[1], "%s knows %v", server.Addr, known)
	}
}

func servedNodeByNode(t *testing.T, servers []*redistest.Server, s *Store) {
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprintf("key} %d", i))
	}

	testkit.Check(t, s.NodeOf(keys[0]) == -1, "the node of a key is known before any call")

	// when 40 keys are called at once
	calls := pair(1, keys...)
	groups := exchangeAll(s, calls)
	// then each node answers its own as one group, each call is in exactly one, and all are served
	testkit.Must(t, len(groups) == 2 && len(groups[0])+len(groups[1]) == len(calls), "%d groups", len(groups))
	for _, g := range groups {
		for _, c := range g {
			testkit.Check(t, c.Err == nil && c.Grant.Granted == 10 && c.Node == g[0].Node, "%q on node %d: %+v, %v",
				c.Key, c.Node, c.Grant, c.Err)
			testkit.Check(t, s.NodeOf(c.Key) == c.Node, "%q is said to be on node %d", c.Key, s.NodeOf(c.Key))
		}
	}
	testkit.Check(t, groups[0][0].Node != groups[1][0].Node, "both groups claim the same node")
	st, err := s.Inspect(context.Background(), calls[0].Key)
	testkit.Check(t, err == nil && st.Counter == 1, "%+v, %v", st, err)

	// given that one of them hangs
	servers[1].Hang(t)
	defer servers[1].Resume(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	served, failed := 0, 0
	s.Exchange(ctx, pair(2, keys...), func(g []*lease.Call) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range g {
			if c.Err == nil {
				served++
			} else {
				failed++
				testkit.Check(t, errors.Is(c.Err, lease.ErrUnavailable), "%q: %v", c.Key, c.Err)
			}
		}
		if cancel(); failed > 0 { // only now: the healthy node's calls came back while the other still hung
			servers[1].Resume(t) // the client waits for it
		}
	})
	// then only its own calls wait
	all := served+failed == len(calls)
	testkit.Check(t, served > 0 && failed > 0 && all, "%d served, %d failed", served, failed)
}

func scannedWhole(t *testing.T, _ []*redistest.Server, s *Store) {
	for i := range 40 {
		granted(t, s, fmt.Sprint("k", i), request(1))
	}
	busy, err := s.Busiest(t.Context(), BusiestOptions{Count: 5, Interval: time.Millisecond})
	testkit.Check(t, err == nil && busy.Read == 40 && len(busy.Keys) == 5, "%+v, %v", busy, err)
	for _, k := range busy.Keys {
		testkit.Check(t, len(k.Levels) == 1 && k.Holders == 1 && !k.New, "%+v", k)
	}
	v, err := s.Look(t.Context(), "k3")
	testkit.Check(t, err == nil && len(v.Holders) == 1, "%+v, %v", v, err)
}

func movedSlotIsFollowed(t *testing.T, servers []*redistest.Server, s *Store) {
	// given a client whose idea of the slots is out of date
	ctx, key := context.Background(), s.bucketKey("k")
	granted(t, s, "k", request(1))
	from, to := servers[0], servers[1]
	if slot(key) > 8191 {
		from, to = to, from
	}
	id := func(server *redistest.Server) string {
		id, err := proto.ReadString(server.Do(t, "CLUSTER", "MYID"))
		testkit.NoErr(t, err)
		return id
	}
	number := fmt.Sprint(slot(key))
	// when the slot is migrating and the record of a new holder does not exist yet
	to.Do(t, "CLUSTER", "SETSLOT", number, "IMPORTING", id(from))
	from.Do(t, "CLUSTER", "SETSLOT", number, "MIGRATING", id(to))
	// then its call waits as long as its caller does,
	brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	given := pair(1, "k")
	given[0].Request.Holder = "new"
	s.Exchange(brief, given, func([]*lease.Call) {})
	checkError(t, "while the slot migrates", given[0].Err, map[error]bool{lease.ErrUnavailable: true,
		lease.ErrPermanent: false})
	// and says meanwhile that it has not been executed; one that travels with it and has a record
	// is served at once.
	held := pair(2, "k", "k")
	held[0].Request.Holder = "new"
	served, finished := make(chan []*lease.Call, 2), make(chan bool)
	go func() {
		s.Exchange(ctx, held, func(g []*lease.Call) { served <- g })
		close(finished)
	}()
	first := <-served
	testkit.Must(t, len(first) == 1 && first[0] == held[1] && first[0].Err == nil, "%+v", first[0].Err)
	testkit.Eventually(t, "a refusal", func() bool { return redis.HasErrorPrefix(held[0].Unsent(), "TRYAGAIN") })
	// and when the slot has moved
	from.Do(t, "MIGRATE", "127.0.0.1", fmt.Sprint(to.Port), "", "0", "60000", "KEYS", key, recordKey(key, "h"))
	for _, server := range []*redistest.Server{to, from} {
		server.Do(t, "CLUSTER", "SETSLOT", number, "NODE", id(to))
	}
	// then the call follows it by itself, the state came along, and each was executed once
	<-finished
	g, err := held[0].Grant, held[0].Err
	testkit.Check(t, err == nil && g.Counter == 3, "after the move: %+v, %v", g, err)
}
