package faults

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
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
	replica := client(t, s.replica.Addr)
	do(t, replica, "SLAVEOF", "127.0.0.1", s.master.Port)
	testkit.Eventually(t, "a replica in sync", func() bool { // before a Sentinel looks, which it does every 10 s only
		return strings.Contains(replica.Info(ctx, "replication").Val(), "master_link_status:up")
	})
	for range 3 {
		s.addrs = append(s.addrs, startSentinel(t, s.master.Port))
	}
	for _, addr := range s.addrs {
		sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { sentinel.Close() })
		testkit.Eventually(t, "a Sentinel that knows the others and a replica in sync", func() bool {
			others, _ := sentinel.Sentinels(ctx, masterName).Result()
			slaves := redis.NewMapStringStringSliceCmd(ctx, "sentinel", "slaves", masterName) // "replicas" since Redis 5 only
			_ = sentinel.Process(ctx, slaves)
			replicas := slaves.Val()
			return len(others) == 2 && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok" && replicas[0]["flags"] == "slave"
		})
	}
	return s
}

// startSentinel runs one Sentinel, which needs a file that it may write to.
func startSentinel(t *testing.T, master int) string {
	t.Helper()
	dir := t.TempDir()
	for range 5 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().(*net.TCPAddr)
		l.Close()
		file := filepath.Join(dir, fmt.Sprintf("sentinel-%d.conf", addr.Port))
		text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor %[3]s 127.0.0.1 %d 2\n"+
			"sentinel down-after-milliseconds %[3]s 1000\nsentinel failover-timeout %[3]s 5000\n", addr.Port, dir, masterName, master)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(redistest.Binary(), file, "--sentinel")
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		exited := make(chan struct{})
		go func() { _ = cmd.Wait(); close(exited) }()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-exited })
		rdb := client(t, addr.String())
		taken := false
		testkit.Eventually(t, "a Sentinel", func() bool {
			select {
			case <-exited:
				taken = strings.Contains(out.String(), "Failed listening on port") // somebody was faster
				if !taken {
					t.Fatal(out.String())
				}
				return true
			default:
				return rdb.Ping(context.Background()).Err() == nil
			}
		})
		if !taken {
			return addr.String()
		}
	}
	t.Fatal("no free port for a Sentinel")
	return ""
}

// current is the address of the master as the first Sentinel knows it.
func (s *sentinels) current(t *testing.T, sentinel *redis.SentinelClient) string {
	t.Helper()
	addr, err := sentinel.GetMasterAddrByName(context.Background(), masterName).Result()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(addr[0], addr[1])
}
