package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2/proto"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// Cluster has masters that share the slots evenly, each with a replica if requested.
type Cluster struct {
	Masters, Replicas []*Server
}

// StartCluster runs a cluster and returns once every node knows the whole cluster. Every server gets args.
func StartCluster(t testing.TB, masters int, replicas bool, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{}
	args = append([]string{"--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0"}, args...)
	const slots = 16384
	for i := range masters {
		m := Start(t, args...)
		c.Masters = append(c.Masters, m)
		add := []string{"CLUSTER", "ADDSLOTS"}
		for slot := slots * i / masters; slot < slots*(i+1)/masters; slot++ {
			add = append(add, strconv.Itoa(slot))
		}
		m.Do(t, add...)
		m.Do(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if replicas {
			c.Replicas = append(c.Replicas, Start(t, args...))
		}
	}
	all := append(c.Masters[:masters:masters], c.Replicas...)
	for _, s := range all {
		looks := 0
		testkit.Eventually(t, "the cluster is up", func() bool {
			if looks++; looks%200 == 1 { // repeated, because a busy server may give up a handshake
				for _, other := range all[1:] {
					other.Ask("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(all[0].Port))
				}
			}
			info := s.Ask("CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384") &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(all)))
		})
	}
	for i, r := range c.Replicas {
		id, _ := proto.ReadString(c.Masters[i].Do(t, "CLUSTER", "MYID"))
		testkit.Eventually(t, "a replica that knows its master", func() bool {
			return r.Ask("CLUSTER", "REPLICATE", id) == "+OK\r\n"
		})
		r.AwaitSync(t)
	}
	return c
}

// AwaitSync returns once s, a replica, has all of its master's data.
func (s *Server) AwaitSync(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, "a replica in sync", func() bool {
		return strings.Contains(s.Ask("INFO", "replication"), "master_link_status:up")
	})
}

// StartSentinel runs one Sentinel that watches master under the given name, with a quorum of 2.
func StartSentinel(t testing.TB, name string, master *Server) *Server {
	t.Helper()
	return start(t, func(s *Server) []string {
		file := filepath.Join(s.Dir, "sentinel.conf") // the Sentinel writes to this file
		text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor %[3]s 127.0.0.1 %d 2\n"+
			"sentinel down-after-milliseconds %[3]s 1000\nsentinel failover-timeout %[3]s 5000\n",
			s.Port, s.Dir, name, master.Port)
		testkit.NoErr(t, os.WriteFile(file, []byte(text), 0o600))
		return []string{file, "--sentinel"}
	})
}
