package hybrid_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"regexp"
	"runtime"
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
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// smoke says whether -benchtime is a count (1x, 10x): each benchmark is to run, not to measure.
func smoke() bool {
	f := flag.Lookup("test.benchtime")
	return f != nil && strings.HasSuffix(f.Value.String(), "x")
}

// newLimiter is a limiter that ends with the benchmark. Without a store it leases from memory.
func newLimiter(tb testing.TB, store lease.Store, cfg hybrid.Config) *hybrid.Limiter {
	tb.Helper()
	if store == nil {
		store = memory.New(nil)
	}
	cfg.Logger = slog.New(slog.DiscardHandler) // or its lines stand between the figures
	l, err := hybrid.New(store, cfg)
	testkit.NoErr(tb, err)
	tb.Cleanup(func() { l.Close() })
	return l
}

// generous is a Store that grants everything at once and remembers nothing, so that what is
// measured is the table of keys.
type generous struct{ lease.Store }

// Exchange implements lease.Store.
func (generous) Exchange(_ context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	for _, c := range calls {
		r := &c.Request
		c.Err = nil
		c.Grant = lease.Grant{
			Seq: r.Seq, Granted: r.Want, Waited: min(r.Waiting, r.Want), Config: r.Config,
			Epoch: 1, Counter: r.Counter + 1, ActiveWeight: 1, Expiry: time.Hour, ServerTime: 1,
		}
		c.Grant.Levels[0] = r.Config.Limits[0].Capacity()
	}
	done(calls)
}

// many is a million keys; a twentieth in a smoke run.
func many() int {
	if smoke() {
		return 50_000
	}
	return 1_000_000
}

