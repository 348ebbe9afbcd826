package planner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/random"
)

// rising: calls fall with the target as they do, and false rejects are what f makes of it, in milliseconds.
func rising(f func(ms float64) float64) func(sim.Scenario) truth {
	return func(s sim.Scenario) truth {
		tau := s.Policy.Target.Seconds()
		return truth{falseRejects: f(tau * 1000), calls: 20 / tau, admitted: 1}
	}
}

func TestItFindsWhatBisectionWouldMiss(t *testing.T) {
	// Given accuracy that is good below 8 ms, bad from there to 60 ms, good again up to 150 ms, and bad beyond,
	w := &world{noise: 0.02, f: rising(func(ms float64) float64 {
		if ms < 8 || ms >= 60 && ms <= 150 {
			return 0.003
		}
		return 0.02
	})}
	// when the fewest calls with 0.5 % are asked for,
	p := mustFind(t, w, Question{Scenario: fleet()})
	// then they are found at the end of the second good range, which no bisection from either side reaches.
	if got := target(t, p.Chosen.Policy); got > 150*time.Millisecond || got < 130*time.Millisecond {
		t.Errorf("the target is %v, want nearly 150ms; %+v", got, p.Phases)
	}
}

func TestNoScreenedPolicyIsBetterThanTheChosenOne(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d; to replay, put it into rand.NewPCG below", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 60 {
		// Given a surface without rhyme or reason, but the same for the same policy,
		salt := r.Uint64()
		f := func(s sim.Scenario) truth {
			x := rand.New(rand.NewPCG(salt, uint64(s.Policy.Target)^uint64(s.Policy.TTL)<<20^uint64(s.Policy.Overcommit)<<50))
			return truth{falseRejects: 0.02 * x.Float64(), calls: 10 + 1000*x.Float64(), admitted: 1}
		}
		q := Question{Scenario: fleet(), OvercommitMax: []int64{0, 400}[r.IntN(2)]}
		p, err := ask(t, &world{f: f}, q)
		// then nothing of the grid that meets the targets makes fewer calls, but for what nobody would notice.
		best := math.Inf(1)
		x := newSpace(q.Scenario, q.OvercommitMax, 0)
		for _, c := range x.screen(screenMax) {
			if truth := f(x.scenario(c)); truth.falseRejects <= 0.005 {
				best = min(best, truth.calls)
			}
		}
		if math.IsInf(best, 1) && p.Verdict == Infeasible {
			continue
		}
		if err != nil || p.Chosen.Figures.CallsPerS.Mean > best*(1+alike) {
			t.Fatalf("%v; the best of the grid makes %v calls, the plan is %+v", err, best, p.Chosen)
		}
	}
}

func TestALuckyWinnerDoesNotPassOnFreshSeeds(t *testing.T) {
	// Given long leases that are accurate on the search's seed only,
	w := &world{f: func(s sim.Scenario) truth {
		x := rising(func(ms float64) float64 { return ms / 1e6 })(s)
		if s.Policy.Target > 40*time.Millisecond && s.Seed != fleet().Seed {
			x.falseRejects = 0.02
		}
		return x
	}}
	// when a plan is made,
	p, err := ask(t, w, Question{Scenario: fleet()})
	// then what is chosen holds on the others too, or nothing is.
	if err == nil && target(t, p.Chosen.Policy) > 40*time.Millisecond || err != nil && !errors.Is(err, ErrInfeasible) {
		t.Errorf("%v, %+v", err, p.Chosen)
	}
	// And given two candidates of which the cheaper is lucky, then it is the other.
	only := map[time.Duration]bool{500 * time.Millisecond: true, 20 * time.Millisecond: true}
	w.f = func(s sim.Scenario) truth {
		x := rising(func(float64) float64 { return 0.02 })(s)
		for near := range only {
			if ratio := s.Policy.Target.Seconds() / near.Seconds(); ratio > 0.75 && ratio < 1.33 {
				x.falseRejects = 0.001
			}
		}
		if s.Policy.Target > 100*time.Millisecond && s.Seed != fleet().Seed {
			x.falseRejects = 0.02
		}
		return x
	}
	p = mustFind(t, w, Question{Scenario: fleet()})
	if got := target(t, p.Chosen.Policy); got > 30*time.Millisecond {
		t.Errorf("the target is %v", got)
	}
}

