package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// drillFaults are the faults of the drill, in the order of its table.
var drillFaults = []struct {
	name         string
	inject, cure func(*testing.T, *redistest.Server)
}{
	{"Redis is killed", func(_ *testing.T, s *redistest.Server) { s.Kill() },
		func(t *testing.T, s *redistest.Server) { s.Restart(t) }},
	{"Redis hangs", func(t *testing.T, s *redistest.Server) { s.Hang(t) },
		func(t *testing.T, s *redistest.Server) { s.Resume(t) }},
	{"Redis is a read-only replica", func(t *testing.T, s *redistest.Server) { s.Do(t, "REPLICAOF", "127.0.0.1", "1") },
		func(t *testing.T, s *redistest.Server) { s.Do(t, "REPLICAOF", "NO", "ONE") }},
	{"FLUSHALL", func(t *testing.T, s *redistest.Server) { s.Do(t, "FLUSHALL") }, func(*testing.T, *redistest.Server) {}},
}

// drillTraffic has the requests during a fault: the key of the n-th one, and the time between two.
var drillTraffic = []struct {
	name  string
	every time.Duration // 0 for no requests
	key   func(n int) string
}{
	{"a new key each second", time.Second, func(n int) string { return fmt.Sprint("new ", n) }},
	{"a hot key", 20 * time.Millisecond, func(int) string { return "hot" }},
	{"none", 0, nil},
}

// sights holds the signs of one fault that an operator sees.
type sights struct {
	away           bool   // Stats.Nodes, yuzhi.nodes.away
	events         string // NodeAway and NodeBack
	log            string
	denied, served bool // by Policy.Fallback
	ping           string
}

// TestADrillShowsEachOutage plays the drill on real servers. Its table is that of docs/faults.md:
//
//	YUZHI_LONG=1 go test -run Drill -v ./internal/faults
func TestADrillShowsEachOutage(t *testing.T) {
	testkit.LongOnly(t) // TestAnOutageIsTheNodes plays the drills in virtual time
	redistest.Require(t)
	var mu sync.Mutex
	seen := make(map[string]sights)
	t.Run("drills", func(t *testing.T) {
		for _, f := range drillFaults {
			for _, traffic := range drillTraffic {
				for _, fallback := range []hybrid.Fallback{hybrid.FallbackDeny, hybrid.FallbackLocalShare} {
					t.Run(fmt.Sprint(f.name, ", ", traffic.name, ", ", fallback), func(t *testing.T) {
						t.Parallel()
						refuses := f.name != "FLUSHALL"
						d := newDrill(t, fallback, refuses && traffic.every > 0)
						saw := d.play(traffic.every, traffic.key, f.inject, f.cure, refuses)
						mu.Lock()
						defer mu.Unlock()
						seen[fmt.Sprint(f.name, traffic.name, fallback)] = saw
					})
				}
			}
		}
	})
	if t.Failed() {
		return
	}
	page, err := os.ReadFile("../../docs/faults.md")
	testkit.NoErr(t, err)
	yes := map[bool]string{true: "yes", false: "no"}
	for _, f := range drillFaults {
		for _, traffic := range drillTraffic {
			deny := seen[fmt.Sprint(f.name, traffic.name, hybrid.FallbackDeny)]
			share := seen[fmt.Sprint(f.name, traffic.name, hybrid.FallbackLocalShare)]
			testkit.Check(t, !deny.served, "FallbackDeny has admitted")
			testkit.Check(t, deny.away == share.away && deny.log == share.log && deny.events == share.events,
				"%+v with FallbackDeny, %+v with the local share", deny, share)
			row := fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s |", f.name, traffic.name, deny.log, yes[deny.away],
				deny.events, yes[deny.denied], yes[share.served], deny.ping)
			t.Log(row)
			testkit.Check(t, strings.Contains(string(page), row), "docs/faults.md lacks the row\n%s", row)
		}
	}
}

// drill is one process and its Redis.
type drill struct {
	*testing.T
	server     *redistest.Server
	limiter    *hybrid.Limiter
	away, back atomic.Int64 // events

	mu  sync.Mutex
	log bytes.Buffer
}

// Write implements io.Writer for the log.
func (d *drill) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.Write(p)
}

func (d *drill) logs(text string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Count(d.log.String(), text)
}

