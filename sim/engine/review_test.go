package engine

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// What a review of the engine found. Each of these failed.

func TestUsersOfARestartedProcessBeginAnew(t *testing.T) {
	// Given ten users who think for a second, and a process that is killed after half of one and
	// comes back soon,
	w := simulate(t, scenario.Scenario{
		Duration: 10 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)},
		Groups:   []scenario.Group{{Scale: []scenario.Step{{At: 500 * time.Millisecond, Kill: true}, {At: 600 * time.Millisecond, Count: 1}}}},
		Workload: scenario.Workload{Kind: scenario.Closed, Clients: 10, Think: scenario.Constantly(time.Second)},
	})
	// when they ask at 1.6 s, 2.6 s and so on, then each has asked 9 times.
	if w.books.requests != 90 {
		t.Errorf("ten users have asked %d times, want 90", w.books.requests)
	}
}

func TestEachOfTwoFailoversLosesWhatItSays(t *testing.T) {
	// Given a bucket that is used from the beginning, and a second failover during the first, with
	// a replica that is further behind,
	w := simulate(t, scenario.Scenario{
		Duration: 8 * time.Second, Limits: []lease.Limit{lease.PerMinute(6000)},
		Policy: lease.Policy{Fallback: lease.FallbackDeny},
		Redis: scenario.Redis{Faults: []scenario.RedisFault{
			{Kind: scenario.FaultFailover, At: 5 * time.Second, For: time.Second, Lost: 100 * time.Millisecond},
			{Kind: scenario.FaultFailover, At: 5500 * time.Millisecond, For: time.Second, Lost: 2 * time.Second},
		}},
	})
	// then the bucket is the old one, as it was at 3.5 s.
	created := time.Duration((*w.redis.place(0)).Dump().Created-serverStart) * time.Microsecond
	if created > time.Second {
		t.Errorf("the bucket was made at %v, so both replicas were lost", created)
	}
}

func TestASlowSecondIsOverWhenItIsOver(t *testing.T) {
	// Given ten processes that call at once in a moment in which every call takes a second longer,
	s := scenario.Scenario{
		Duration: 5 * time.Second, Limits: []lease.Limit{lease.PerHour(1000)}, CallTimeout: 20 * time.Second,
		Groups: []scenario.Group{{Count: 10}}, Workload: scenario.Workload{Kind: scenario.Replay, Trace: &scenario.Trace{}},
		Redis: scenario.Redis{Faults: []scenario.RedisFault{{Kind: scenario.FaultSlow, At: 990 * time.Millisecond, For: 20 * time.Millisecond, By: time.Second}}},
	}
	for p := range 10 {
		s.Workload.Trace.Requests = append(s.Workload.Trace.Requests, scenario.TraceRequest{At: time.Second, Process: p, Cost: 1})
	}
	w := newRun(t, s)
	var executed []time.Duration
	watch(w, func(*call) { executed = append(executed, time.Duration(w.time.now)) })
	if err := w.run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	// then the first takes a second, and the others, which are served after it, no longer than
	// usual.
	if len(executed) < 10 || executed[9] > 2010*time.Millisecond {
		t.Errorf("calls were executed at %v, want ten soon after 2 s", executed)
	}
}

func TestRedisIsNeverBusierThanOneCore(t *testing.T) {
	for _, f := range []scenario.RedisFault{
		{Kind: scenario.FaultSlow, At: time.Second, For: 4 * time.Second, By: 200 * time.Millisecond},
		{Kind: scenario.FaultRestartEmpty, At: 2 * time.Second, For: 100 * time.Millisecond},
	} {
		// Given more calls than one core can execute,
		w := simulate(t, scenario.Scenario{
			Duration: 5 * time.Second, Warmup: time.Second, Limits: []lease.Limit{lease.PerSecond(1000)},
			Groups: []scenario.Group{{Count: 50}}, Workload: scenario.Workload{Load: 3},
			Redis: scenario.Redis{ServiceTime: scenario.Constantly(50 * time.Millisecond), Faults: []scenario.RedisFault{f}},
		})
		// then it is busy all the time, and not more than that.
		if cpu := figure(w, "redis_cpu"); cpu > 1 || cpu < 0.9 {
			t.Errorf("%s: Redis uses %v of a core", f.Kind, cpu)
		}
	}
}