func TestTheConfirmationSeesNoSeedOfTheSearch(t *testing.T) {
	w := &world{f: rising(func(ms float64) float64 { return ms / 1e5 })}
	p := mustFind(t, w, Question{Scenario: fleet()})
	search, fresh := map[uint64]bool{}, map[uint64]bool{}
	for _, s := range w.runs {
		seen := search
		if s.Seed == p.ConfirmSeed {
			seen = fresh
		} else if s.Seed != p.Seed {
			t.Errorf("a run has seed %d, which the plan does not name", s.Seed)
		}
		for r := range s.Reps {
			seen[random.SeedOf(s.Seed, r)] = true
		}
	}
	for seed := range fresh {
		if search[seed] {
			t.Errorf("seed %d is in the search and in the confirmation", seed)
		}
	}
	if len(fresh) != 8 || len(search) == 0 || p.Chosen.Seed != p.ConfirmSeed || p.Chosen.Reps != 8 || p.Chosen.DurationS != 10 {
		t.Errorf("%d fresh seeds, %d in the search, chosen on %d x %v s of seed %d", len(fresh), len(search), p.Chosen.Reps, p.Chosen.DurationS, p.Chosen.Seed)
	}
}

func TestOfPoliciesThatCallAlikeTheSimplestIsChosen(t *testing.T) {
	// Given calls that depend on nothing, or on the TTL and the overcommit by less than a hundredth,
	for _, slope := range []float64{0, 1e-4} {
		w := &world{f: func(s sim.Scenario) truth {
			calls := 100 - slope*s.Policy.TTL.Seconds() - slope*float64(s.Policy.Overcommit)
			return truth{falseRejects: 0.001, calls: calls, admitted: 1}
		}}
		p := mustFind(t, w, Question{Scenario: fleet(), OvercommitMax: 1000, BurstMax: 16000})
		// then there is no overcommit, no larger burst, and the shortest TTL.
		if c := p.Chosen.Policy; c.Overcommit != 0 || c.Burst != 8000 || c.TTL != "200ms" {
			t.Errorf("slope %v: %+v", slope, c)
		}
	}
}

func TestOvercommitAndBurstAreUsedWhereAllowed(t *testing.T) {
	// Given false rejects that only overcommit, or only a larger burst, brings down,
	f := func(s sim.Scenario) truth {
		x := rising(func(ms float64) float64 { return 0.01 + ms/1e6 })(s)
		x.falseRejects /= 1 + float64(s.Policy.Overcommit)/100 + float64(s.Limits[0].Capacity()-8000)/1000
		return x
	}
	// when neither is allowed, then there is no answer, but it says what would be;
	miss := mustNotFind(t, &world{f: f}, Question{Scenario: fleet()}).Miss
	var levers []string
	for _, l := range miss.Levers {
		levers = append(levers, fmt.Sprintf("%s %d", l.Name, l.Value))
		if !l.Candidate.Meets {
			t.Errorf("the lever %+v does not help", l)
		}
	}
	if !slices.Equal(levers, []string{"overcommit 2000", "burst 16000"}) {
		t.Errorf("levers %q", levers)
	}
	// and when one is, it is used, and no further than allowed.
	p := mustFind(t, &world{f: f}, Question{Scenario: fleet(), OvercommitMax: 400})
	if c := p.Chosen.Policy; c.Overcommit < 100 || c.Overcommit > 400 || c.Burst != 8000 {
		t.Errorf("%+v", c)
	}
	p = mustFind(t, &world{f: f}, Question{Scenario: fleet(), BurstMax: 12000})
	if c := p.Chosen.Policy; c.Overcommit != 0 || c.Burst <= 8000 || c.Burst > 12000 {
		t.Errorf("%+v", c)
	}
}

func TestAnInfeasibleQuestionSaysHowNearItCame(t *testing.T) {
	// Given false rejects of 1 % and more, and calls that accuracy costs,
	w := &world{f: rising(func(ms float64) float64 { return 0.01 + ms/1e5 })}
	q := Question{Scenario: fleet(), Targets: []Target{AtMost("false_reject_ratio", 0.005), AtMost("calls_per_s", 100)}}
	p, err := ask(t, w, q)
	if !errors.Is(err, ErrInfeasible) || !strings.Contains(err.Error(), "false_reject_ratio") {
		t.Fatal(err)
	}
	m := p.Miss
	// then the closest is that which misses least, and by how much is said;
	if len(m.Missed) == 0 || m.Missed[0].Figure != "false_reject_ratio" || m.Missed[0].Meets || m.Missed[0].Margin >= 0 || m.RepsNeeded != 0 {
		t.Errorf("%+v", m)
	}
	// and one target alone, relaxed, makes it feasible: at 100 calls/s, a target of 200 ms, 1.2 %.
	if len(m.Relaxed) != 1 || m.Relaxed[0].Target.Figure != "false_reject_ratio" || m.Relaxed[0].Target.Bound < 0.012 || m.Relaxed[0].Target.Bound > 0.0126 {
		t.Errorf("%+v", m.Relaxed)
	}
	if len(m.Levers) != 0 {
		t.Errorf("levers %+v", m.Levers)
	}
	// When that is asked for, then it is found.
	q.Targets[0].Bound = m.Relaxed[0].Target.Bound
	mustFind(t, w, q)
}

