package search

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

func TestNoSweepBeatsAPlan(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("takes minutes with the race detector; .ci/run runs it without")
	}
	// Given a shipped scenario, shorter,
	shipped := map[string][]string{
		"small-burst":         {"duration=1s", "reps=3", "groups.workers.count=60"},
		"shadow-rollout":      {"duration=4s", "reps=3"},
		"noisy-neighbours":    {"duration=3s", "warmup=1s", "reps=2"},
		"window-boundary":     {"duration=1m", "reps=2"},
		"steady-fleet":        {"duration=3s", "warmup=0s", "reps=2"},
		"real-processes":      {"duration=3s", "reps=2"},
		"priorities":          {"duration=3s", "warmup=0s", "reps=2"},
		"reservations":        {"duration=4s", "reps=2"},
		"clock-skew":          {"duration=4s", "warmup=0s", "reps=2"},
		"redis-failover":      {"reps=2"},
		"flash-sale":          {"reps=2"},
		"multi-limit-tenants": {"reps=1"},
		// A tenth of it and less: as many requests and calls for each process.
		"fleet-of-10000": {
			"duration=10s", "groups.web.count=300", "limits[0]=3000/s burst 6600", "policy.calls_per_second=150",
		},
	}
	type question struct {
		scenario sim.Scenario
		rejects  float64
		longest  time.Duration
		ttls     []time.Duration // in targets
	}
	var all []question
	for _, e := range file.Examples() {
		testkit.Must(t, shipped[e.Name] != nil, "the example %s is not tried", e.Name)
		s, err := file.Parse(e.Name, e.Text)
		testkit.NoErr(t, err)
		testkit.NoErr(t, file.Set(&s, shipped[e.Name]...))
		all = append(all, question{s, 0.02, 2 * time.Second, []time.Duration{0, 8}})
	}
	made := func(longest time.Duration, text string, ttls ...time.Duration) {
		s, err := file.Parse("made", []byte("{reps: 2, "+text+"}"))
		testkit.NoErr(t, err)
		all = append(all, question{s, 0.02, longest, ttls})
	}
	// a limit of which a process gets a token only every few minutes or seconds,
	for limit, more := range map[string]string{
		"100 in 1m": "{load: 2}, duration: 10m", "1000 each 24h": "{load: 2}, duration: 72h",
		"1000/h": "{load: 0.9}, duration: 3h",
	} {
		made(30*time.Minute, "name: "+limit+", limits: ["+limit+
			"], groups: [{count: 10}], policy: {fallback: deny}, workload: "+more, 0, 64, 4096)
	}
	// or a fleet whose leases go by a budget of calls, of which a half is too little,
	made(2*time.Second, `name: large, limits: [3000/s burst 1500], groups: [{count: 300}], workload: {load: 1.2},
		duration: 12s, policy: {fallback: deny, calls_per_second: 1200}`, 0)
	// or a small burst for bursts of requests, which only the shortest leases divide well,
	made(20*time.Millisecond, `name: p1, limits: [2000/s burst 150], groups: [{count: 12}], policy: {fallback: deny},
		workload: {kind: onoff, load: 1.3, on: 300ms, off: 700ms}, duration: 20s`, 0)
	all[len(all)-1].scenario.Reps, all[len(all)-1].rejects = 4, 0.005
	long := testkit.Long(t, "priorities", fmt.Sprint(len(all), " scenarios"))
	for _, q := range all {
		if long || q.scenario.Name == "priorities" {
			// then no policy of a sweep is better than the plan's.
			t.Run(q.scenario.Name, func(t *testing.T) {
				noSweepBeatsAPlan(t, q.scenario, 0, q.rejects, q.longest, q.ttls...)
			})
		}
	}
}