func TestRedisDoesNotWorkWhenItIsDown(t *testing.T) {
	for _, kind := range []string{scenario.FaultOutage, scenario.FaultHang, scenario.FaultRestartEmpty, scenario.FaultFailover} {
		// Given a call that takes a second, and reaches Redis half a millisecond after it was made,
		w := simulate(t, scenario.Scenario{
			Duration: 2 * time.Second, Limits: []lease.Limit{lease.PerSecond(1)}, Workload: scenario.Workload{Kind: scenario.Replay, Trace: &scenario.Trace{Requests: []scenario.TraceRequest{{Cost: 1}}}},
			Redis: scenario.Redis{ServiceTime: scenario.Constantly(time.Second), Faults: []scenario.RedisFault{{Kind: kind, At: 300 * time.Millisecond, For: time.Hour}}},
		})
		// then Redis is busy until it goes down.
		if got, want := figure(w, "redis_cpu")*2, 0.2995; math.Abs(got-want) > 1e-12 || w.books.granted != 0 {
			t.Errorf("%s: Redis works for %v s, want %v, and grants %d", kind, got, want, w.books.granted)
		}
	}
}

func TestRunReportsWhatValidateReports(t *testing.T) {
	s := scenario.Scenario{Duration: -time.Second, Limits: []lease.Limit{lease.PerSecond(1)}}
	want := s.Validate()
	_, err := Runner{}.Run(t.Context(), s)
	if err == nil || want == nil || err.Error() != want.Error() {
		t.Errorf("Run says\n%v\nwant\n%v", err, want)
	}
}

func TestWhateverEndsTheContextIsAnInterruption(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := Runner{}.Run(ctx, scenario.Scenario{Limits: []lease.Limit{lease.PerSecond(1)}})
	if !errors.Is(err, ErrInterrupted) || !errors.Is(err, cause) {
		t.Errorf("the error is %v, want one that wraps %v and the cause", err, ErrInterrupted)
	}
}

func TestParallelBelowOneIsTheDefault(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := Runner{Parallel: -1}.Run(ctx, scenario.Scenario{Duration: time.Second, Reps: 2, Limits: []lease.Limit{lease.PerSecond(10)}})
	if err != nil || r.Reps != 2 {
		t.Errorf("%d replications ended: %v", r.Reps, err)
	}
}

func TestTheBooksDoNotBalance(t *testing.T) {
	limits := []lease.Limit{lease.PerSecond(100)}
	grant := func(e *entry, seq, n int64) *call {
		return &call{entry: e, request: lease.Request{Seq: seq}, grant: lease.Grant{Seq: seq, Granted: n}}
	}
	for what, wrong := range map[string]func(*replication, *entry){
		"a grant that no bucket made": func(w *replication, e *entry) { w.books.accepted(grant(e, 1<<40, 3)) },
		"a grant twice":               func(w *replication, e *entry) { w.books.accepted(grant(e, e.executed.seq, 0)) },
		"more than was granted": func(w *replication, e *entry) {
			w.books.executed(grant(e, 1<<40, 3), false)
			w.books.accepted(grant(e, 1<<40, 4))
			w.books.granted -= 4
		},
	} {
		// Given a run that is well, and an entry whose last call was answered,
		w := simulate(t, scenario.Scenario{Duration: time.Second, Limits: limits})
		if err := w.books.balance(w.fleet.entries); err != nil {
			t.Fatal(err)
		}
		// when it accepts what it must not, then the books say so, even if the sums are right.
		wrong(w, w.fleet.entries[0])
		if err := w.books.balance(w.fleet.entries); !errors.Is(err, ErrNotConserved) {
			t.Errorf("%s is accepted, and the books say %v", what, err)
		}
	}
}

