package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// process is a limiter as another process has it: with a client and a store of its own. However long
// this machine stops, no call of it is given up, no lease of it ends, and no bucket of it expires.
func process(t *testing.T, addr string, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	return patient(t, rdb, redisbucket.Config{}, cfg)
}

func patient(
	t *testing.T, rdb redis.UniversalClient, at redisbucket.Config, cfg hybrid.Config,
) *hybrid.Limiter {
	t.Helper()
	store, err := redisbucket.New(rdb, at)
	testkit.NoErr(t, err)
	cfg.CallTimeout, cfg.Policy.TTL = time.Minute, time.Hour
	l, err := hybrid.New(store, cfg)
	testkit.NoErr(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// inspects runs inspect --out json for a key.
func inspects(t *testing.T, addr, args string) redisbucket.View {
	t.Helper()
	return prints[redisbucket.View](leasesim(t, "inspect "+args+" --out json --redis "+addr).ends(0))
}

// Inspect says what the processes themselves say, while they run and after they have left.
func TestInspectAgreesWithTheProcesses(t *testing.T) {
	addr := redistest.Start(t).Addr
	cfg := hybrid.Config{Name: "login", Limits: []hybrid.Limit{hybrid.PerHour(1).WithBurst(1000)}}
	var fleet []*hybrid.Limiter
	// given three processes that ask for 600 tokens
	for i := range 3 {
		cfg.InstanceID = fmt.Sprint("p", i)
		fleet = append(fleet, process(t, addr, cfg))
		for range 100 * (i + 1) {
			fleet[i].Allow("17")
		}
	}
	// when they are at rest, then they have reported all that is spent and held
	var b redisbucket.View
	testkit.EventuallyNil(t, func() error {
		b = inspects(t, addr, "@login:17")
		var held, admitted, heard int64
		for _, l := range fleet {
			st := l.Stats()
			held, admitted = held+st.Held, admitted+st.Admitted
		}
		for _, h := range b.Holders {
			heard += h.Held
		}
		// what was spent of a lease since the last report is counted as held
		if b.Spent+b.Ledger != admitted+held || heard != b.Ledger || len(b.Holders) == 0 {
			return fmt.Errorf("admitted %d, held %d: %+v", admitted, held, b)
		}
		return nil
	})
	for _, h := range b.Holders {
		testkit.Check(t, regexp.MustCompile(`^p[0-2]-[0-9a-f]{16}$`).MatchString(h.ID) && h.Weight == 1 &&
			h.Expiry > 0, "%+v", h)
	}
	limits := b.Config.Limits
	testkit.Check(t, len(limits) == 1 && limits[0].String() == "1/h burst 1000" &&
		b.Levels[0] == 1000-b.Spent-b.Ledger && b.Counter >= 3, "%+v", b)
	leasesim(t, "inspect @login:17 --redis "+addr).ends(0).
		shows("@login:17", "1/h burst 1000", "p1-", "TTL 1h0m0s", " spent and ")
	// When they have left, all that they admitted is known.
	var admitted int64
	for _, l := range fleet {
		testkit.NoErr(t, l.Shutdown(t.Context()))
		admitted += l.Stats().Admitted
	}
	b = inspects(t, addr, "@login:17")
	testkit.Check(t, b.Spent == admitted && b.Ledger == 0, "spent %d of %d: %+v", b.Spent, admitted, b)
	// When a request waits, it says which holder waits, for how many tokens and how long.
	cfg.InstanceID = "p3"
	last := process(t, addr, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go last.Key("17").WaitN(ctx, 1000)
	testkit.EventuallyNil(t, func() error {
		b = inspects(t, addr, "@login:17")
		for _, h := range b.Holders {
			if strings.HasPrefix(h.ID, "p3-") && h.Waiting > 500 && b.Next[0] > 0 {
				return nil
			}
		}
		return fmt.Errorf("no request waits: %+v", b)
	})
}

// A key is found as the limiter stores it.
func TestInspectFindsAKeyByTheNameOfItsLimiter(t *testing.T) {
	addr := redistest.Start(t).Addr
	for name, prefix := range map[string]string{"": "", "login": "@login:"} {
		l := process(t, addr, hybrid.Config{Name: name, Limits: []hybrid.Limit{hybrid.PerSecond(10)}})
		for _, key := range []string{"17", "a}b%", "日本 ", strings.Repeat("x", lease.KeyMax-len("@login:"))} {
			testkit.Must(t, l.Allow(key), "%.20q is denied", key)
			b := inspects(t, addr, "'"+prefix+key+"'")
			testkit.Check(t, b.Counter > 0 && b.Config.Limits[0].String() == "10/s", "%.20q of %q: %+v", key, name, b)
		}
	}
	testkit.Must(t, process(t, addr, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(10)}}).
		Allow(strings.Repeat("y", 5000)), "a long key is denied")
	b := inspects(t, addr, strings.Repeat("y", 5000))
	testkit.Check(t, b.Counter > 0, "a long key: %+v", b)
}

func TestInspectSaysWhyThereIsNothingToShow(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	testkit.NoErr(t, rdb.RPush(t.Context(), "yuzhi:{list}", "x").Err())
	testkit.NoErr(t, rdb.Set(t.Context(), "yuzhi:{old}", strings.Repeat("\x00", 392), 0).Err())
	for line, want := range map[string]string{
		"absent":                 `key "absent" has no bucket under prefix "yuzhi:"`,
		"absent --prefix other:": `under prefix "other:"`,
		"list":                   "WRONGTYPE",
		"old":                    `unknown format of stored state: the layout mark is missing`,
		"a --out json":           "has no bucket",
	} {
		leasesim(t, "inspect "+line+" --redis "+addr).ends(exitFailed).says(want).shows()
	}
	leasesim(t, "top --redis 127.0.0.1:1").ends(exitFailed).says("leasesim: Redis at 127.0.0.1:1: ").shows()
}

// serving is the address of a server that has serve answer each connection.
func serving(t *testing.T, serve func(net.Conn)) (addr string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoErr(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go serve(conn)
		}
	}()
	return listener.Addr().String()
}

