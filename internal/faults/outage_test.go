package faults

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// injection makes the outage of a server, to which ctl is the operator's connection.
type injection func(t *testing.T, s *redistest.Server, ctl *redis.Client) outage

// hang stops a server as a process that hangs does, and lets it go on.
func hang(t *testing.T, server *redistest.Server, _ *redis.Client) outage {
	return outage{
		inject: func() { must(t, server.Signal(syscall.SIGSTOP)) },
		cure:   func() { must(t, server.Signal(syscall.SIGCONT)) },
	}
}

// outages are the ways in which a store goes away from all processes at once, and comes back.
var outages = []struct {
	name   string
	args   []string
	client func(*redis.Options)
	how    injection
}{
	// The server writes everything to its file before it answers, so it forgets nothing when it is
	// killed.
	{"Row01 Redis is down", []string{"--appendonly", "yes", "--appendfsync", "no"}, nil,
		func(t *testing.T, s *redistest.Server, _ *redis.Client) outage {
			return outage{inject: s.Kill, cure: func() { s.Restart(t) }}
		}},
	// It executes every probe that was sent meanwhile once it goes on.
	{"Row03 a hung server", nil, nil, hang},
	{"Row10 an exhausted pool delays renewals and not requests", nil,
		func(o *redis.Options) { o.PoolSize = 1 }, hang},
	// The server has room for one client alone, and that is ours. It says so before it is asked, and
	// go-redis does not read that: all that is heard is a broken pipe.
	{"Row11 no more clients", nil, nil, func(t *testing.T, _ *redistest.Server, ctl *redis.Client) outage {
		return outage{inject: func() {
			set(t, ctl, "maxclients", "1")
			do(t, ctl, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		}, cure: func() { set(t, ctl, "maxclients", "10000") }}
	}},
	{"Row22 a replica", nil, nil, func(t *testing.T, _ *redistest.Server, ctl *redis.Client) outage {
		return refusal("READONLY", func() { do(t, ctl, "REPLICAOF", "127.0.0.1", "1") },
			func() { do(t, ctl, "REPLICAOF", "NO", "ONE") })
	}},
	{"Row22 a replica without a master", []string{"--replica-serve-stale-data", "no"}, nil,
		func(t *testing.T, _ *redistest.Server, ctl *redis.Client) outage {
			return refusal("MASTERDOWN", func() { do(t, ctl, "REPLICAOF", "127.0.0.1", "1") },
				func() { do(t, ctl, "REPLICAOF", "NO", "ONE") })
		}},
	{"Row22 too few replicas", nil, nil, func(t *testing.T, _ *redistest.Server, ctl *redis.Client) outage {
		return refusal("NOREPLICAS", func() { set(t, ctl, "min-replicas-to-write", "1") },
			func() { set(t, ctl, "min-replicas-to-write", "0") })
	}},
	// A directory where the dump should be: no save succeeds, whoever runs the test.
	{"Row22 a server that cannot save", nil, nil,
		func(t *testing.T, s *redistest.Server, ctl *redis.Client) outage {
			dump := filepath.Join(s.Dir, "dump.rdb")
			save := func(want string) {
				testkit.Eventually(t, "a save that ends with "+want, func() bool {
					ctl.BgSave(t.Context()) // an error where one is under way
					return strings.Contains(ctl.Info(t.Context(), "persistence").Val(),
						"rdb_last_bgsave_status:"+want)
				})
			}
			return refusal("MISCONF", func() {
				must(t, os.Mkdir(dump, 0o755))
				set(t, ctl, "save", "3600 1000000000")
				save("err")
			}, func() {
				must(t, os.Remove(dump))
				save("ok")
			})
		}},
	// A thousand keys in the base of the append-only file, each of which takes ten milliseconds to
	// load.
	{"Row22 a loading server", []string{"--appendonly", "yes", "--appendfsync", "no",
		"--loading-process-events-interval-bytes", "1024"}, nil,
		func(t *testing.T, s *redistest.Server, ctl *redis.Client) outage {
			return refusal("LOADING", func() {
				do(t, ctl, "EVAL", "for i = 1, 1000 do redis.call('SET', 'filler' .. i, string.rep('x', 100)) end return 1", 0)
				do(t, ctl, "BGREWRITEAOF")
				testkit.Eventually(t, "a rewritten file", func() bool {
					info := ctl.Info(t.Context(), "persistence").Val()
					return strings.Contains(info, "aof_rewrite_in_progress:0") &&
						strings.Contains(info, "aof_rewrite_scheduled:0")
				})
				s.RestartLoading(t, "--key-load-delay", "10000")
			}, func() { set(t, ctl, "key-load-delay", "0") })
		}},
	{"Row24 a busy server", []string{"--lua-time-limit", "1"}, nil,
		func(t *testing.T, s *redistest.Server, ctl *redis.Client) outage {
			endless := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: -1, MaxRetries: -1})
			t.Cleanup(func() { endless.Close() })
			killed := make(chan error, 1)
			return refusal("BUSY", func() {
				go func() { killed <- endless.Eval(t.Context(), "while true do end", nil).Err() }()
				testkit.Eventually(t, "a busy server",
					func() bool { return redis.HasErrorPrefix(ctl.Ping(t.Context()).Err(), "BUSY") })
			}, func() {
				do(t, ctl, "SCRIPT", "KILL")
				if err := <-killed; err == nil || !strings.Contains(err.Error(), "SCRIPT KILL") {
					t.Errorf("the endless script ended with %v", err)
				}
			})
		}},
	// The server holds back everything that may write, as before a failover.
	{"Row24 a paused server", nil, nil, func(t *testing.T, _ *redistest.Server, ctl *redis.Client) outage {
		return outage{
			inject: func() { do(t, ctl, "CLIENT", "PAUSE", time.Hour.Milliseconds(), "WRITE") },
			cure:   func() { do(t, ctl, "CLIENT", "UNPAUSE") },
		}
	}},
}

// refusal is a server that answers every lease call with one error, until it is cured.
func refusal(code string, inject, cure func()) outage {
	return outage{inject: inject, cure: cure, says: ": " + code + " ", is: lease.ErrRefused}
}

func TestAnOutageIsGotThroughByPolicyFallback(t *testing.T) {
	t.Parallel()
	for _, c := range outages {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, c.args...)
			ctl := admin(t, server.Addr)
			newModes(t, server.Addr, "", c.client).suffer(t, c.how(t, server, ctl))
		})
	}
	// The network takes everything and answers nothing, and later serves new connections again. (It
	// keeps every connection that a probe was sent over until the client's read timeout, a minute
	// here: so the pool is larger than the number of probes.)
	t.Run("Row08 a black hole", func(t *testing.T) {
		t.Parallel()
		server, proxy := behindProxy(t)
		all := newModes(t, proxy.Addr, server.Addr, func(o *redis.Options) { o.PoolSize = 1000 })
		all.suffer(t, outage{inject: func() { proxy.Set(redistest.Fate{BlackHole: true}) }, cure: proxy.Pass})
	})
}
