package engine

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Closed forms: runs whose outcome is known before.

// newRun is a replication of s that has not begun; its seed is that of s.
func newRun(t *testing.T, s scenario.Scenario) *replication {
	t.Helper()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	s = s.Defaults()
	w, err := newReplication(&s, s.Seed)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// simulate runs one replication of s to its end.
func simulate(t *testing.T, s scenario.Scenario) *replication {
	t.Helper()
	w := newRun(t, s)
	if err := w.run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// watch has see told of every call that a bucket answers.
func watch(w *replication, see func(*call)) {
	book := w.redis.answered
	w.redis.answered = func(c *call, stored bool) {
		see(c)
		book(c, stored)
	}
}

// figure is one of the figures of a replication, by its key.
func figure(w *replication, name string) float64 {
	o := w.outcome()
	for _, n := range o.Figures.All() {
		if n.Name == name {
			return n.Mean
		}
	}
	panic("there is no figure " + name)
}

// regularly is a trace of requests for one token, one in every gap from the beginning to the end.
func regularly(gap, end time.Duration) *scenario.Trace {
	t := &scenario.Trace{}
	for at := time.Duration(0); at < end; at += gap {
		t.Requests = append(t.Requests, scenario.TraceRequest{At: at, Cost: 1})
	}
	return t
}

func TestWhatTheLimitHasRoomForIsAdmitted(t *testing.T) {
	// Given one process with half as many requests as the limit admits, evenly spread,
	s := scenario.Scenario{
		Duration: 20 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)},
		Workload: scenario.Workload{Kind: scenario.Constant, Rate: 500},
	}
	w := simulate(t, s)
	// then all of them are admitted, and nothing is lost or rejected,
	if w.books.offered < 9999 || w.books.offered > 10_000 || w.books.tally.Admitted != w.books.offered || w.books.centralAdmitted != w.books.offered {
		t.Errorf("%d offered, %d admitted, %d by one central bucket; want 10,000 of each", w.books.offered, w.books.tally.Admitted, w.books.centralAdmitted)
	}
	for _, name := range []string{"burnt", "bound_exceeded_by", "false_reject_ratio", "swapped_ratio", "degraded"} {
		if x := figure(w, name); x != 0 {
			t.Errorf("%s is %v", name, x)
		}
	}
	// for about 1/Target calls a second, and at most 2/Target.
	target := s.Policy.TargetFor(s.Limits).Seconds()
	if x := figure(w, "calls_per_s"); x < 0.5/target || x > 2/target {
		t.Errorf("%v calls/s, 1/Target is %v", x, 1/target)
	}
	if figure(w, "calls_per_s") != figure(w, "round_trips_per_s") {
		t.Errorf("%v calls/s take %v round trips/s, of one key", figure(w, "calls_per_s"), figure(w, "round_trips_per_s"))
	}
}

func TestOverloadAdmitsBurstAndRate(t *testing.T) {
	for _, c := range []struct {
		rate, burst int64
		n           int
	}{{1000, 1000, 1}, {1000, 300, 5}, {20_000, 8000, 10}, {50, 10, 1}} {
		// Given three times what the limit admits, for ten seconds,
		limit := lease.PerSecond(c.rate).WithBurst(c.burst)
		s := scenario.Scenario{
			Duration: 10 * time.Second, Limits: []lease.Limit{limit}, Policy: lease.Policy{Fallback: lease.FallbackDeny},
			Groups: []scenario.Group{{Count: c.n}}, Workload: scenario.Workload{Kind: scenario.Constant, Load: 3},
		}
		w := simulate(t, s)
		// then the burst and ten seconds of the rate are admitted, but for three stocks: what is in
		// the bucket, which the sharing keeps at R*Target (half the burst, if that is less, and a
		// token at least); what is in the pools, which is meant for a Target and a round trip; and
		// what did not flow in while the bucket was full on paper, because what had been spent of
		// the first leases was not reported before a Target was over.
		most := c.burst + 10*c.rate
		stock := 3 * max(1, int64(math.Ceil(limit.Rate()*(s.Policy.TargetFor(s.Limits)+2*time.Millisecond).Seconds())))
		if got := w.books.tally.Admitted; got > most || got < most-stock {
			t.Errorf("%v, %d processes: %d admitted, want %d to %d", limit, c.n, got, most-stock, most)
		}
		if x := figure(w, "bound_exceeded_by"); x != 0 {
			t.Errorf("%v: the bound is exceeded by %v", limit, x)
		}
	}
}

