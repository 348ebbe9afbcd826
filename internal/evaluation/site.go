package main

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// site is a Redis server and the limiters that use it.
type site struct {
	testing.TB
	server  *redistest.Server
	watch   *redis.Client // reads INFO from the server
	sent    sent
	closers []func() error
}

func (e *evaluation) site() *site {
	s := &site{TB: e, server: redistest.Start(e)}
	s.watch = redis.NewClient(&redis.Options{Addr: s.server.Addr})
	return s
}

// client returns a Redis client whose commands s.sent counts. s.leave closes the client.
func (s *site) client(o redis.Options) *redis.Client {
	o.Addr = s.server.Addr
	c := redis.NewClient(&o)
	c.AddHook(&s.sent)
	s.closers = append(s.closers, c.Close)
	return c
}

// leave closes all limiters and clients, each limiter before its client.
func (s *site) leave() {
	for _, c := range slices.Backward(s.closers) {
		_ = c()
	}
	s.closers = nil
}

func (s *site) close() {
	s.leave()
	_ = s.watch.Close()
	s.server.Kill()
}

// sent is a redis.Hook that counts the commands of clients.
type sent struct{ commands, trips atomic.Int64 }

func (c *sent) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *sent) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		c.trips.Add(1)
		return next(ctx, cmd)
	}
}

func (c *sent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.commands.Add(int64(len(cmds)))
		c.trips.Add(1)
		return next(ctx, cmds)
	}
}

// info returns the sum of the numbers that pattern captures in a section of the server's INFO.
func (s *site) info(section, pattern string) (sum float64) {
	text, err := s.watch.Info(context.Background(), section).Result()
	testkit.NoErr(s, err)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		x, err := strconv.ParseFloat(m[1], 64)
		testkit.NoErr(s, err)
		sum += x
	}
	return sum
}

// scripts returns the number of script calls that the server has executed.
func (s *site) scripts() float64 { return s.info("commandstats", `cmdstat_eval(?:sha)?:calls=(\d+)`) }

// decision is one request, with times since the start of the loop.
type decision struct {
	issued, took     time.Duration
	admitted, failed bool
}

// outcome has the results of one loop of requests.
type outcome struct {
	asked, admitted, failed int
	seconds                 float64
	clientCPU, serverCPU    float64 // seconds used by the evaluation's whole process, and by the server
	commands, trips         float64
	latencies               []time.Duration // in ascending order
	begun                   time.Time       // only in an open loop
	all                     []decision      // only in an open loop
}

func (o *outcome) per(x float64) float64 { return x / float64(max(o.asked, 1)) }

// quantile returns the p-th quantile of the latencies in milliseconds.
func (o *outcome) quantile(p float64) float64 {
	if len(o.latencies) == 0 {
		return 0
	}
	i := min(int(p*float64(len(o.latencies))), len(o.latencies)-1)
	return o.latencies[i].Seconds() * 1e3
}

func (o *outcome) count(admitted bool, err error) {
	o.asked++
	switch {
	case err != nil:
		o.failed++
	case admitted:
		o.admitted++
	}
}

// measure runs loop, which counts its decisions in o. measure adds the other figures.
func (s *site) measure(loop func(o *outcome)) *outcome {
	const cpu = `used_cpu_(?:sys|user):([\d.]+)`
	o := new(outcome)
	commands, trips := s.sent.commands.Load(), s.sent.trips.Load()
	server, client, begun := s.info("cpu", cpu), testkit.CPUTime(), time.Now()
	loop(o)
	o.seconds, o.clientCPU = time.Since(begun).Seconds(), (testkit.CPUTime() - client).Seconds()
	o.serverCPU = s.info("cpu", cpu) - server
	o.commands, o.trips = float64(s.sent.commands.Load()-commands), float64(s.sent.trips.Load()-trips)
	slices.Sort(o.latencies)
	return o
}

// closed runs a closed loop for d: each of a number of goroutines sends a request as soon as its last request
// is decided. If timed, closed records latencies.
func (s *site) closed(d time.Duration, timed bool, ask asker, pick keys) *outcome {
	return s.measure(func(o *outcome) {
		parts := make([]outcome, goroutines)
		var over atomic.Bool
		var wg sync.WaitGroup
		defer time.AfterFunc(d, func() { over.Store(true) }).Stop()
		for i := range parts {
			wg.Go(func() {
				var part outcome // local, because neighbours in parts would share a cache line
				defer func() { parts[i] = part }()
				key := pick(uint64(i))
				for !over.Load() {
					if !timed {
						part.count(ask(key()))
						continue
					}
					name, from := key(), time.Now()
					ok, err := ask(name)
					part.latencies = append(part.latencies, time.Since(from))
					part.count(ok, err)
				}
			})
		}
		wg.Wait()
		for _, part := range parts {
			o.asked, o.admitted, o.failed = o.asked+part.asked, o.admitted+part.admitted, o.failed+part.failed
			o.latencies = append(o.latencies, part.latencies...)
		}
	})
}

// open runs an open loop for d: open sends perSecond requests per second, each on a goroutine of its own,
// without waiting for earlier decisions. The latency of a request counts from its sending.
func (s *site) open(perSecond float64, d time.Duration, ask asker, pick keys) *outcome {
	const tick = 200 * time.Microsecond
	return s.measure(func(o *outcome) {
		o.all = make([]decision, int(perSecond*d.Seconds()))
		var wg sync.WaitGroup
		key, begun := pick(0), time.Now()
		o.begun = begun
		for spent := time.Duration(0); spent < d && o.asked < len(o.all); spent = time.Since(begun) {
			for due := int(perSecond * spent.Seconds()); o.asked < min(due, len(o.all)); o.asked++ {
				x, name := &o.all[o.asked], key()
				x.issued = time.Since(begun)
				wg.Go(func() {
					ok, err := ask(name)
					x.took, x.admitted, x.failed = time.Since(begun)-x.issued, ok && err == nil, err != nil
				})
			}
			time.Sleep(tick)
		}
		wg.Wait()
		o.all = o.all[:o.asked]
		for _, x := range o.all {
			o.latencies = append(o.latencies, x.took)
			if x.failed {
				o.failed++
			} else if x.admitted {
				o.admitted++
			}
		}
	})
}

// keys returns the source of keys for the goroutine with number seed.
type keys func(seed uint64) (next func() string)

func one(uint64) func() string { return func() string { return "k" } }

func uniform(names []string) keys {
	return func(seed uint64) func() string {
		r := rand.New(rand.NewPCG(seed, 1))
		return func() string { return names[r.IntN(len(names))] }
	}
}

func zipf(names []string) keys {
	return func(seed uint64) func() string {
		z := rand.NewZipf(rand.New(rand.NewPCG(seed, 1)), 1.1, 1, uint64(len(names)-1))
		return func() string { return names[z.Uint64()] }
	}
}

func users(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "user:" + strconv.Itoa(i)
	}
	return names
}