func TestWhatOnlyMoreReplicationsWouldShowIsSaid(t *testing.T) {
	// Given a mean just below the target, and much noise,
	w := &world{noise: 0.2, f: rising(func(float64) float64 { return 0.0048 })}
	p := mustNotFind(t, w, Question{Scenario: fleet()})
	// then so many replications would do, if the mean stays as it is on the fresh seeds.
	c := p.Miss.Closest.Figures.FalseRejectRatio
	if c.Mean >= 0.005 {
		t.Fatalf("the mean of the fresh seeds is %v; the test wants other noise", c.Mean)
	}
	want := math.Ceil(8 * math.Pow((c.High-c.Mean)/(0.005-c.Mean), 2))
	if float64(p.Miss.RepsNeeded) != want {
		t.Errorf("%d replications, want %v", p.Miss.RepsNeeded, want)
	}
}

func TestAPromiseIsKeptWhereItIsMade(t *testing.T) {
	// Given leases above 50 ms that exceed the bound, in the worst replication only,
	w := &world{f: func(s sim.Scenario) truth {
		x := rising(func(float64) float64 { return 0.001 })(s)
		if s.Policy.Target > 50*time.Millisecond {
			x.exceeded = 1
		}
		return x
	}}
	// when the policy denies while Redis is away, then none of them is chosen;
	p := mustFind(t, w, Question{Scenario: fleet()})
	if got := target(t, p.Chosen.Policy); got > 50*time.Millisecond || len(p.Targets) != 2 {
		t.Errorf("target %v of %+v", got, p.Targets)
	}
	for _, c := range p.TradeOffs {
		if c.Figures.BoundExceededBy.Worst > 0 {
			t.Errorf("a trade-off exceeds the bound: %+v", c.Policy)
		}
	}
	// and when it promises less, the longest is.
	s := fleet()
	s.Policy.Fallback = lease.FallbackLocalShare
	p = mustFind(t, w, Question{Scenario: s})
	if got := target(t, p.Chosen.Policy); got != 2*time.Second || len(p.Targets) != 1 {
		t.Errorf("target %v of %+v", got, p.Targets)
	}
}

func TestTheGivenPolicyIsComparedOnTheSameSeeds(t *testing.T) {
	s := fleet()
	s.Policy.Target, s.Policy.TTL = 30*time.Millisecond, 300*time.Millisecond
	w := &world{noise: 0.1, f: rising(func(ms float64) float64 { return ms / 1e5 })}
	p := mustFind(t, w, Question{Scenario: s})
	if g := p.Given; g == nil || g.Policy.Target != "30ms" || g.Policy.TTL != "300ms" || g.Seed != p.ConfirmSeed || !g.Meets {
		t.Fatalf("%+v", p.Given)
	}
	d := p.Given.Differences["calls_per_s"]
	if want := p.Given.Figures.CallsPerS.Mean - p.Chosen.Figures.CallsPerS.Mean; math.Abs(d.Mean-want) > 1e-9 || !d.Certain() {
		t.Errorf("%+v, want %v", d, want)
	}
}

func TestTheBindingTargetSaysWhatMovingItWouldBuy(t *testing.T) {
	// Given 0.5 % at 100 ms, and more beyond,
	w := &world{f: rising(func(ms float64) float64 { return ms / 20000 })}
	p := mustFind(t, w, Question{Scenario: fleet(), Targets: []Target{AtMost("false_reject_ratio", 0.005), AtMost("calls_per_s", 10000)}})
	b := p.Binding
	if b == nil || b.Figure != "false_reject_ratio" || b.Relaxed == nil {
		t.Fatalf("%+v", b)
	}
	// then a tenth fewer calls take a ninth more of them.
	if saved := 1 - b.Relaxed.CallsPerS.Mean/p.Chosen.Figures.CallsPerS.Mean; saved < 0.1 || b.Relaxed.Target.Bound <= 0.005 || b.Relaxed.Target.Bound > 0.009 {
		t.Errorf("saves %v with %+v", saved, b.Relaxed)
	}
	if b.Relaxed.Target.Bound < b.Relaxed.FalseRejectRatio.High {
		t.Errorf("with %+v the policy would not meet it: %+v", b.Relaxed.Target, b.Relaxed.FalseRejectRatio)
	}
	// And where calls bind, moving them buys accuracy.
	p = mustFind(t, w, Question{Scenario: fleet(), Targets: []Target{AtMost("false_reject_ratio", 0.5), AtMost("calls_per_s", 10.1)}})
	if b := p.Binding; b.Figure != "calls_per_s" || b.Relaxed == nil || b.Relaxed.Target.Bound <= 10.1 || b.Relaxed.FalseRejectRatio.Mean >= p.Chosen.Figures.FalseRejectRatio.Mean {
		t.Errorf("%+v", b)
	}
}