func TestABurstOfOneIsEnoughForWhoComesInTime(t *testing.T) {
	// Given a bucket that can hold one token, and a request whenever there is one again,
	w := simulate(t, scenario.Scenario{
		Duration: 20 * time.Second, Limits: []lease.Limit{lease.Every(100 * time.Millisecond)}, Policy: lease.Policy{Fallback: lease.FallbackDeny},
		Workload: scenario.Workload{Kind: scenario.Replay, Trace: regularly(102*time.Millisecond, 20*time.Second)},
	})
	// then each is admitted, and each takes a call.
	if w.books.requests != 197 || w.books.tally.Admitted != w.books.requests || w.network.calls() != w.books.requests {
		t.Errorf("%d of %d are admitted, with %d calls", w.books.tally.Admitted, w.books.requests, w.network.calls())
	}
}

func TestOneCentralBucketAdmitsExactlyBurstAndRate(t *testing.T) {
	// Given a request every half millisecond and a bucket that makes a token in one, the first of
	// them at 0,
	for _, end := range []time.Duration{time.Second, 1234500 * time.Microsecond, 3 * time.Second} {
		w := simulate(t, scenario.Scenario{
			Duration: end, Limits: []lease.Limit{lease.PerSecond(1000).WithBurst(100)}, Rivals: []string{"central"},
			Workload: scenario.Workload{Kind: scenario.Replay, Trace: regularly(500*time.Microsecond, end)},
		})
		// then what it has admitted by the last one is the burst and a token for each whole
		// millisecond.
		last := end - 500*time.Microsecond
		want := 100 + int64(last/time.Millisecond)
		if w.books.centralAdmitted != want || w.books.rivals[0].tally.Admitted != want {
			t.Errorf("%v: %d are admitted, %d by the rival of that name, want %d", end, w.books.centralAdmitted, w.books.rivals[0].tally.Admitted, want)
		}
		if x := w.books.rivals[0].tally; x.FalseRejects != 0 || x.Swapped != 0 {
			t.Errorf("%v: the rival central rejects %d falsely and swaps %d", end, x.FalseRejects, x.Swapped)
		}
	}
}

func TestWithoutANetworkTheFallbackDecides(t *testing.T) {
	const fleet = 4
	for _, c := range []struct {
		name      string
		policy    lease.Policy
		never     bool // the network never worked
		low, high float64
	}{
		// From five seconds on, when the local bursts have been used up, for ten: R is 1000/s, and
		// the load is three times that. A local bucket gives whole tokens.
		{"deny", lease.Policy{Fallback: lease.FallbackDeny}, false, 0, 0},
		{"local share", lease.Policy{Fallback: lease.FallbackLocalShare}, false, 10_000 - fleet, 10_000 + fleet},
		{"allow all", lease.Policy{Fallback: lease.FallbackAllowAll}, false, 30_000 - fleet, 30_000 + fleet},
		// Who has never heard of the bucket has no share of it.
		{"deny, cold", lease.Policy{Fallback: lease.FallbackDeny}, true, 0, 0},
		{"local share, cold", lease.Policy{Fallback: lease.FallbackLocalShare}, true, 0, 0},
		{"allow all, cold", lease.Policy{Fallback: lease.FallbackAllowAll}, true, 0, 0},
		{"cold start allowed", lease.Policy{Fallback: lease.FallbackDeny, ColdStart: lease.ColdStartAllow}, true, 30_000 - fleet, 30_000 + fleet},
	} {
		s := scenario.Scenario{
			Duration: 15 * time.Second, Warmup: 5 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)}, Policy: c.policy,
			Groups: []scenario.Group{{Name: "a", Count: fleet - 1}, {Name: "b", Weight: 2}}, Workload: scenario.Workload{Kind: scenario.Constant, Load: 3},
			Network: scenario.Network{Partitions: []scenario.Partition{{At: time.Second, For: time.Hour}}},
		}
		if c.never {
			s.Network = scenario.Network{Loss: 1}
		}
		w := simulate(t, s)
		if got := figure(w, "admitted"); got < c.low || got > c.high || got != figure(w, "degraded") {
			t.Errorf("%s: %v admitted, %v of them without the store, want %v to %v", c.name, got, figure(w, "degraded"), c.low, c.high)
		}
	}
}

func TestTheLocalShareIsByWeight(t *testing.T) {
	w := simulate(t, scenario.Scenario{
		Duration: 12 * time.Second, Warmup: 2 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)},
		Groups: []scenario.Group{{Name: "a", Count: 3}, {Name: "b", Weight: 2}}, Workload: scenario.Workload{Kind: scenario.Constant, Load: 5},
		Network: scenario.Network{Partitions: []scenario.Partition{{At: time.Second, For: time.Hour}}},
	})
	for i, want := range []int64{2000, 2000, 2000, 4000} {
		if got := w.books.tally.ByProcess[i]; got < want-1 || got > want+1 {
			t.Errorf("process %d admits %d, want %d", i, got, want)
		}
	}
}

