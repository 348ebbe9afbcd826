package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// truth is the load and the network of some processes, for the simulator and for hybrid. A hang is
// the only fault. Requests go to the keys and the processes in turn.
type truth struct{ scenario.Scenario }

func (c truth) keyOf(i int) int     { return i * 7 / 3 % c.Keys.Count }
func (c truth) processOf(i int) int { return i % c.Groups[0].Count }

var truths = map[string]string{
	"light":    "limits: [1000/s], workload: {rate: 300/s}, duration: 5s, network: {round_trip: 1ms}",
	"overload": "limits: [1000/s burst 204], workload: {rate: 2500/s}, duration: 5s, network: {round_trip: 1ms}",
	"slow network": "limits: [500/s burst 500], workload: {rate: 450/s}, duration: 10s, " +
		"network: {round_trip: 60ms}",
	"far":        "limits: [1000/s], workload: {rate: 600/s}, duration: 5s, network: {round_trip: 90ms}",
	"straddling": "limits: [1000/s], workload: {rate: 600/s}, duration: 5s, network: {round_trip: 21ms}",
	"slow key":   "limits: [100/s], workload: {rate: 3/s}, duration: 30s, network: {round_trip: 2ms}",
	"slow key, slow network": "limits: [100/s], workload: {rate: 6/s}, duration: 30s, " +
		"network: {round_trip: 24ms}",
	"slow key, no draws": "limits: [100/s], workload: {rate: 3/s}, duration: 30s, network: {round_trip: 40ms}",
	"slow key, scarce": "limits: [60/m burst 2], workload: {rate: 2/s}, duration: 30s, " +
		"network: {round_trip: 17ms}",
	"slow key, charges": `limits: [100/s], workload: {rate: 2/s, cost: 2, actual: 5, hold: 20.000031ms},
		duration: 30s, network: {round_trip: 17ms}`,
	"slow key, outage": `limits: [100/s], workload: {rate: 3/s}, duration: 20s, network: {round_trip: 17ms},
		redis: {faults: [{kind: hang, at: 8s, for: 2s}]}`,
	"try":  "limits: [300/s burst 60], workload: {verb: try, rate: 900/s}, duration: 5s",
	"wait": `limits: [100/s burst 20], workload: {verb: wait, deadline: 400ms, rate: 150/s}, duration: 5s`,
	"many tokens": `limits: [1000/s burst 300, 50000/m burst 2000], workload: {rate: 200/s, cost: 7},
		duration: 5s`,
	"headroom": "limits: [1000/s burst 200], policy: {headroom: 0.3}, workload: {rate: 2500/s}, duration: 5s",
	"shadow": "limits: [1000/s burst 204], policy: {shadow: true}, workload: {rate: 2500/s, verb: wait}, " +
		"duration: 5s",
	"charges": `limits: [1000/s burst 300], workload: {rate: 300/s, cost: 2, actual: 5, hold: 7.000031ms},
		duration: 5s`,
	"refunds": `limits: [1000/s burst 300], workload: {rate: 300/s, cost: 5, actual: 2, hold: 7.000031ms},
		duration: 5s`,
	"window":           "limits: [1000 in 1s], workload: {rate: 700/s}, duration: 5s",
	"window, overload": "limits: [300 in 1s], workload: {rate: 900/s}, duration: 5s",
	"window, wait": `limits: [50 in 500ms], workload: {verb: wait, deadline: 400ms, rate: 150/s},
		duration: 5s`,
	"window, slow": "limits: [100 in 10s], workload: {rate: 12/s}, duration: 40s, network: {round_trip: 2ms}",
	"window, and more": "limits: [300 in 2s, 200/s burst 40, 5000 each 1m], workload: {rate: 250/s, cost: 2}, " +
		"duration: 8s",
	"window, charges": `limits: [900 in 1s], workload: {rate: 200/s, cost: 2, actual: 4, hold: 7.000031ms},
		duration: 5s`,
	"window, refunds": `limits: [900 in 1s], workload: {rate: 300/s, cost: 5, actual: 2, hold: 7.000031ms},
		duration: 5s`,
	"calendar":           "limits: [1000 each 1s from 300ms], workload: {rate: 700/s}, duration: 5s",
	"calendar, overload": "limits: [300 each 1s], workload: {rate: 900/s}, duration: 5s",
	"keys": "limits: [1000/s burst 300], keys: {count: 5}, workload: {rate: 500/s}, duration: 5s, " +
		"network: {round_trip: 1.000137ms}",
	"slow keys": "limits: [10/s], keys: {count: 40}, workload: {rate: 100/s}, duration: 10s, " +
		"network: {round_trip: 2.000137ms}",
	"keys, far": "limits: [10/s], keys: {count: 40}, workload: {rate: 100/s}, duration: 6s, " +
		"network: {round_trip: 24.000137ms}",
	"processes": "limits: [1000/s], groups: [{count: 3}], workload: {rate: 600/s}, duration: 5s, " +
		"network: {round_trip: 1.000137ms}",
	"a small fleet": `limits: [100/s], groups: [{count: 4}], keys: {count: 9}, workload: {rate: 500/s},
		duration: 6s, network: {round_trip: 3.000137ms}`,
	"outage": `limits: [1000/s], policy: {fallback: deny}, workload: {rate: 600/s}, duration: 8s,
		redis: {faults: [{kind: hang, at: 2s, for: 2s}]}`,
	"outage, local share": `limits: [1000/s], workload: {rate: 600/s}, duration: 8s,
		redis: {faults: [{kind: hang, at: 2s, for: 2s}]}`,
}