func TestABucketByTheCallersTimeIsKeptByTheServers(t *testing.T) {
	// Given a bucket that goes by the time that callers send along, and one of two processes an
	// hour ahead,
	w := newRun(t, scenario.Scenario{
		Duration: 5 * time.Second, Limits: []lease.Limit{lease.PerSecond(100)}, Redis: scenario.Redis{ClientTime: true},
		Groups: []scenario.Group{{Name: "right"}, {Name: "ahead", Clock: &scenario.Clock{Offset: scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistUniform, P: 3600e9, Q: 3600e9}}}}},
	})
	made := map[int64]bool{}
	watch(w, func(c *call) { made[c.grant.Epoch] = true })
	if err := w.run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	// then Redis, whose clock is right, does not forget the bucket meanwhile.
	if len(made) != 1 {
		t.Errorf("there were %d buckets", len(made))
	}
}

func TestClocksMayShowWhatComesBeforeTheEpoch(t *testing.T) {
	long := 60 * 365 * 24 * time.Hour
	for _, r := range []scenario.Redis{
		{Faults: []scenario.RedisFault{{Kind: scenario.FaultClockStep, At: time.Second, By: -long}}},
		{ClientTime: true},
	} {
		w := simulate(t, scenario.Scenario{
			Duration: 2 * time.Second, Limits: []lease.Limit{lease.PerSecond(100)}, Redis: r,
			Clock: scenario.Clock{Offset: scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistUniform, P: -float64(long), Q: -float64(long)}}},
		})
		if w.books.tally.Admitted == 0 {
			t.Errorf("%+v: nothing is admitted", r)
		}
	}
}

func TestTrueTimeIsTheFirstMomentAtWhichAClockShowsATime(t *testing.T) {
	for _, drift := range []int64{0, 1, 50, 60_000, 333_333, 999_999, -1, -50, -60_000, -333_333, -999_990, -999_999} {
		p := clocks{drift: drift}
		for _, ticks := range []int64{1, 2, 3, 999, 1000, 12_345, 999_999, 1_000_000, 1_000_001, 123_456_789, int64(time.Hour), int64(24 * time.Hour)} {
			got := p.when(0, clock.Instant(localStart+ticks))
			if got == never && p.ticks(never) < ticks {
				continue // time ends before
			}
			if p.ticks(got) < ticks || p.ticks(got-1) >= ticks {
				t.Fatalf("drift %d: %d is shown at %d, which shows %d, and %d before", drift, ticks, got, p.ticks(got), p.ticks(got-1))
			}
		}
		// What is further than time goes never comes; on a clock that hardly moves, that is soon.
		if got := p.when(0, lease.Never); got < int64(scenario.DurationMax) {
			t.Fatalf("drift %d: the end of time comes at %v", drift, time.Duration(got))
		}
	}
}

func TestAnAdversaryWithAFastClockSpendsBeforeTheEnd(t *testing.T) {
	// Given adversaries whose clocks skip a nanosecond now and then,
	w := simulate(t, scenario.Scenario{
		Duration: 2 * time.Second, Limits: []lease.Limit{lease.PerSecond(10_000)},
		Groups: []scenario.Group{{Count: 100, Clock: &scenario.Clock{Drift: scenario.DriftDist{Dist: scenario.Dist{Kind: scenario.DistUniform, P: 300_000, Q: 300_000}}}}}, Workload: scenario.Workload{Kind: scenario.Adversary},
	})
	spending := 0
	for _, e := range w.time.heap {
		if x := w.fleet.entries[max(e.who, 0)%int32(len(w.fleet.entries))]; e.kind == evSpend && !w.obsolete(e) {
			// then the moment at which they spend what is left is the last before the lease ends.
			w.time.now = e.at
			before := x.p.local(w.time.now)
			w.time.now++
			if spending++; before >= x.client.Deadline() || x.p.local(w.time.now) < x.client.Deadline() {
				t.Errorf("process %d spends at %d, its lease ends at %d", x.p.index, before, x.client.Deadline())
			}
		}
	}
	if spending < 90 {
		t.Errorf("%d of 100 spend at all", spending)
	}
}