func TestTheBurstThatCapsTheTargetIsNamed(t *testing.T) {
	s := fleet()
	s.Limits[0].Burst = 200 // a quarter of it is 50 ms
	w := &world{f: rising(func(float64) float64 { return 0.001 })}
	if p := mustFind(t, w, Question{Scenario: s}); p.TargetCap != "50ms" || p.Chosen.Policy.Target != "50ms" {
		t.Errorf("cap %q, %+v", p.TargetCap, p.Chosen.Policy)
	}
	w.f = rising(func(ms float64) float64 { return ms / 4000 })
	if p := mustFind(t, w, Question{Scenario: s}); p.TargetCap != "" || target(t, p.Chosen.Policy) > 20*time.Millisecond {
		t.Errorf("cap %q, %+v", p.TargetCap, p.Chosen.Policy)
	}
}

func TestParallelDoesNotChangeThePlan(t *testing.T) {
	var texts []string
	for _, parallel := range []int{1, 8} {
		w := &world{noise: 0.3, f: rising(func(ms float64) float64 { return ms / 30000 })}
		p, err := Planner{Run: w.run, Parallel: parallel}.Plan(t.Context(), Question{Scenario: fleet(), OvercommitMax: 100})
		p.Machine = sim.Machine{}
		text, jsonErr := json.Marshal(p)
		if err != nil || jsonErr != nil {
			t.Fatal(err, jsonErr)
		}
		texts = append(texts, string(text))
	}
	if texts[0] != texts[1] {
		t.Errorf("1 at a time:\n%s\n8 at a time:\n%s", texts[0], texts[1])
	}
}

func TestAnInterruptedPlanShowsWhatTheSearchHadSeen(t *testing.T) {
	for _, after := range []int{0, 1, 10, 40} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		w := &world{f: rising(func(ms float64) float64 { return ms / 1e5 }), before: func(sim.Scenario) error {
			if n++; n > after {
				cancel()
				return fmt.Errorf("%w: in the middle", sim.ErrInterrupted)
			}
			return nil
		}}
		p, err := Planner{Run: w.run, Parallel: 1}.Plan(ctx, Question{Scenario: fleet()})
		if !errors.Is(err, sim.ErrInterrupted) || p.Verdict != Interrupted || p.Chosen != nil || n != after+1 {
			t.Errorf("after %d of %d runs: %v, %+v", after, n, err, p.Verdict)
		}
		if (len(p.TradeOffs) > 0) != (after > 1) {
			t.Errorf("after %d runs: %d trade-offs", after, len(p.TradeOffs))
		}
		if want := fmt.Sprintf("%d of ", map[int]int{0: 0, 1: 0, 10: 9}[after]); after < 40 && !strings.Contains(err.Error(), want) {
			t.Errorf("after %d runs: %v, want %q", after, err, want)
		}
	}
}

func TestARunThatFailsEndsThePlan(t *testing.T) {
	broken := errors.New("a law of nature")
	w := &world{f: rising(func(float64) float64 { return 0 }), before: func(s sim.Scenario) error {
		if s.Policy.Target == 2*time.Second {
			return broken
		}
		return nil
	}}
	if _, err := ask(t, w, Question{Scenario: fleet()}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestBadQuestionsAreRefusedBeforeAnythingRuns(t *testing.T) {
	w := &world{before: func(sim.Scenario) error { t.Error("something ran"); return nil }}
	invalid := fleet()
	invalid.Limits = nil
	for _, c := range []struct {
		q    Question
		want string
	}{
		{Question{Scenario: fleet(), Targets: []Target{AtMost("calls", 1)}}, `there is no figure "calls"`},
		{Question{Scenario: fleet(), Targets: []Target{AtMost("jain", math.NaN())}}, "the bound of jain is NaN"},
		{Question{Scenario: fleet(), Targets: []Target{AtMost("jain", 1), AtMost("jain", 2)}}, "jain is bounded twice"},
		{Question{Scenario: fleet(), MustHold: []string{"weather"}}, `unknown stress: "weather"`},
		{Question{Scenario: invalid}, "limits"},
	} {
		if _, err := ask(t, w, c.q); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