// TestProcessesAreGrantedWhatHybridIs: the same requests at the same moments, in the simulator and in
// hybrid limiters on fake time, make the same lease calls at the same moments and bring the same
// grants.
func TestProcessesAreGrantedWhatHybridIs(t *testing.T) {
	for name, text := range truths {
		t.Run(name, func(t *testing.T) {
			s := scene(t, text)
			if s.Network.RoundTrip.IsZero() {
				s.Network.RoundTrip = scenario.Constantly(time.Millisecond) // of the network of real
			}
			c := truth{s.Defaults()}
			for seed := range uint64(testkit.ShortOrLong(t, 1, testkit.PlainOrRace(10, 2), "seeds")) {
				moments := c.moments(seed)
				real, simulated := c.real(t, moments), c.simulate(t, moments)
				testkit.Must(t, len(real.calls) >= 5, "%d calls: nothing is compared", len(real.calls))
				got, want := append(simulated.inOrder(), "none"), append(real.inOrder(), "none")
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("seed %d, call %d of %d:\nhybrid     %s\nsimulated  %s\nbefore:    %s", seed, i,
							len(real.calls), want[i], got[i], want[max(i-1, 0)])
					}
				}
				slack := c.slack(moments)
				if d := real.admitted - simulated.admitted; max(d, -d) > slack {
					t.Fatalf("seed %d: hybrid admitted %d, the simulator %d", seed, real.admitted, simulated.admitted)
				}
				t.Logf("seed %d: %d calls, %d admitted (%d simulated)", seed, len(real.calls), real.admitted,
					simulated.admitted)
			}
		})
	}
}

// outcomes records the results of one world: the simulator or hybrid.
type outcomes struct {
	calls    []answered
	last     map[[2]int]int64 // seqs: hybrid's rise by steps of their own, so only whether one rose is compared
	admitted int64
	until    time.Duration // later calls are not compared
}

// answered is a call that a bucket has answered.
type answered struct {
	at           time.Duration
	key, process int
	text         string
}

func (o *outcomes) executed(now time.Duration, key, process int, r *lease.Request, g *lease.Grant) {
	if now >= o.until {
		return
	}
	if o.last == nil {
		o.last = make(map[[2]int]int64)
	}
	holder := [2]int{key, process}
	o.calls = append(o.calls, answered{now, key, process, fmt.Sprintf(
		"at %v key %d process %d: retry %v remaining %d returned %d late %v "+
			"headroom %v want %d need %d waiting %d: granted %d waited %d delay %v void %v draw %v",
		now, key, process, r.Seq == o.last[holder], r.Remaining, r.Returned, r.Late,
		r.Headroom, r.Want, r.Need, r.Waiting, g.Granted, g.Waited, g.Delay, g.Void, r.Draw)})
	o.last[holder] = r.Seq
}