func TestLookingAtARedisThatHangsEndsWithCtrlC(t *testing.T) {
	for _, command := range []string{"inspect a", "top"} {
		// Given a command that waits for an hour for an answer which will not come,
		asked := make(chan struct{}, 100)
		addr := serving(t, func(conn net.Conn) {
			if n, _ := conn.Read(make([]byte, 1)); n > 0 {
				asked <- struct{}{}
			}
		})
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan execution, 1)
		go func() { ended <- execute(ctx, t, nil, command+" --redis redis://"+addr+"?read_timeout=1h") }()
		<-asked
		// when it is interrupted, then it ends.
		interrupt()
		testkit.Eventually(t, "the end of "+command, func() bool { return len(ended) > 0 })
		e := <-ended
		e.ends(exitInterrupted).says("interrupted").shows()
	}
}

// TestAServersTextIsShownAndNotObeyed: a hostile server's text reaches no terminal as it is.
func TestAServersTextIsShownAndNotObeyed(t *testing.T) {
	t.Parallel()
	// given a server that refuses everything in words that clear a screen, and in many of them
	addr := serving(t, func(conn net.Conn) {
		for asked := make([]byte, 1<<16); ; {
			n, err := conn.Read(asked)
			if err != nil {
				return
			}
			for range bytes.Count(asked[:n], []byte("*")) { // commands
				fmt.Fprintf(conn, "-ERR \x1b]0;mine\a\x1b[2J%s\r\n", strings.Repeat("x", 10_000))
			}
		}
	})
	for _, command := range []string{"inspect a", "top", "live --duration 100ms"} {
		// when a command shows what it says
		e := leasesim(t, command+" --redis redis://"+addr+"?protocol=2")
		// then nothing of it is a control character, and it is no longer than a screen
		all := e.stdout + e.stderr
		shown := !strings.ContainsAny(all, "\x1b\a") && strings.Contains(all, `\x1b[2J`) && len(all) < 5000
		testkit.Check(t, e.status != 0 && shown,
			"%s: status %d, %d bytes: %q", command, e.status, len(all), all[:min(len(all), 300)])
	}
}

