package hybrid_test

import (
	"context"
	"flag"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

var (
	tailUsers  = flag.Int("tail.users", 100_000, "how many users BenchmarkLongTail asks for")
	tailSpan   = flag.Duration("tail.span", 6*time.Second, "how long BenchmarkLongTail measures each time")
	tailRounds = flag.Int("tail.rounds", 3, "how many rounds BenchmarkLongTail takes the median of")
	tailPeers  = flag.String("tail.peers", "", "only those limiters of BenchmarkLongTail whose name contains it")
)

// BenchmarkLongTail is a limit per user: many keys, each asked seldom. It prints one table of yuzhi
// beside redis_rate and a plain token bucket in Lua, each on a server of its own, in turns: medians
// of the rounds, and of the ratios within a round. The CPU time of the client includes what asks:
// it is the whole process.
func BenchmarkLongTail(b *testing.B) {
	users, rounds := *tailUsers, *tailRounds
	if smoke() {
		users, rounds = 10_000, 1
	}
	names := make([]string, users)
	for i := range names {
		names[i] = "user:" + strconv.Itoa(i)
	}
	loads := []tailLoad{
		{"uniform, 10/s each", 10, func(r *rand.Rand) func() string {
			return func() string { return names[r.IntN(users)] }
		}},
		{"Zipf 1.1, 100/s each", 100, func(r *rand.Rand) func() string {
			zipf := rand.NewZipf(r, 1.1, 1, uint64(users-1))
			return func() string { return names[zipf.Uint64()] }
		}},
	}
	peers := slices.DeleteFunc([]tailPeer{
		{"yuzhi", openYuzhi}, {"redis_rate", openRedisRate}, {"token bucket in Lua", openPerRequest},
	}, func(p tailPeer) bool { return !strings.Contains(p.name, *tailPeers) })
	for _, load := range loads {
		runs := make([][]tailFigures, len(peers)) // by peer and round
		for range rounds {
			for i, p := range peers {
				runs[i] = append(runs[i], measureTail(b, p, load, names))
			}
		}
		fmt.Printf("\n%s\n", tailTable(load, peers, runs)) // b.Log cuts tables short
	}
	b.ReportMetric(0, "ns/op")
}

// tailLoad chooses the names to ask for: pick returns a source of names for one goroutine.
type tailLoad struct {
	name      string
	perSecond int
	pick      func(*rand.Rand) func() string
}

// tailPeer is a limiter. An error of its asker fails the benchmark.
type tailPeer struct {
	name string
	open func(b *testing.B, rdb *redis.Client, perSecond int) (ask asker, stop func())
}

// asker makes one decision about a user.
type asker func(user string) (admitted bool, err error)

func openYuzhi(b *testing.B, rdb *redis.Client, perSecond int) (asker, func()) {
	store, err := redisbucket.New(rdb, redisbucket.Config{})
	testkit.NoErr(b, err)
	l := newLimiter(b, store, hybrid.Config{
		Limits: []hybrid.Limit{hybrid.PerSecond(int64(perSecond))}, CallTimeout: time.Second,
	})
	return func(user string) (bool, error) { return l.Allow(user), nil }, func() { l.Close() }
}

func openRedisRate(_ *testing.B, rdb *redis.Client, perSecond int) (asker, func()) {
	l, limit := redis_rate.NewLimiter(rdb), redis_rate.PerSecond(perSecond)
	return func(user string) (bool, error) {
		r, err := l.Allow(context.Background(), user, limit)
		return err == nil && r.Allowed == 1, err
	}, func() {}
}

func openPerRequest(_ *testing.B, rdb *redis.Client, perSecond int) (asker, func()) {
	return func(user string) (bool, error) {
		n, err := perRequest.Run(context.Background(), rdb, []string{user}, perSecond, perSecond).Int()
		return n == 1, err
	}, func() {}
}

// tailFigures are the figures of one run, by name.
type tailFigures map[string]float64

// tailRows are the rows of the table, in order.
var tailRows = []string{
	"decisions/s", "admitted", "Redis CPU us/decision", "client CPU us/decision", "p50 ms", "p99 ms", "p99.9 ms",
	"open loop: Redis CPU us/decision", "open loop: client CPU us/decision",
	"open loop: p50 ms", "open loop: p99 ms", "open loop: p99.9 ms",
	"Redis bytes/key", "Redis keys/user", "process bytes/user",
}

const (
	tailGoroutines = 64
	// tailPerSecond is the rate of the open loop, which each of the peers keeps with ease.
	tailPerSecond = 10_000
)

// measureTail has every user asked for once, and then measures p: in a closed loop of 64
// goroutines, then at a fixed rate.
func measureTail(b *testing.B, p tailPeer, load tailLoad, names []string) tailFigures {
	b.Helper()
	server := redistest.Start(b)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: tailGoroutines})
	defer rdb.Close()
	defer server.Kill()
	stored := storedBytes(b, rdb) // with one connection, as the server counts those late
	ask, stop := p.open(b, rdb, load.perSecond)
	defer stop()
	together(tailGoroutines, func(int) { testkit.NoErr(b, rdb.Ping(context.Background()).Err()) })()
	heap := heapInUse()
	together(tailGoroutines, func(i int) {
		for k := i; k < len(names); k += tailGoroutines {
			if _, err := ask(names[k]); err != nil {
				b.Error(err)
			}
		}
	})()

	f := tailFigures{}
	closed := closedLoop(b, rdb, load, ask)
	f["decisions/s"] = float64(closed.decisions) / closed.seconds
	closed.report(f, "")
	f["admitted"] = float64(closed.admitted) / float64(closed.decisions)
	keys := float64(rdb.DBSize(context.Background()).Val()) // the peers' expire within a second or two
	f["Redis bytes/key"] = (storedBytes(b, rdb) - stored) / keys
	f["Redis keys/user"] = keys / float64(len(names))
	f["process bytes/user"] = float64(heapInUse()-heap) / float64(len(names))
	openLoop(b, rdb, load, ask).report(f, "open loop: ")
	return f
}