// inOrder lists the calls by time, key and process.
func (o *outcomes) inOrder() (all []string) {
	slices.SortStableFunc(o.calls, func(a, b answered) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key), cmp.Compare(a.process, b.process))
	})
	for _, c := range o.calls {
		all = append(all, c.text)
	}
	return all
}

// moments draws Poisson arrivals, at most one in a microsecond: the order of goroutines would
// decide between two.
func (c truth) moments(seed uint64) (at []time.Duration) {
	rnd := rand.New(rand.NewPCG(seed, 5))
	for now := time.Duration(0); ; {
		gap := time.Duration(rnd.ExpFloat64() / float64(c.Workload.Rate) * 1e9)
		now += gap.Truncate(time.Microsecond) + 3*time.Microsecond + 137
		if now >= c.Duration {
			return at
		}
		at = append(at, now)
	}
}

// until returns the time up to which every call is compared. If the store fails, each limiter
// probes at its own random moments.
func (c truth) until() time.Duration {
	for _, f := range c.Redis.Faults {
		return f.At
	}
	return c.Duration
}

// slack returns the number of tokens by which the admissions of the worlds may differ. After an
// outage each world detects the store at its own random moment (docs/protocol.md section 8.12): the
// last failing probe may just have begun, the next one comes within a TTL, and for rampTargets
// after it the key may have to wait for its turn. Until then one world may deny requests that the
// other admits.
func (c truth) slack(moments []time.Duration) (tokens int64) {
	const rampTargets = 10
	config := c.Policy.ConfigFor(c.Limits, 1, 0)
	for _, f := range c.Redis.Faults {
		back := f.At + f.For
		last := back + lease.DefaultCallTimeout + config.TTL + rampTargets*config.Target
		for _, at := range moments {
			if at >= back && at < last {
				tokens += c.Workload.Cost.Min
			}
		}
	}
	return tokens
}

func (c truth) hanging(now time.Duration) bool {
	return slices.ContainsFunc(c.Redis.Faults,
		func(f scenario.RedisFault) bool { return now >= f.At && now < f.At+f.For })
}

// world holds the buckets that all processes share.
type world struct {
	truth
	outcomes
	began time.Time

	mu      sync.Mutex
	buckets map[string]*protocol.Bucket
}

// call executes one call of a process.
func (w *world) call(now time.Duration, process int, c *lease.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.buckets[c.Key]
	if b == nil {
		b = new(protocol.Bucket)
		w.buckets[c.Key] = b
	}
	if c.Err = b.Call(serverStart+now.Microseconds(), &c.Request, &c.Grant); c.Err == nil {
		key, _ := strconv.Atoi(c.Key)
		w.executed(now, key, process, &c.Request, &c.Grant)
	}
}

// store is the network of one process, with connections as go-redis keeps them. All keys are on one
// node.
type store struct {
	lease.Store // for the unused methods
	*world
	process int

	mu     sync.Mutex
	idle   int
	opened int
}

var errOpening = errors.New("a connection is being opened")

// taken reports whether a connection was idle, and how many round trips opening one takes.
func (s *store) taken() (ok bool, trips int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle > 0 {
		s.idle--
		return true, 0
	}
	s.opened++
	if s.opened == 1 {
		return false, handshakeFirst
	}
	return false, handshake
}

func (s *store) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle++
}

// connect opens a connection for calls, and returns how long that took; false if the server hangs.
func (s *store) connect(calls []*lease.Call) (before time.Duration, ok bool) {
	ok, trips := s.taken()
	if ok {
		return 0, true
	}
	began := time.Now()
	for _, c := range calls {
		c.SetUnsent(errOpening)
	}
	for range trips {
		if time.Sleep(time.Duration(s.Network.RoundTrip.P)); s.hanging(time.Since(s.began)) {
			return 0, false
		}
	}
	for _, c := range calls {
		c.SetSent(time.Since(began))
	}
	return time.Since(began), true
}

