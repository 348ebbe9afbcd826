package live

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// scenario is the shipped one with some fields set.
func scenario(t *testing.T, sets string) sim.Scenario {
	t.Helper()
	s, err := scenfile.Load("example:real-processes")
	testkit.NoErr(t, err)
	if sets != "" {
		testkit.NoErr(t, scenfile.Set(&s, strings.Split(sets, "; ")...))
	}
	testkit.NoErr(t, s.Validate())
	return s
}

func TestFieldsThatLiveLacksAreNotedOrRefused(t *testing.T) {
	testkit.RequireSignals(t)
	// Given a field that real processes lack, then a run has its default, and says so.
	for set, want := range map[string]string{
		"warmup=1s":                                      "warmup is 1s, and 0s for real processes",
		"policy.cold_start=allow":                        "policy.cold_start is allow, and deny",
		"policy.fallback=allow_all":                      "policy.fallback is allow_all, and deny",
		"policy.start_empty=true":                        "policy.start_empty is true, and false",
		"policy.headroom=0.5":                            "groups[0].headroom is 0.5, and 0",
		"call_timeout=50ms":                              "call_timeout is 50ms, and 100ms",
		"clock.offset=1s":                                "clock.offset is 1s, and 0s",
		"groups[0].shadow=true":                          "groups[0].shadow is true, and false",
		"groups[0].pauses={every: 1s, for: 1s}":          "groups[0].pauses.every is 1s, and 0s",
		"groups[0].restarts={every: 1s, for: 1s}":        "groups[0].restarts.for is 1s, and 0s",
		"groups[0].scale=[{at: 1s, count: 5}]":           "groups[0].scale is [{at: 1s, count: 5}], and []",
		"workload.verb=try":                              "workload.verb is try, and allow",
		"workload.actual=2":                              "workload.actual is 2, and 0",
		"network.loss=1%":                                "network.loss is 1%, and 0%",
		"redis.shards=3":                                 "redis.shards is 3, and 1",
		"redis.faults=[{kind: outage, at: 1s, for: 1s}]": "redis.faults is [{kind: outage, at: 1s, for: 1s}], and []",
		// These are played.
		"groups[0].pauses={at: 1s, for: 1s}":               "",
		"groups[0].scale=[{at: 1s, count: 3, kill: true}]": "",
		"redis.faults=[{kind: hang, at: 1s, for: 1s}]":     "",
		"policy={fallback: deny, target: 20ms, weight: 2}": "",
		"groups=[{name: a, skew: 1, count: 2}, {name: b}]": "",
		"name=x; seed=7; reps=3; network.round_trip=7ms":   "",
	} {
		o, notes, err := FromScenario(scenario(t, set), true)
		all := strings.Join(notes, "\n")
		testkit.Check(t, err == nil && strings.HasPrefix(o.Key, "leasesim-") && strings.Contains(all, want) &&
			(want == "") == (all == ""), "%s: %v, %q, want %q", set, err, all, want)
	}
	// Without a limit and a load that real processes can play, there is no run.
	for set, want := range map[string]string{
		"limits=[100/s, 1000/m]":                 "limits is [100/s 1000/m], must be one limit",
		"limits=[100 each 1h]":                   "must be one limit, and not a calendar",
		"workload={kind: adversary}":             "workload.kind is adversary, must be one whose requests do not depend",
		"groups[0].count=257":                    "groups[0].count is 257, must be 1 to 256",
		"duration=50ms":                          "duration is 50ms, must be 100ms to 1h",
		"workload.load=1000; limits=[1000000/s]": "because every request is recorded",
	} {
		_, _, err := FromScenario(scenario(t, set), true)
		testkit.Check(t, errors.Is(err, ErrUsage) && strings.Contains(err.Error(), want), "%s: %v", set, err)
		// A run without a comparison may have an adversary.
		_, _, err = FromScenario(scenario(t, set), false)
		alone := set == "workload={kind: adversary}"
		testkit.Check(t, (err == nil) == alone, "alone, %s: %v", set, err)
	}
}