// customers are n names in random order.
func customers(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("customer:%07d", i)
	}
	rand.Shuffle(n, func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// newTable is a limiter with room for keysMax keys on a generous store.
func newTable(b *testing.B, limit hybrid.Limit, keysMax int) *hybrid.Limiter {
	return newLimiter(b, generous{}, hybrid.Config{Limits: []hybrid.Limit{limit}, KeysMax: keysMax})
}

// awaitRest waits until every key of l has given back what it held.
func awaitRest(b *testing.B, l *hybrid.Limiter) {
	b.Helper()
	from := time.Now()
	for s := l.Stats(); s.Held > 0 || s.InUse > 0; s = l.Stats() {
		testkit.Must(b, time.Since(from) < 2*time.Minute, "some keys do not rest: %+v", s)
		time.Sleep(200 * time.Millisecond) // the pace of looking
	}
}

// heapInUse is the bytes that live on the heap.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkIdleKeyBytes reports the heap that a key at rest costs: its name (16
// bytes), the table, and the scheduler's lists. The reference is the goal.
func BenchmarkIdleKeyBytes(b *testing.B) {
	const goal = 300
	million := many()
	names := customers(million)
	l := newTable(b, hybrid.PerHour(1000), 2*million)
	before := heapInUse()
	for _, n := range names {
		l.TryAllow(n)
	}
	awaitRest(b, l)
	bytes := float64(heapInUse()-before) / float64(million)
	testkit.Must(b, l.Stats().Keys == million, "%+v", l.Stats())
	b.ReportMetric(bytes, "B/key")
	b.ReportMetric(bytes/goal, "ratio")
	runtime.KeepAlive(names)
}

// BenchmarkNewKeys makes a million keys in an empty table, and then a million in one that is full,
// each of which makes the key leave that is idle for longest. A creation is a TryAllow and, on the
// scheduler's goroutine, a lease call and its reply. The reference is the goal, a rate on one core.
func BenchmarkNewKeys(b *testing.B) {
	const goal = 500_000
	million := many()
	names := customers(2 * million)
	l := newTable(b, hybrid.PerHour(1000), million)
	took := make([]time.Duration, million)
	for at, what := range []string{"creations", "evictions"} {
		start := time.Now()
		last := start
		for i, n := range names[at*million : (at+1)*million] {
			l.TryAllow(n)
			now := time.Now()
			took[i] = now.Sub(last)
			last = now
		}
		rate := float64(million) / last.Sub(start).Seconds()
		awaitRest(b, l)
		s := l.Stats()
		testkit.Must(b, s.Keys == million && s.Invalid <= 0, "%+v", s)
		slices.Sort(took)
		b.ReportMetric(rate, what+"/s")
		b.ReportMetric(rate/goal, what+"-ratio")
		b.ReportMetric(took[million-1].Seconds()*1e3, what+"-worst-ms")
		b.ReportMetric(took[million/10000*9999].Seconds()*1e3, what+"-p99.99-ms")
	}
}

// BenchmarkLimiterAllowOfAMillion is the decision by name for 10,000 hot keys among a million; the
// reference is a Key's. The goal is 100 ns more than that.
func BenchmarkLimiterAllowOfAMillion(b *testing.B) {
	million := many()
	names := customers(million)
	l := newTable(b, hybrid.PerSecond(1<<30), 2*million)
	for _, n := range names {
		l.TryAllow(n)
	}
	awaitRest(b, l)
	hot := make([]string, 10_000)
	for i := range hot {
		hot[i] = strings.Clone(names[i]) // a service has just read the name out of its request
	}
	for cold := true; cold; {
		cold = false
		for _, n := range hot {
			cold = !l.TryAllow(n) || cold
		}
	}
	i := 0
	k := l.Key(hot[0])
	testkit.Ratio(b, func(n int) {
		for range n {
			l.Allow(hot[i])
			if i++; i == len(hot) {
				i = 0
			}
		}
	}, func(n int) {
		for range n {
			k.Allow()
		}
	})
	// Beside it: any of the million. Nearly all are at rest, so that a call goes out for each.
	uniform := min(million/10, b.N)
	start := time.Now()
	for _, n := range names[10_000:][:uniform] {
		l.TryAllow(n)
	}
	b.ReportMetric(float64(time.Since(start))/float64(uniform), "uniform-ns/op")
}

// TestAllowDoesNotAllocate: neither a decision of one key nor one of several allocates.
func TestAllowDoesNotAllocate(t *testing.T) {
	plenty := []hybrid.Limit{hybrid.PerSecond(1 << 40).WithBurst(1 << 40)}
	l := newLimiter(t, nil, hybrid.Config{Limits: plenty})
	strict := newLimiter(t, nil, hybrid.Config{Limits: plenty, Policy: hybrid.Policy{StrictExpiry: true}})
	empty := newLimiter(t, nil, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(1)}}).Key("k")
	for empty.Allow() {
	}
	k := l.Key("k")
	three := l.Join(k, l.Key("2"), l.Key("3"))
	four := l.Join(k, l.Key("2"), l.Key("3"), l.Key("4"))
	for name, f := range map[string]func() bool{
		"Joined.Allow":      three.Allow,
		"Joined.Allow of 4": four.Allow,
		"Joined.AllowN":     func() bool { return three.AllowN(3) },
		"Joined.Wait":       func() bool { return three.Wait(context.Background()) == nil },
		"Key.Allow, strict": strict.Key("k").Allow,
		"Key.Allow, denied": empty.Allow,
		"Key.Allow":         k.Allow,
		"Key.TryAllow":      k.TryAllow,
		"Key.AllowN":        func() bool { return k.AllowN(3) },
		"Limiter.Allow":     func() bool { return l.Allow("k") },
	} {
		// A renewal on the scheduler's goroutine allocates now and then, which over ten thousand
		// decisions does not come to one allocation each.
		n := testing.AllocsPerRun(10000, func() { f() })
		testkit.Check(t, n == 0, "%s allocates %v times", name, n)
	}
}

var tailSpan = flag.Duration("tail.span", 6*time.Second, "how long BenchmarkLongTail measures each time")