// tailRun holds the measurements of one loop.
type tailRun struct {
	decisions, admitted    int64
	seconds                float64
	redisCPU, clientCPU    float64 // in seconds
	latencies              histogram
	redisBefore, ownBefore float64
	begun                  time.Time
}

func (t *tailRun) begin(b *testing.B, rdb *redis.Client) {
	t.redisBefore, t.ownBefore, t.begun = redisCPU(b, rdb), testkit.CPUTime().Seconds(), time.Now()
}

// end adds up what the goroutines did.
func (t *tailRun) end(b *testing.B, rdb *redis.Client, parts []tailRun) {
	t.seconds = time.Since(t.begun).Seconds()
	t.clientCPU, t.redisCPU = testkit.CPUTime().Seconds()-t.ownBefore, redisCPU(b, rdb)-t.redisBefore
	for i := range parts {
		t.decisions += parts[i].decisions
		t.admitted += parts[i].admitted
		t.latencies.merge(&parts[i].latencies)
	}
}

// decide asks once, and counts. The latency is from since.
func (t *tailRun) decide(b *testing.B, ask asker, user string, since time.Time) {
	ok, err := ask(user)
	if err != nil {
		b.Error(err)
	}
	t.latencies.add(time.Since(since))
	t.decisions++
	if ok {
		t.admitted++
	}
}

func (t *tailRun) report(f tailFigures, prefix string) {
	f[prefix+"Redis CPU us/decision"] = t.redisCPU * 1e6 / float64(t.decisions)
	f[prefix+"client CPU us/decision"] = t.clientCPU * 1e6 / float64(t.decisions)
	for name, p := range map[string]float64{"p50 ms": 0.5, "p99 ms": 0.99, "p99.9 ms": 0.999} {
		f[prefix+name] = float64(t.latencies.quantile(p)) / float64(time.Millisecond)
	}
}

// closedLoop has each of 64 goroutines ask again as soon as it is answered.
func closedLoop(b *testing.B, rdb *redis.Client, load tailLoad, ask asker) *tailRun {
	b.Helper()
	var t tailRun
	parts := make([]tailRun, tailGoroutines)
	t.begin(b, rdb)
	over := t.begun.Add(span(*tailSpan))
	together(tailGoroutines, func(i int) {
		user := load.pick(rand.New(rand.NewPCG(uint64(i), 1)))
		for now := time.Now(); now.Before(over); now = time.Now() {
			parts[i].decide(b, ask, user(), now)
		}
	})()
	t.end(b, rdb, parts)
	return &t
}