func TestRedisIsBusyForTheServiceTimeOfEachCall(t *testing.T) {
	// Given calls that all come to an end: requests in the first second of three,
	for _, service := range []time.Duration{time.Microsecond, 15 * time.Microsecond, 2 * time.Millisecond} {
		w := simulate(t, scenario.Scenario{
			Duration: 3 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)}, Groups: []scenario.Group{{Count: 3}},
			Workload: scenario.Workload{Kind: scenario.Replay, Trace: regularly(time.Millisecond, time.Second)}, Redis: scenario.Redis{ServiceTime: scenario.Constantly(service)},
		})
		// then Redis is busy for the service time of each, exactly.
		if w.redis.shards[0].busy != w.network.calls()*int64(service) || w.network.calls() < 10 {
			t.Errorf("%d calls of %v keep it busy for %v", w.network.calls(), service, time.Duration(w.redis.shards[0].busy))
		}
		if cpu, want := figure(w, "redis_cpu"), float64(w.network.calls())*service.Seconds()/3; math.Abs(cpu-want) > 1e-15 {
			t.Errorf("redis_cpu is %v, want %v", cpu, want)
		}
	}
}

func TestWhoIsKilledBurnsWhatHeHolds(t *testing.T) {
	for _, kill := range []bool{true, false} {
		// Given a fleet that is killed, or shuts down, in the middle of its work,
		end := time.Duration(1234567891)
		w := newRun(t, scenario.Scenario{
			Duration: 3 * time.Second, Limits: []lease.Limit{lease.PerSecond(5000)},
			Groups: []scenario.Group{{Count: 20, Scale: []scenario.Step{{At: end, Kill: kill}}}}, Workload: scenario.Workload{Load: 0.8},
		})
		held, burnt := int64(0), int64(0)
		for len(w.time.heap) > 0 {
			if next := w.time.heap[0].at; w.time.now < int64(end) && next >= int64(end) {
				for _, e := range w.fleet.entries {
					held += e.client.Account().Held + e.executed.granted // what is on the way is lost too
				}
				burnt = w.books.burnt(w.fleet.entries)
			}
			w.step()
		}
		// then what the processes held is burnt, or given back.
		want := int64(0)
		if kill {
			want = held
		}
		if got := w.books.burnt(w.fleet.entries) - burnt; got != want || held < 100 {
			t.Errorf("killed %v: %d are burnt, want %d; they held %d", kill, got, want, held)
		}
		if err := w.books.balance(w.fleet.entries); err != nil {
			t.Error(err)
		}
	}
}

func TestEachRequestIsAnsweredOnce(t *testing.T) {
	seed := seedFor(t)
	for i := range uint64(100 / testkit.Slowdown) {
		// Given a random scenario, and a central bucket that has room for everything,
		w := newRun(t, newChaos(seed+i).Scenario)
		boundless, err := rival.NewCentral([]lease.Limit{lease.PerSecond(1e9).WithBurst(1e12)})
		if err != nil {
			t.Fatal(err)
		}
		for k := range w.books.central {
			w.books.central[k] = boundless
		}
		for w.goesOn() {
			if w.time.heap[0].at < w.time.now {
				t.Fatalf("seed %d: after %d comes an event at %d", seed+i, w.time.now, w.time.heap[0].at)
			}
			w.step()
		}
		// then every token that was asked for is admitted, or rejected although it was there, or
		// its request still waits.
		waiting := int64(0)
		for _, e := range w.fleet.entries {
			if e.alive {
				e.client.Waiters(func(x *lease.Waiter) { waiting += x.N })
			}
		}
		if w.books.offered != w.books.centralAdmitted || w.books.offered != w.books.tally.Admitted+w.books.tally.FalseRejects+waiting || w.books.tally.Swapped != 0 {
			t.Fatalf("seed %d: %d tokens are asked for, %d admitted, %d rejected, and %d waited for\n%+v", seed+i, w.books.offered, w.books.tally.Admitted, w.books.tally.FalseRejects, waiting, w.s)
		}
	}
}

func TestTinyRuns(t *testing.T) {
	for _, kind := range scenario.WorkloadKinds {
		for _, warmup := range []time.Duration{0, time.Millisecond - 1} {
			// Given the shortest run that there can be,
			s := scenario.Scenario{
				Duration: time.Millisecond, Warmup: warmup, Reps: 1, Limits: []lease.Limit{lease.PerSecond(1e5)}, Groups: []scenario.Group{{Count: 3}},
				Workload: scenario.Workload{Kind: kind, Trace: regularly(100*time.Microsecond, time.Second)}, Rivals: rival.Names(),
				Redis: scenario.Redis{Faults: []scenario.RedisFault{
					{Kind: scenario.FaultFailover, At: time.Millisecond, For: time.Hour, Lost: time.Hour}, {Kind: scenario.FaultOutage, At: 500 * time.Microsecond, For: 1},
				}},
			}
			// then its report is of numbers.
			if text := asJSON(t, reported(t, s, 1)); len(text) < 1000 {
				t.Errorf("%s: %s", kind, text)
			}
		}
	}
}