// TestProcessesAreAdmittedWhatTheSimulatorSays: on fake time, processes with one store are asked the very
// requests that are simulated, and are admitted as many, each of them and all together.
func TestProcessesAreAdmittedWhatTheSimulatorSays(t *testing.T) {
	for _, sets := range []string{
		"workload={kind: constant, load: 2}", "workload={kind: sync, load: 1.5, within: 2ms}",
		"limits=[500/s burst 5]; groups=[{count: 6}]", "limits=[1000 in 1s]; workload={load: 1.5}",
		"limits=[3000/s burst 300]; workload.load=2; groups=[{name: a}, {name: b, weight: 2}, {name: c, weight: 4}]",
		"limits=[10/s burst 20]; keys={count: 300, zipf: 1}; workload={rate: 2000/s}",
		"limits=[50000/s burst 20000]; workload={rate: 1000/s, cost: 'pareto(20,20000,1.15)'}",
		"limits=[1200/s burst 200]; workload={rate: 2000/s}; groups[0].scale=[{at: 2s, count: 3, kill: true}]",
	} {
		s := scenario(t, "limits=[2000/s burst 100]; reps=1; network.round_trip=1us; redis.service_time=1us; "+
			"redis.exchange_time=0s; redis.wake_time=0s; "+sets)
		o, notes, err := FromScenario(s, true)
		testkit.Check(t, err == nil && len(notes) == 0, "%s: %v, %v", sets, err, notes)
		all, offered := playOnFakeTime(t, o)
		s, err = sim.Record(s)
		testkit.NoErr(t, err)
		want, err := sim.Run(t.Context(), s)
		testkit.NoErr(t, err)
		// then the two agree. Which process is served first is up to the scheduler, and a weight that goes
		// astray is off by far more. Of many keys the simulator tells processes apart for one alone.
		total := int64(0)
		for i, got := range all {
			m := want.Members[i]
			total += got
			near := math.Abs(float64(got-m.Admitted)) <= 0.25*float64(m.Admitted)
			testkit.Check(t, near || s.Keys.Count > 1 || strings.Contains(sets, "sync"), "%s: process %d is admitted %d, simulated %d",
				sets, i, got, m.Admitted)
		}
		off := math.Abs(float64(total)/want.Admitted.Mean - 1)
		testkit.Check(t, off <= 0.05, "%s: %d are admitted, simulated %v", sets, total, want.Admitted.Mean)
		testkit.Check(t, offered == int64(want.Offered.Mean) || o.faults().kill > 0, "%s: %d are offered, simulated %v",
			sets, offered, want.Offered.Mean)
	}
}

// playOnFakeTime has a fleet play its load, and returns what each process was admitted, and asked for.
func playOnFakeTime(t *testing.T, o Options) (admitted []int64, offered int64) {
	t.Helper()
	children := make([]*child, len(o.weights()))
	for i := range children {
		capacity, err := o.capacity(i)
		testkit.NoErr(t, err)
		file, err := stamps.Create(t.TempDir()+"/stamps", capacity)
		testkit.NoErr(t, err)
		defer file.Close()
		children[i] = &child{orders: orders{Options: o, Index: i}, file: file, took: newLatencies()}
	}
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(clock.System())
		var wg sync.WaitGroup
		began := time.Now().Add(time.Second)
		for _, c := range children {
			var err error
			c.ended = make(chan struct{}) // in the bubble
			c.limiter, err = hybrid.New(store, c.config())
			testkit.NoErr(t, err)
			defer c.limiter.Close()
			wg.Go(func() { testkit.Check(t, c.play(began) == nil, "process %d does not play", c.Index) })
		}
		if kill := o.faults().kill; kill > 0 {
			time.Sleep(time.Until(began) + kill)
			close(children[len(children)-1].ended)
		}
		wg.Wait()
	})
	byKey := slices.Repeat([]outcomes{{}}, o.Scenario.Keys.Count)
	for i, c := range children {
		n, err := read(c.file, o, i, byKey)
		testkit.NoErr(t, err)
		admitted, offered = append(admitted, n), offered+c.file.Offered().Load()
	}
	return admitted, offered
}

func TestTheMeasuredLoadIsSimulated(t *testing.T) {
	got := Simulated(scenario(t, "groups[0].round_trip=1s"), Report{RoundTripNs: Quantiles{500_000, 2_000_000},
		ServiceTimeNs: 100_000})
	trip := sim.DurationDist{Dist: sim.Dist{Kind: sim.DistLognormal, P: 400_000, Q: 1_900_000}}
	testkit.Check(t, got.Network.RoundTrip == trip && got.Redis.ServiceTime == sim.Constantly(100*time.Microsecond) &&
		got.Groups[0].RoundTrip == (sim.DurationDist{}) && got.Validate() == nil, "%+v", got)
	// A server that does not say is as fast as others, and no trip is shorter than a microsecond.
	got = Simulated(scenario(t, ""), Report{})
	trip.P, trip.Q = 1000, 1000
	testkit.Check(t, got.Network.RoundTrip == trip && got.Redis.ServiceTime == sim.Constantly(16*time.Microsecond),
		"%+v", got)
}

func TestAMachineThatMakesRequestsLateIsOverloaded(t *testing.T) {
	target := 100 * time.Millisecond
	for late, want := range map[time.Duration]bool{time.Millisecond: false, 50 * time.Millisecond: true} {
		got := isOverloaded(Quantiles{P99: int64(late)}, target)
		testkit.Check(t, got == want, "%v late: %v", late, got)
	}
}

func TestAnOverloadedMachineIsNamed(t *testing.T) {
	for _, overloaded := range []bool{true, false} {
		r := Report{TargetMs: 62.5, TTLMs: 720_000, Overloaded: overloaded, Processes: make([]Process, 1), DurationMs: 1}
		d := r.Document()
		named := func(v view.Verdict) bool { return strings.Contains(v.Text, "OVERLOADED") }
		testkit.Check(t, slices.ContainsFunc(d.Verdicts, named) == overloaded, "%+v", d.Verdicts)
		testkit.Check(t, strings.Contains(d.Subtitle, "leases of target 62.5ms, TTL 12m0s"), "%s", d.Subtitle)
	}
}