// TestTenMinutesSayWhatAPlanSays: loads near the limit and far above it, and requests that wait.
func TestTenMinutesSayWhatAPlanSays(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("takes minutes with the race detector; .ci/run runs it without")
	}
	r := testkit.FixedRand(t, 12862979926950870370)
	loads := []float64{1.05, 3, 0.9, 0.95, 1, 1.01, 1.02, 1.1, 1.5}
	n := testkit.ShortOrLong(t, 1, 20, "drawn scenarios")
	for i := range n {
		between := func(low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
		rate := between(50, either(n > 1, 200.0, 60))
		limit := fmt.Sprintf("%.0f/s burst %.0f", rate, rate*between(0.1, 1.5))
		verb := []string{"allow", "wait", "allow", "try"}[i%4]
		s, err := file.Parse("drawn", fmt.Appendf(nil, `{name: drawn %d, limits: [%s], groups: [{count: %.0f}],
			policy: {fallback: %s}, workload: {kind: %s, verb: %s, load: %v}, network: {round_trip: %.1fms}}`,
			i, limit, between(2, 30), []string{"deny", "local_share"}[r.IntN(2)],
			[]string{"poisson", "poisson", "constant", "onoff"}[r.IntN(4)], verb, loads[i%len(loads)], between(0.2, 5)))
		testkit.NoErr(t, err)
		rejects := []float64{0.002, 0.005, 0.02}[r.IntN(3)]
		t.Run(fmt.Sprintf("%s %s %v", limit, verb, loads[i%len(loads)]), func(t *testing.T) {
			noSweepBeatsAPlan(t, s, 10*time.Minute, rejects, 2*time.Second, 0)
		})
	}
}