// NodeOf implements lease.Router.
func (s *store) NodeOf(string) int { return 0 }

func (s *store) NodeName(int) string { return "" }

func (s *store) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	for _, c := range calls {
		c.Node = 0
	}
	before, ok := s.connect(calls)
	trip := time.Duration(s.Network.RoundTrip.P)
	if ok {
		time.Sleep(trip / 2)
	}
	now := time.Since(s.began)
	if !ok || s.hanging(now) {
		<-ctx.Done()
		for _, c := range calls {
			c.Err = lease.ErrUnavailable
		}
		done(calls)
		return
	}
	for _, c := range calls {
		c.Before = before
		s.call(now, s.process, c)
	}
	time.Sleep(trip - trip/2)
	s.release()
	done(calls)
}

// real runs hybrid limiters.
func (c truth) real(t *testing.T, moments []time.Duration) (o outcomes) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{truth: c, outcomes: outcomes{until: c.until()}, began: time.Now(),
			buckets: make(map[string]*protocol.Bucket)}
		var limiters []*hybrid.Limiter
		for process := range c.Groups[0].Count {
			l, err := hybrid.New(&store{world: w, process: process}, hybrid.Config{
				Limits: c.Limits, Policy: c.Policy, Version: 1, Logger: slog.New(slog.DiscardHandler),
			})
			testkit.NoErr(t, err)
			limiters = append(limiters, l)
		}
		admitted := make(chan int64, len(moments))
		for i, at := range moments {
			key := limiters[c.processOf(i)].Key(strconv.Itoa(c.keyOf(i)))
			time.Sleep(time.Until(w.began.Add(at)))
			go func() {
				if c.asks(key) {
					admitted <- c.Workload.Cost.Min
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Until(w.began.Add(c.Duration)))
		for _, l := range limiters {
			l.Close()
		}
		synctest.Wait()
		close(admitted)
		for n := range admitted {
			w.admitted += n
		}
		time.Sleep(time.Minute)
		o = w.outcomes
	})
	return o
}

func (c truth) asks(key *hybrid.Key) bool {
	switch c.Workload.Verb {
	case scenario.VerbTry:
		return key.TryAllow()
	case scenario.VerbWait:
		ctx, cancel := context.WithTimeout(context.Background(), c.Workload.Deadline)
		defer cancel()
		if c.Policy.Shadow { // the same answer, with more detail
			r, _ := key.Take(ctx, c.Workload.Cost.Min)
			return r.OK && !r.Shadowed
		}
		return key.WaitN(ctx, c.Workload.Cost.Min) == nil
	}
	if c.Workload.Reserves() {
		r, _ := key.Reserve(context.Background(), c.Workload.Cost.Min)
		if r.OK() {
			go c.settle(r)
		}
		return r.OK()
	}
	return key.AllowN(c.Workload.Cost.Min)
}

func (c truth) settle(r *hybrid.Reservation) {
	time.Sleep(time.Duration(c.Workload.Hold.P))
	_ = r.Settle(int64(c.Workload.Actual.P)) // an error where the limiter is closed by now
}

// simulate runs the simulator.
func (c truth) simulate(t *testing.T, moments []time.Duration) (o outcomes) {
	o.until = c.until()
	s := c.Scenario
	s.Workload = replay(len(moments), func(i int) scenario.TraceRequest {
		return scenario.TraceRequest{At: moments[i], Cost: c.Workload.Cost.Min, Key: c.keyOf(i),
			Process: c.processOf(i)}
	})
	w := &c.Workload
	s.Workload.Verb, s.Workload.Deadline = w.Verb, w.Deadline
	s.Workload.Actual, s.Workload.Hold = w.Actual, w.Hold
	// A service time of 0, which is not the default.
	none := scenario.Constantly(0)
	s.Redis.ServiceTime, s.Redis.ExchangeTime, s.Redis.WakeTime = none, none, none
	run := simulate(t, s, func(run *replication, c *call) {
		o.executed(time.Duration(run.time.now), int(c.entry.key), int(c.entry.p.index), &c.request, &c.grant)
	})
	o.admitted = run.books.tally.Admitted
	return o
}