// newDrill starts both. If no call is to fail, one may take as long as a machine may stall.
func newDrill(t *testing.T, fallback hybrid.Fallback, fails bool) *drill {
	// The server writes everything to its file before it answers, so it forgets nothing when it is killed.
	d := &drill{T: t, server: redistest.Start(t, "--appendonly", "yes", "--appendfsync", "no")}
	client := redis.NewClient(&redis.Options{Addr: d.server.Addr, ReadTimeout: 20 * time.Second, MaxRetries: -1})
	store, err := redisbucket.New(client, redisbucket.Config{})
	testkit.NoErr(t, err)
	cfg := with(hybrid.PerSecond(10), hybrid.Policy{Fallback: fallback})
	cfg.CallTimeout = 10 * time.Second
	if fails {
		cfg.CallTimeout = callTimeout
	}
	cfg.Logger = slog.New(slog.NewTextHandler(d, nil))
	cfg.Events.NodeAway = func(string, error) { d.away.Add(1) }
	cfg.Events.NodeBack = func(string, time.Duration) { d.back.Add(1) }
	d.limiter, err = hybrid.New(store, cfg)
	testkit.NoErr(t, err)
	t.Cleanup(func() {
		d.limiter.Close()
		client.Close()
	})
	testkit.NoErr(t, d.limiter.Ping(t.Context()))
	testkit.Eventually(t, "the first token", func() bool { return d.limiter.Allow("hot") })
	return d
}

// play asks for keys, injects the fault, waits until all sights of it are there, cures it, and waits until they
// say that it is over. refuses says that lease calls fail meanwhile.
func (d *drill) play(
	every time.Duration, key func(int) string, inject, cure func(*testing.T, *redistest.Server), refuses bool,
) (saw sights) {
	asks, stop := context.WithCancel(d.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer stop()
	var asked atomic.Int64
	if every > 0 {
		asking.Go(func() {
			for n := 0; asks.Err() == nil; n++ {
				d.limiter.Allow(key(n))
				asked.Add(1)
				select {
				case <-asks.Done():
				case <-time.After(every):
				}
			}
		})
		testkit.Eventually(d.T, "requests", func() bool { return asked.Load() > 1 })
	}
	before := d.limiter.Stats()
	inject(d.T, d.server)
	node := func() hybrid.NodeStats { return d.limiter.Stats().Nodes[0] }
	decided := func() int64 { s := d.limiter.Stats(); return s.FallbackDenied + s.Fallback - before.Fallback }
	saw.ping = d.pings()
	if every > 0 && refuses {
		testkit.Eventually(d.T, "the node to be away, in Stats, Events and log", func() bool {
			return node().Away > 0 && d.away.Load() > 0 && d.logs("lease calls fail") > 0 && decided() >= 3
		})
		testkit.Check(d.T, node().Node == d.server.Addr && node().Err != nil && d.logs("node="+d.server.Addr) > 0, "%+v",
			node())
	} else if every > 0 {
		n := asked.Load()
		testkit.Eventually(d.T, "more requests", func() bool { return asked.Load() > n+2 })
	}
	saw.away = node().Away > 0
	after := d.limiter.Stats()
	saw.denied, saw.served = after.FallbackDenied > before.FallbackDenied, after.Fallback > before.Fallback
	cure(d.T, d.server)
	if every > 0 && refuses {
		testkit.Eventually(d.T, "the node to be back, in Stats, Events and log", func() bool {
			return node().Away == 0 && d.back.Load() == d.away.Load() && d.logs("lease calls succeed again") > 0
		})
	} else if every > 0 && key(0) == key(1) {
		testkit.Eventually(d.T, "the loss in the log", func() bool { return d.logs("bucket lost by the store") > 0 })
	}
	stop()
	asking.Wait()
	// Another outage, of a machine that stalls, would have no line: the log does not repeat itself for ten seconds.
	testkit.Check(d.T, d.logs("lease calls fail") <= 1 && d.logs("lease calls succeed again") <= 1, "%s", &d.log)
	var lines []string
	for _, text := range []string{"lease calls fail", "lease calls succeed again", "bucket lost by the store"} {
		if d.logs(text) > 0 {
			lines = append(lines, "`"+text+"`")
		}
	}
	saw.log, saw.events = strings.Join(lines, ", "), "none"
	if d.away.Load() > 0 {
		saw.events = "`NodeAway`, `NodeBack`"
	}
	if saw.log == "" {
		saw.log = "nothing"
	}
	return saw
}

// pings says in a word what Ping says.
func (d *drill) pings() string {
	ctx, cancel := context.WithTimeout(d.Context(), 2*time.Second)
	defer cancel()
	err := d.limiter.Ping(ctx)
	switch {
	case err == nil:
		return "no error"
	case strings.Contains(err.Error(), "connection refused"):
		return "refused"
	case strings.Contains(err.Error(), "READONLY"):
		return "READONLY"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "a timeout"
	}
	return err.Error()
}
