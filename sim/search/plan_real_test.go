package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
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
	all := map[string][]string{
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
		"fleet-of-10000": {"duration=10s", "groups.web.count=300", "limits[0]=3000/s burst 6600", "policy.calls_per_second=150"},
	}
	testkit.Check(t, len(all) == len(file.Examples()), "%d of %d examples", len(all), len(file.Examples()))
	long := testkit.Long(t, "priorities", fmt.Sprint(len(all), " examples"))
	for name, shorter := range all {
		if !long && name != "priorities" {
			continue
		}
		// Given a shipped scenario, shorter,
		s := example(t, name)
		testkit.NoErr(t, file.Set(&s, shorter...))
		// then no target from 5 ms to 2 s, with and without a long TTL, is better than the plan's.
		noSweepBeatsAPlan(t, s, 2*time.Second, 0, 8)
	}
}

func TestNoSweepBeatsAPlanForASlowLimit(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("takes minutes with the race detector; .ci/run runs it without")
	}
	all := []struct{ limit, load, duration string }{
		{"100 in 1m", "2", "10m"},     // short leases, of which each is over long before there are tokens again
		{"1000 each 24h", "2", "72h"}, // a denied process asks again when its lease is over
		{"1000/h", "0.9", "3h"},       // and one that may would have to hold tokens for minutes
	}
	for _, c := range all[:testkit.ShortOrLong(t, 1, len(all), "limits")] {
		// Given a limit of which a process gets a token every so many minutes,
		s, err := file.Parse("slow", []byte("{name: "+c.limit+", limits: ["+c.limit+"], groups: [{count: 10}], workload: {load: "+c.load+
			"}, duration: "+c.duration+", reps: 2, policy: {fallback: deny}}"))
		testkit.NoErr(t, err)
		// then no target up to half an hour is better, with TTLs up to an hour.
		noSweepBeatsAPlan(t, s, 30*time.Minute, 0, 64, 4096)
	}
}

func TestNoSweepBeatsAPlanForALargeFleet(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("takes minutes with the race detector; .ci/run runs it without")
	}
	testkit.LongOnly(t)
	// Given a fleet whose leases go by a budget of calls, of which a half is too little,
	s, err := file.Parse("large", []byte(`{name: large, limits: [3000/s burst 1500], groups: [{count: 300}], workload: {load: 1.2},
		duration: 12s, reps: 2, policy: {fallback: deny, calls_per_second: 1200}}`))
	testkit.NoErr(t, err)
	// then no budget from a quarter to twice as many is better.
	noSweepBeatsAPlan(t, s, 2*time.Second, 0)
}

// noSweepBeatsAPlan makes a plan for s and tries every target from 5 ms to the longest, with each
// TTL, in targets, and where leases go by a budget of calls every such budget, at full length on
// the plan's fresh seeds: none that meets the plan's targets makes a twentieth fewer calls than the
// plan's.
func noSweepBeatsAPlan(t *testing.T, s sim.Scenario, longest time.Duration, ttls ...time.Duration) {
	t.Helper()
	lab := Lab{Run: sim.Runner{Parallel: 1}.Run}
	q := Question{Scenario: s, Targets: []Threshold{AtMost("false_reject_ratio", 0.02)}}
	p, err := lab.Plan(t.Context(), q)
	testkit.Must(t, err == nil, "%s: %v", s.Name, err)
	q.Scenario = s.Defaults()
	tried := &planning{work: lab.begin(), q: q}
	tried.q.Targets = p.Targets
	var policies []lease.Policy
	for target := longest; target > 5*time.Millisecond; target = target * 4 / 5 {
		for _, ttl := range ttls {
			policy, ok := policyWith(q.Scenario, ownPolicy(q.Scenario), target, ttl)
			if ok && !slices.Contains(policies, policy) {
				policies = append(policies, policy)
			}
		}
	}
	for times := 0.25; times < 2 && q.Scenario.FleetTarget() > 0; times *= 1.1 {
		own := ownPolicy(q.Scenario)
		for _, ttl := range []time.Duration{0, ttlLong * own.Target} {
			own.TTL = ttl
			if policy, ok := withBudget(q.Scenario, own, times); ok && !slices.Contains(policies, policy) {
				policies = append(policies, policy)
			}
		}
	}
	trials, err := tried.simulate(t.Context(), "sweep", tried.trials(confirm, p.ConfirmSeed, policies))
	testkit.NoErr(t, err)
	best := math.Inf(1)
	for _, x := range trials {
		if x.meets(pessimistic) {
			best = min(best, x.calls())
		}
	}
	got := p.Chosen.Figures.CallsPerS.Mean
	t.Logf("%s: the plan makes %.5g calls/s, the best of %d %.5g", s.Name, got, len(policies), best)
	testkit.Check(t, got <= 1.05*best, "%s: %+v makes %v calls/s, the best of %d policies makes %v", s.Name,
		p.Chosen.Policy, got, len(policies), best)
}

// example is a scenario that is shipped.
func example(t *testing.T, name string) sim.Scenario {
	t.Helper()
	for _, e := range file.Examples() {
		if e.Name == name {
			s, err := file.Parse(name, e.Text)
			testkit.NoErr(t, err)
			return s
		}
	}
	t.Fatalf("there is no example %s", name)
	return sim.Scenario{}
}