func TestRivalsAreToldHowManyProcessesRunAtTheStart(t *testing.T) {
	// Given a fleet of one that grows to ten at the very end, in two groups, and twice the load,
	w := simulate(t, scenario.Scenario{
		Duration: 10 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000).WithBurst(100)},
		Groups: []scenario.Group{
			{Name: "a", Workload: &scenario.Workload{Kind: scenario.Constant, Rate: 2000}, Scale: []scenario.Step{{At: 9990 * time.Millisecond, Count: 10}}},
			{Name: "b", Weight: 3, Workload: &scenario.Workload{Kind: scenario.Constant, Rate: 6000}},
		},
		Rivals: []string{"static_split"},
	})
	// then a static split is one by what runs at the start, which uses the limit up: a quarter and
	// three quarters.
	if got := w.books.rivals[0].tally.Admitted; got < 10_000 || got > 10_200 {
		t.Errorf("a static split admits %d of 10,100", got)
	}
}

func TestGroupsShareOneTrace(t *testing.T) {
	// Given a trace of ten requests of ten processes, and two groups of five that share it,
	s := scenario.Scenario{
		Duration: 5 * time.Second, Limits: []lease.Limit{lease.PerSecond(100)}, Groups: []scenario.Group{{Name: "a", Count: 5}, {Name: "b", Count: 5}},
		Workload: scenario.Workload{Kind: scenario.Replay, Trace: &scenario.Trace{}},
	}
	for p := range 10 {
		s.Workload.Trace.Requests = append(s.Workload.Trace.Requests, scenario.TraceRequest{At: time.Second, Process: p, Cost: int64(p + 1)})
	}
	// when it is replayed,
	w := simulate(t, s)
	// then each request comes once, to its own process.
	for i := range w.fleet.processes {
		if n := w.books.offeredBy[i]; n != int64(i+1) {
			t.Errorf("process %d is asked for %d tokens, want %d", i, n, i+1)
		}
	}
}

func TestKeysWhoseNodeIsNotKnownTravelTogether(t *testing.T) {
	// Given a process that asks for a hundred new keys, which are on two shards in turn, at one
	// instant,
	s := scenario.Scenario{
		Duration: 20 * time.Millisecond, Limits: []lease.Limit{lease.PerHour(10)}, Keys: scenario.Keys{Count: 100}, Redis: scenario.Redis{Shards: 2},
		Workload: scenario.Workload{Kind: scenario.Replay, Trace: &scenario.Trace{}},
	}
	for k := range 100 {
		s.Workload.Trace.Requests = append(s.Workload.Trace.Requests, scenario.TraceRequest{Key: k, Cost: 1})
	}
	w := simulate(t, s)
	// then it calls each shard once.
	if w.network.calls() != 100 || w.network.trips != 2 {
		t.Errorf("%d calls take %d round trips, want 100 and 2", w.network.calls(), w.network.trips)
	}
}

func TestTokensInLostAnswersAreBurnt(t *testing.T) {
	// Given a network that loses every answer,
	w := simulate(t, scenario.Scenario{
		Duration: 5 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)}, Policy: lease.Policy{Fallback: lease.FallbackDeny},
		Network: scenario.Network{LostReplies: 1},
	})
	// then all that was granted is lost, but for what the last call was granted, which is asked
	// again.
	want := w.books.granted - w.fleet.entries[0].executed.granted
	if got := figure(w, "burnt"); got < 1000 || got != float64(want) {
		t.Errorf("%v tokens are burnt, want %d", got, want)
	}
}
