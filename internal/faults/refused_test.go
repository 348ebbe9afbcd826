package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// nobody is an address at which no master is.
var nobody = []any{"127.0.0.1", "1"}

// refusal is a server that answers every lease call with one error, until it is cured.
func refusal(t *testing.T, code string, args []string, inject, cure func(t *testing.T, s *redistest.Server, ctl *redis.Client)) {
	t.Parallel()
	server := redistest.Start(t, args...)
	ctl := admin(t, server.Addr)
	all := newModes(t, server.Addr, "", nil)
	all.suffer(t, outage{
		inject: func() { inject(t, server, ctl) },
		cure:   func() { cure(t, server, ctl) },
		says:   ": " + code + " ",
		is:     lease.ErrRefused,
	})
}

// set is a CONFIG SET.
func setting(name, value string) func(*testing.T, *redistest.Server, *redis.Client) {
	return func(t *testing.T, _ *redistest.Server, ctl *redis.Client) {
		must(t, ctl.ConfigSet(t.Context(), name, value).Err())
	}
}

// replicaOf makes a server the replica of a master.
func replicaOf(master ...any) func(*testing.T, *redistest.Server, *redis.Client) {
	return func(t *testing.T, _ *redistest.Server, ctl *redis.Client) {
		must(t, ctl.Do(t.Context(), append([]any{"REPLICAOF"}, master...)...).Err())
	}
}

func TestRow22AReplicaIsAnOutage(t *testing.T) {
	refusal(t, "READONLY", nil, replicaOf(nobody...), replicaOf("NO", "ONE"))
}

func TestRow22AReplicaWithoutMasterIsAnOutage(t *testing.T) {
	refusal(t, "MASTERDOWN", []string{"--replica-serve-stale-data", "no"}, replicaOf(nobody...), replicaOf("NO", "ONE"))
}

func TestRow22TooFewReplicasAreAnOutage(t *testing.T) {
	refusal(t, "NOREPLICAS", nil, setting("min-replicas-to-write", "1"), setting("min-replicas-to-write", "0"))
}

func TestRow22AServerThatCannotSaveIsAnOutage(t *testing.T) {
	// A directory where the dump should be: no save succeeds, whoever runs the test.
	save := func(t *testing.T, ctl *redis.Client, want string) {
		testkit.Eventually(t, "a save that ends with "+want, func() bool {
			ctl.BgSave(t.Context()) // an error where one is under way
			return strings.Contains(ctl.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:"+want)
		})
	}
	refusal(t, "MISCONF", nil, func(t *testing.T, s *redistest.Server, ctl *redis.Client) {
		must(t, os.Mkdir(filepath.Join(s.Dir, "dump.rdb"), 0o755))
		setting("save", "3600 1000000000")(t, s, ctl)
		save(t, ctl, "err")
	}, func(t *testing.T, s *redistest.Server, ctl *redis.Client) {
		must(t, os.Remove(filepath.Join(s.Dir, "dump.rdb")))
		save(t, ctl, "ok")
	})
}

func TestRow22ALoadingServerIsAnOutage(t *testing.T) {
	// A thousand keys in the base of the append-only file, each of which is to take ten milliseconds to load.
	refusal(t, "LOADING", []string{"--appendonly", "yes", "--appendfsync", "no", "--loading-process-events-interval-bytes", "1024"},
		func(t *testing.T, s *redistest.Server, ctl *redis.Client) {
			fill := "for i = 1, 1000 do redis.call('SET', 'filler' .. i, string.rep('x', 100)) end return 1"
			must(t, ctl.Eval(t.Context(), fill, nil).Err())
			must(t, ctl.BgRewriteAOF(t.Context()).Err())
			testkit.Eventually(t, "a rewritten file", func() bool {
				info := ctl.Info(t.Context(), "persistence").Val()
				return strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0")
			})
			s.RestartLoading(t, "--key-load-delay", "10000")
		}, setting("key-load-delay", "0"))
}
