package redisbucket

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A server that answers reads and refuses what a lease call needs is named by Ping, before the first request is
// denied.
func TestPingTriesWhatALeaseCallNeeds(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	for what, c := range map[string]struct{ set, says string }{
		"a read-only replica":        {"replicaof", "READONLY"},
		"a server without memory":    {"maxmemory 1", "OOM"},
		"too few replicas":           {"min-replicas-to-write 1", "NOREPLICAS"},
		"no permission to write":     {"acl", "NOPERM"},
		"a server that serves calls": {"", ""},
	} {
		t.Run(what, func(t *testing.T) {
			server := redistest.Start(t)
			client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1})
			defer client.Close()
			switch name, value, config := strings.Cut(c.set, " "); {
			case config:
				testkit.NoErr(t, client.ConfigSet(t.Context(), name, value).Err())
			case c.set == "replicaof":
				host, port, _ := strings.Cut(master.Addr, ":")
				testkit.NoErr(t, client.ReplicaOf(t.Context(), host, port).Err())
			case c.set == "acl":
				testkit.NoErr(t, client.Do(t.Context(), "acl", "setuser", "default", "-set").Err())
			}
			s := storeOver(t, client)
			err := s.Ping(t.Context())
			if c.says == "" {
				testkit.NoErr(t, err)
				testkit.Check(t, client.DBSize(t.Context()).Val() == 0, "Ping has written a key")
				return
			}
			testkit.Must(t, err != nil, "Ping says that all is well")
			checkError(t, what, err, map[error]bool{lease.ErrRefused: true})
			testkit.Check(t, strings.Contains(err.Error(), c.says) && strings.Contains(err.Error(), server.Addr),
				"%v", err)
		})
	}
}