// noSweepBeatsAPlan makes a plan for s and tries every target from 1 ms to the longest with each TTL, in
// targets, and every budget of calls where leases follow one, in runs that last that long from the start, or
// as the plan's own where lasts is 0. No policy that meets the plan's targets makes a twentieth fewer calls,
// or a tenth in long runs, and none meets them where the plan has no policy. The best of many was lucky on
// its seeds, so it must meet the targets on ten times as many others. Such a run shows the plan's figures.
func noSweepBeatsAPlan(
	t *testing.T, s sim.Scenario, lasts time.Duration, rejects float64, longest time.Duration, ttls ...time.Duration,
) {
	t.Helper()
	lab := Lab{Run: sim.Runner{Parallel: 1}.Run}
	q := Question{Scenario: s, Targets: []Threshold{AtMost("false_reject_ratio", rejects)}}
	began := time.Now()
	p, err := lab.Plan(t.Context(), q)
	planTook := time.Since(began)
	if errors.Is(err, ErrUndecided) {
		t.Logf("%s: undecided after %v; it takes %v s to settle; %s", s.Name, planTook, p.SettlesS, err)
		return
	}
	testkit.Must(t, err == nil || errors.Is(err, ErrInfeasible), "%s: %v", s.Name, err)
	q.Scenario = s.Defaults()
	tried := &planning{work: lab.begin(), q: q}
	tried.q.Targets = p.Targets
	own := ownPolicy(q.Scenario)
	try := options{s: q.Scenario}
	for target := longest; target > time.Millisecond; target = target * 4 / 5 {
		for _, ttl := range ttls {
			try.add(withLengths(q.Scenario, own, target, ttl))
		}
	}
	for times := 0.25; times < 2 && q.Scenario.FleetTarget() > 0; times *= 1.1 {
		for _, own.TTL = range []time.Duration{0, ttlLong * own.Target} {
			try.add(withBudget(q.Scenario, own, times))
		}
	}
	simulated := func(reps int, seed uint64, policies ...lease.Policy) []*trial {
		trials := tried.trials(confirmRound, seed, 1, policies)
		for _, x := range trials {
			if lasts > 0 {
				x.scenario = q.Scenario
				x.scenario.Duration, x.scenario.Policy = lasts, policies[slices.Index(trials, x)]
				x.scenario = lasting(x.scenario, lasts)
			}
			x.scenario.Seed, x.scenario.Reps = seed, reps
		}
		testkit.NoErr(t, tried.simulate(t.Context(), "sweep", trials))
		return trials
	}
	reps := either(lasts > 0, 1, q.Scenario.Reps)
	most := math.Inf(1)
	if p.Chosen != nil {
		most = p.Chosen.Figures.CallsPerS.Mean
	}
	dearer := either(lasts > 0, 1.1, 1.05)
	for _, x := range simulated(reps, p.ConfirmSeed, try.all...) {
		if !x.meets(pessimistic) || most <= dearer*x.calls() {
			continue
		}
		again := simulated(max(5, 10*reps), p.ConfirmSeed+1, x.scenario.Policy)[0]
		testkit.Check(t, !again.meets(pessimistic) || most <= dearer*again.calls(),
			"%s: the plan makes %v calls/s, and %s %v", s.Name, most, x.name, again.calls())
	}
	if p.Chosen != nil && lasts > 0 { // while a burst is spent, which a plan does not count, calls are fewer
		settled := time.Duration(p.Chosen.WarmupS * float64(time.Second))
		q.Scenario.Warmup, lasts = settled, lasts+settled
		policy := q.Scenario.Policy
		policy.Target, policy.TTL, policy.Overcommit = target(t, p.Chosen.Policy), 0, p.Chosen.Policy.Overcommit
		if !p.Chosen.Policy.DefaultTTL {
			policy.TTL, err = time.ParseDuration(p.Chosen.Policy.TTL)
			testkit.NoErr(t, err)
		}
		x := simulated(max(3, reps), p.ConfirmSeed+2, policy)[0]
		calls := p.Chosen.Figures.CallsPerS
		within := x.calls() > 0.9*calls.Low && x.calls() < 1.1*calls.High
		testkit.Check(t, within && x.meets(optimistic), "%s: planned %+v calls/s, %v rejected; ten minutes make %v and %v",
			s.Name, calls, p.Chosen.Figures.FalseRejectRatio.Mean, x.calls(), x.report.FalseRejectRatio.Mean)
	}
	t.Logf("%s: %s, %.5g calls/s; %d policies were tried; %v, %v", s.Name, p.Verdict, most, len(try.all),
		planTook.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

func either[T any](is bool, a, b T) T {
	if is {
		return a
	}
	return b
}

func TestTradeOffsAreConfirmedAndReachFarAndAreWorthALine(t *testing.T) {
	// Given accuracy that costs calls, 0.5 % at 100 ms, and long leases that are lucky on the search's
	// seed,
	w := &world{f: func(s sim.Scenario) truth {
		x := rising(func(ms float64) float64 { return ms / 20000 })(s)
		if s.Policy.Target > 200*time.Millisecond && s.Seed == fleet().Seed {
			x.falseRejects /= 2
		}
		return x
	}}
	p := mustFind(t, w, Question{Scenario: fleet()})
	rejects := func(c Candidate) float64 { return c.Figures.FalseRejectRatio.Mean }
	calls := func(c Candidate) float64 { return c.Figures.CallsPerS.Mean }
	for i, c := range p.TradeOffs {
		// then each trade-off is as it is on the fresh seeds, at full length,
		unlucky := math.Abs(rejects(c)-target(t, c.Policy).Seconds()/20) < 1e-9
		testkit.Check(t, unlucky && c.Seed == p.ConfirmSeed && c.WarmupS > 10 && c.Reps == 8, "%+v", c)
		// makes a tenth fewer calls than the next, which is more accurate,
		if i > 0 {
			last := p.TradeOffs[i-1]
			testkit.Check(t, calls(last) <= 0.91*calls(c) && rejects(last) > rejects(c), "%+v before %+v", last, c)
		}
	}
	// and some make far fewer calls than the chosen one, which is among them, or more.
	n := len(p.TradeOffs)
	testkit.Must(t, n > 2 && n <= tradeOffsMax, "%+v", p.TradeOffs)
	first, last := calls(p.TradeOffs[0]), calls(p.TradeOffs[n-1])
	testkit.Check(t, first <= calls(*p.Chosen)/5 && last > calls(*p.Chosen), "%v to %v calls", first, last)
	chosen := func(c Candidate) bool { return c.Policy == p.Chosen.Policy }
	testkit.Check(t, slices.ContainsFunc(p.TradeOffs, chosen), "%+v is none of %+v", p.Chosen, p.TradeOffs)
}