// openLoop asks at a fixed rate, whether what was asked before has been answered or not. A latency
// is from when the request was due: a limiter that stalls pays for all that came meanwhile.
func openLoop(b *testing.B, rdb *redis.Client, load tailLoad, ask asker) *tailRun {
	b.Helper()
	const workers = 4 * tailGoroutines
	type request struct {
		user string
		due  time.Time
	}
	var t tailRun
	parts := make([]tailRun, workers)
	requests := make(chan request, 2*tailPerSecond)
	t.begin(b, rdb)
	go func() {
		defer close(requests)
		user := load.pick(rand.New(rand.NewPCG(1, 2)))
		pace(tailPerSecond, span(*tailSpan/2), func(i int) {
			requests <- request{user(), t.begun.Add(time.Duration(i) * time.Second / tailPerSecond)}
		})
	}()
	together(workers, func(i int) {
		for r := range requests {
			parts[i].decide(b, ask, r.user, r.due)
		}
	})()
	t.end(b, rdb, parts)
	return &t
}

// redisCPU is the CPU time of the server's main thread and its children, in seconds.
func redisCPU(b *testing.B, rdb *redis.Client) float64 {
	b.Helper()
	return serverInfo(b, rdb, "used_cpu_sys") + serverInfo(b, rdb, "used_cpu_user")
}

// storedBytes is the server's memory but for its connections, whose buffers shrink while it works.
func storedBytes(b *testing.B, rdb *redis.Client) float64 {
	b.Helper()
	return serverInfo(b, rdb, "used_memory") - serverInfo(b, rdb, "mem_clients_normal")
}

// serverInfo is a number of the server's INFO.
func serverInfo(b *testing.B, rdb *redis.Client, field string) float64 {
	b.Helper()
	info, err := rdb.Info(context.Background()).Result()
	testkit.NoErr(b, err)
	m := regexp.MustCompile(`(?m)^` + field + `:([\d.]+)\r$`).FindStringSubmatch(info)
	testkit.Must(b, m != nil, "INFO has no %s", field)
	n, err := strconv.ParseFloat(m[1], 64)
	testkit.NoErr(b, err)
	return n
}

// histogram counts latencies in classes that are 3 % wide: a run has millions.
type histogram [64 << histogramBits]int64

const histogramBits = 5

func (h *histogram) add(d time.Duration) {
	v := uint64(max(d, 1<<histogramBits))
	shift := bits.Len64(v) - 1 - histogramBits
	h[shift<<histogramBits+int(v>>shift)&(1<<histogramBits-1)]++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other {
		h[i] += n
	}
}

// quantile is the lower end of the class of the p-th quantile.
func (h *histogram) quantile(p float64) time.Duration {
	total := int64(0)
	for _, n := range h {
		total += n
	}
	left := int64(p * float64(total))
	for i, n := range h {
		if left -= n; left < 0 {
			shift := i >> histogramBits
			return time.Duration((1<<histogramBits + i&(1<<histogramBits-1)) << shift)
		}
	}
	return 0
}

// tailTable is the page's table of one load.
func tailTable(load tailLoad, peers []tailPeer, runs [][]tailFigures) string {
	var s strings.Builder
	fmt.Fprintf(&s, "| %s |", load.name)
	for _, p := range peers {
		fmt.Fprintf(&s, " %s |", p.name)
	}
	fmt.Fprintf(&s, " ratio |\n|%s\n", strings.Repeat(" --- |", len(peers)+2))
	for _, row := range tailRows {
		fmt.Fprintf(&s, "| %s |", row)
		for i := range peers {
			var all []float64
			for _, f := range runs[i] {
				all = append(all, f[row])
			}
			fmt.Fprintf(&s, " %.*f |", decimals(median(all)), median(all))
		}
		var ratios []float64
		for round := range runs[0] {
			ratios = append(ratios, runs[0][round][row]/runs[min(1, len(peers)-1)][round][row])
		}
		if ratio := median(ratios); ratio < 1000 {
			fmt.Fprintf(&s, " %.2f |\n", ratio)
		} else {
			s.WriteString(" |\n") // of the process's memory: the peers keep nothing there
		}
	}
	return s.String()
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// decimals are the digits after the point that a figure is worth.
func decimals(x float64) int {
	switch {
	case x >= 100:
		return 0
	case x >= 10:
		return 1
	}
	return 2
}