// BenchmarkLongTail is a limit per user: many keys, each asked seldom. It prints one table of yuzhi beside
// redis_rate and a plain token bucket in Lua, each on a server of its own, in turns: medians of the rounds,
// and of the ratios within a round. The CPU time of the client includes what asks: it is the whole process.
func BenchmarkLongTail(b *testing.B) {
	users, rounds := 100_000, 3
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
	peers := []tailPeer{
		{"yuzhi", openYuzhi}, {"redis_rate", openRedisRate}, {"token bucket in Lua", openPerRequest},
	}
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
	closed := loop(b, rdb, tailGoroutines, func(i int, decide func(string, time.Time)) {
		user, over := load.pick(rand.New(rand.NewPCG(uint64(i), 1))), time.Now().Add(span(*tailSpan))
		for now := time.Now(); now.Before(over); now = time.Now() {
			decide(user(), now)
		}
	}, ask)
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

// tailRun holds the measurements of one loop, or of one of its goroutines.
type tailRun struct {
	decisions, admitted int64
	seconds             float64
	redisCPU, clientCPU float64 // in seconds
	latencies           histogram
}

// loop runs workers goroutines, which decide about users. A latency is from since.
func loop(
	b *testing.B, rdb *redis.Client, workers int,
	work func(i int, decide func(user string, since time.Time)), ask asker,
) *tailRun {
	b.Helper()
	parts := make([]tailRun, workers)
	redisBefore, ownBefore, begun := redisCPU(b, rdb), testkit.CPUTime(), time.Now()
	together(workers, func(i int) {
		t := &parts[i]
		work(i, func(user string, since time.Time) {
			ok, err := ask(user)
			if err != nil {
				b.Error(err)
			}
			t.latencies.add(time.Since(since))
			t.decisions++
			if ok {
				t.admitted++
			}
		})
	})()
	t := &tailRun{seconds: time.Since(begun).Seconds()}
	t.clientCPU, t.redisCPU = (testkit.CPUTime() - ownBefore).Seconds(), redisCPU(b, rdb)-redisBefore
	for i := range parts {
		t.decisions += parts[i].decisions
		t.admitted += parts[i].admitted
		t.latencies.merge(&parts[i].latencies)
	}
	return t
}

func (t *tailRun) report(f tailFigures, prefix string) {
	f[prefix+"Redis CPU us/decision"] = t.redisCPU * 1e6 / float64(t.decisions)
	f[prefix+"client CPU us/decision"] = t.clientCPU * 1e6 / float64(t.decisions)
	for name, p := range map[string]float64{"p50 ms": 0.5, "p99 ms": 0.99, "p99.9 ms": 0.999} {
		f[prefix+name] = float64(t.latencies.quantile(p)) / float64(time.Millisecond)
	}
}

// openLoop asks at a fixed rate, whether what was asked before has been answered or not. A latency
// is from when the request was due: a limiter that stalls pays for all that came meanwhile.
func openLoop(b *testing.B, rdb *redis.Client, load tailLoad, ask asker) *tailRun {
	b.Helper()
	type request struct {
		user string
		due  time.Time
	}
	requests, begun := make(chan request, 2*tailPerSecond), time.Now()
	go func() {
		defer close(requests)
		user := load.pick(rand.New(rand.NewPCG(1, 2)))
		pace(tailPerSecond, span(*tailSpan/2), func(i int) {
			requests <- request{user(), begun.Add(time.Duration(i) * time.Second / tailPerSecond)}
		})
	}()
	return loop(b, rdb, 4*tailGoroutines, func(_ int, decide func(string, time.Time)) {
		for r := range requests {
			decide(r.user, r.due)
		}
	}, ask)
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

func (h *histogram) count() (total int64) {
	for _, n := range h {
		total += n
	}
	return total
}

// quantile is the lower end of the class of the p-th quantile; of the last one there is for 1.
func (h *histogram) quantile(p float64) (d time.Duration) {
	left := int64(p * float64(h.count()))
	for i, n := range h {
		if n > 0 {
			shift := i >> histogramBits
			d = time.Duration((1<<histogramBits + i&(1<<histogramBits-1)) << shift)
		}
		if left -= n; left < 0 {
			break
		}
	}
	return d
}

// report reports percentiles under name, in microseconds.
func (h *histogram) report(b *testing.B, name string, percentiles map[string]float64) {
	b.Helper()
	for label, p := range percentiles {
		b.ReportMetric(float64(h.quantile(p))/float64(time.Microsecond), name+"-"+label+"-us")
	}
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