func TestLookingAtAClusterGoesToAllMasters(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, false)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Masters[0].Addr}})
	defer rdb.Close()
	l := patient(t, rdb, redisbucket.Config{Prefix: "mine:"},
		hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(10), hybrid.PerHour(1000)}})
	for i := range 30 {
		testkit.Must(t, l.Allow(fmt.Sprint("key", i)), "key%d is denied", i)
	}
	b := prints[redisbucket.Busiest](leasesim(t, "top --interval 100ms --count 100 --prefix mine: --out json "+
		"--redis redis+cluster://"+c.Masters[1].Addr).ends(0))
	testkit.Check(t, b.Read == 30 && len(b.Keys) == 30, "%+v", b)
	for _, k := range b.Keys {
		testkit.Check(t, len(k.Limits) == 2 && k.Levels[0] >= 9 && k.Levels[0] <= 10, "%+v", k)
	}
	leasesim(t, "inspect key7 --prefix mine: --redis redis+cluster://"+c.Masters[1].Addr).ends(0).shows("1000/h")
}

// TestTopAndInspectAreNoBurden: beside many keys, the commands that top and inspect send read little each.
func TestTopAndInspectAreNoBurden(t *testing.T) {
	const keys, count = 1000, 512
	addr := redistest.Start(t).Addr
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	// Given many buckets, when a user with read permission looks at them,
	process(t, addr, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(1).WithBurst(100)}}).Allow("a")
	full := rdb.Get(t.Context(), "yuzhi:{a}").Val()
	for i := range keys {
		testkit.NoErr(t, rdb.Set(t.Context(), fmt.Sprintf("yuzhi:{user:%d}", i), full, time.Hour).Err())
	}
	testkit.NoErr(t, rdb.Do(t.Context(), "ACL", "SETUSER", "reader", "on", ">secret", "~yuzhi:*", "+@read",
		"+time").Err())
	testkit.NoErr(t, rdb.ConfigResetStat(t.Context()).Err())
	url := "redis://reader:secret@" + addr
	b := prints[redisbucket.Busiest](leasesim(t, "top --interval 100ms --count 2 --out json --redis "+url).ends(0))
	testkit.Check(t, b.Read == keys+1 && b.Unreadable == 0 && len(b.Keys) == 2, "%+v", b)
	inspects(t, url, "a")
	// then each bucket is read twice, and the scans are those that this number of keys takes.
	most := map[string]int64{"scan": 3 * (keys/count + 2), "getrange": 2*keys + 10, "get": 6, "mget": 1}
	for name, stats := range rdb.InfoMap(t.Context(), "commandstats").Val()["Commandstats"] {
		name = strings.TrimPrefix(name, "cmdstat_")
		var calls int64
		fmt.Sscanf(stats, "calls=%d,", &calls)
		setUp := slices.Contains(strings.Fields("info config|resetstat hello auth time client|setinfo command ping"), name)
		testkit.Check(t, setUp || calls <= most[name], "%s was sent %d times", name, calls)
	}
}

func TestTopShowsWhatAReadingLacks(t *testing.T) {
	var out bytes.Buffer
	d := busiestDocument(redisbucket.Busiest{Read: 3, Unreadable: 2, LeftOut: 7, Keys: []redisbucket.KeyUse{
		{Key: "a\x1b[2J", Limits: []lease.Limit{lease.PerSecond(10), lease.PerHour(100)}, Levels: []int64{10, 50},
			Spent: 1234.56, Denied: 0.04, Calls: 2, Holders: 3, Waiting: 4},
		{Key: "b", New: true}, {Key: "c"},
	}})
	testkit.NoErr(t, d.Write(&out, view.FormatTable))
	for _, want := range []string{"3 keys; 2 unreadable by this version; 7 left out",
		`"a\x1b[2J"  10/s, 100/h       50  1,234.6         0        2        3        4`,
		"gone      new       new"} {
		testkit.Check(t, strings.Contains(out.String(), want), "no %q in\n%s", want, &out)
	}
}

func TestOddKeysAreShownOnOneLine(t *testing.T) {
	for key, want := range map[string]string{
		"": `""`, "user:17": "user:17", "日本": "日本", "\x1b[2J": `"\x1b[2J"`, "a\nb": `"a\nb"`, "\xff": `"\xff"`,
		strings.Repeat("x", 50): strings.Repeat("x", 39) + "…",
	} {
		got := shownKey(key, 40)
		testkit.Check(t, got == want, "%q is shown as %s, want %s", key, got, want)
	}
}