func TestWhatAPlanPrintsIsConfirmedAndWorthALine(t *testing.T) {
	// Given accuracy that costs calls, and long leases that are lucky on the search's seed,
	w := &world{f: func(s sim.Scenario) truth {
		x := rising(func(ms float64) float64 { return ms / 20000 })(s)
		if s.Policy.Target > 200*time.Millisecond && s.Seed != fleet().Seed {
			x.falseRejects = 0.036
		}
		return x
	}}
	p := mustFind(t, w, Question{Scenario: fleet()})
	testkit.Must(t, len(p.TradeOffs) > 2, "%+v", p.TradeOffs)
	for i, c := range p.TradeOffs {
		// then each trade-off is as it is on the fresh seeds, at full length,
		lucky := target(t, c.Policy) > 200*time.Millisecond && c.Figures.FalseRejectRatio.Mean != 0.036
		testkit.Check(t, c.Seed == p.ConfirmSeed && c.DurationS == 10 && c.Reps == 8 && !lucky, "%+v", c)
		// and makes a tenth fewer calls than the next.
		if i > 0 {
			testkit.Check(t, p.TradeOffs[i-1].Figures.CallsPerS.Mean <= 0.91*c.Figures.CallsPerS.Mean, "%v and %v calls",
				p.TradeOffs[i-1].Figures.CallsPerS.Mean, c.Figures.CallsPerS.Mean)
		}
	}
	// The chosen one is among them.
	testkit.Check(t, slices.ContainsFunc(p.TradeOffs, func(c Candidate) bool { return c.Policy == p.Chosen.Policy }), "")
	// And given calls that hardly differ, then nothing is traded.
	w = &world{f: func(s sim.Scenario) truth {
		return truth{falseRejects: s.Policy.Target.Seconds() / 1000, calls: 184 - s.Policy.Target.Seconds(), admitted: 1}
	}}
	p = mustFind(t, w, Question{Scenario: fleet()})
	testkit.Check(t, len(p.TradeOffs) == 1, "%+v", p.TradeOffs)
}

func TestAPlanSaysWhatRedisItNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		keys, nodes int
		busy        func(s sim.Scenario) float64 // the busiest node
		want        Needs
	}{
		"little": {1, 1, func(sim.Scenario) float64 { return 0.2 }, Needs{CPU: 0.2, Nodes: 1, Least: 1}},
		"one key": {1, 1, func(sim.Scenario) float64 { return 0.8 },
			Needs{CPU: 0.8, Nodes: 1}},
		// The busiest key makes 0.4, and lies with more or less others.
		"many keys": {100, 3, func(s sim.Scenario) float64 { return 0.4 + 1.3/float64(s.Redis.Shards) },
			Needs{CPU: 0.4 + 1.3/3.0, Nodes: 3, Least: 5}},
		"more nodes than it takes": {100, 8, func(s sim.Scenario) float64 { return 1.8 / float64(s.Redis.Shards) },
			Needs{CPU: 1.8 / 8, Nodes: 8, Least: 3}},
	} {
		// Given so many nodes, and how busy the busiest of so many is,
		s := fleet()
		s.Keys.Count, s.Redis.Shards = c.keys, c.nodes
		w := &world{f: func(s sim.Scenario) truth {
			x := rising(func(float64) float64 { return 0.001 })(s)
			x.redisCPU = c.busy(s)
			return x
		}}
		// then what a plan says is what that many show.
		p := mustFind(t, w, Question{Scenario: s})
		testkit.Check(t, *p.Needs == c.want, "%s: %+v, want %+v", name, *p.Needs, c.want)
		testkit.Check(t, (p.Relief != nil) == (c.want.CPU > BusyMost && c.want.Least > 0), "%s: %+v", name, p.Relief)
	}
}

func TestATimeLimitEndsAPlanWithWhatWasFound(t *testing.T) {
	for name, c := range map[string]struct {
		each  time.Duration // what a simulation takes
		found bool
		phase string
	}{
		"enough time":                  {time.Millisecond, true, ""},
		"the search is not over":       {time.Second, true, "halve"},
		"the confirmation is not over": {5 * time.Second, true, "screen"},
		"not one simulation is over":   {time.Hour, false, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &world{f: rising(func(ms float64) float64 { return ms / 1e5 })}
			run := func(ctx context.Context, s sim.Scenario) (sim.Report, error) {
				select {
				case <-time.After(c.each): // of the bubble's clock
					return w.run(ctx, s)
				case <-ctx.Done():
					return sim.Report{}, sim.ErrInterrupted
				}
			}
			began := time.Now()
			p, err := Lab{Run: run, Parallel: 1}.Plan(t.Context(), Question{Scenario: fleet(), TimeLimit: time.Minute})
			// Given a limit of a minute, then a plan takes no longer, and says where it stopped;
			// what it has chosen is confirmed.
			testkit.Check(t, time.Since(began) <= time.Minute, "%s: it took %v", name, time.Since(began))
			if !c.found {
				testkit.Check(t, errors.Is(err, sim.ErrInterrupted) && p.Verdict == Interrupted, "%s: %v, %s", name, err, p.Verdict)
				return
			}
			testkit.Must(t, err == nil && p.Verdict == Found, "%s: %v, %s", name, err, p.Verdict)
			testkit.Check(t, p.CutShort == c.phase && p.Chosen.Meets && p.Chosen.Seed == p.ConfirmSeed, "%s: stopped in %q, %+v",
				name, p.CutShort, p.Chosen)
		})
	}
}
