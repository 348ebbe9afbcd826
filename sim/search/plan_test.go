package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/random"
)

func TestItFindsWhatBisectionWouldMiss(t *testing.T) {
	// Given accuracy that is good below 8 ms, bad from there to 60 ms, good again up to 150 ms, and
	// bad beyond,
	w := &world{noise: 6e-5, f: rising(func(ms float64) float64 {
		if ms < 8 || ms >= 60 && ms <= 150 {
			return 0.003
		}
		return 0.02
	})}
	// when the fewest calls with 0.5 % are asked for,
	p := mustFind(t, w, Question{Scenario: fleet()})
	// then they are found at the end of the second good range, which no bisection from either side
	// reaches.
	got := target(t, p.Chosen.Policy)
	testkit.Check(t, got <= 150*time.Millisecond && got >= 130*time.Millisecond, "the target is %v, want nearly 150ms", got)
}

func TestNoScreenedPolicyIsBetterThanTheChosenOne(t *testing.T) {
	r := testkit.Rand(t)
	for range 60 {
		// Given a surface without rhyme or reason, but the same for the same policy,
		salt := r.Uint64()
		f := func(s sim.Scenario) truth {
			x := rand.New(rand.NewPCG(salt, uint64(s.Policy.Target)^uint64(s.Policy.TTL)<<20^uint64(s.Policy.Overcommit)<<50))
			return truth{falseRejects: 0.02 * x.Float64(), calls: 10 + 1000*x.Float64(), admitted: 1}
		}
		q := Question{Scenario: fleet(), OvercommitMax: []int64{0, 400}[r.IntN(2)]}
		p, err := ask(t, &world{f: f}, q)
		// then nothing of the grid that meets the targets makes fewer calls, but for what nobody would
		// notice.
		best := math.Inf(1)
		own := q.Scenario
		own.Policy = ownPolicy(own)
		for _, policy := range policiesFor(Question{Scenario: own, OvercommitMax: q.OvercommitMax}) {
			own.Policy = policy
			if truth := f(own); truth.falseRejects <= 0.005 {
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

func TestOfPoliciesThatCallAlikeTheSimplestIsChosen(t *testing.T) {
	// Given calls that depend on nothing, or on the TTL and the overcommit by less than a hundredth,
	for _, slope := range []float64{0, 1e-4} {
		w := &world{f: func(s sim.Scenario) truth {
			calls := 100 - slope*s.Policy.TTL.Seconds() - slope*float64(s.Policy.Overcommit)
			if s.Policy.Target == 100*time.Millisecond && s.Policy.TTL == 400*time.Millisecond {
				calls = 110 // the scenario's own, which would be kept
			}
			return truth{falseRejects: 0.001, calls: calls, admitted: 1}
		}}
		p := mustFind(t, w, Question{Scenario: fleet(), OvercommitMax: 1000})
		// then there is no overcommit, and the shortest TTL.
		if c := p.Chosen.Policy; c.Overcommit != 0 || c.TTL != "200ms" {
			t.Errorf("slope %v: %+v", slope, c)
		}
	}
}

func TestTheScenariosOwnPolicyIsKeptWhereNobodyWouldNotice(t *testing.T) {
	for above, kept := range map[float64]bool{0: true, 0.009: true, 0.011: false} {
		// Given calls that are the same everywhere, but a little more with the scenario's own policy,
		own := fleet()
		own.Policy.Target, own.Policy.TTL = 123*time.Millisecond, 777*time.Millisecond
		w := &world{f: func(s sim.Scenario) truth {
			x := truth{falseRejects: 0.001, calls: 100, admitted: 1}
			if s.Policy.TTL == own.Policy.TTL {
				x.calls *= 1 + above
			}
			return x
		}}
		// then it is kept within a hundredth.
		if p := mustFind(t, w, Question{Scenario: own}); (p.Chosen.Policy == p.Given.Policy) != kept {
			t.Errorf("%v above the fewest: %v", above, p.Chosen.Policy)
		}
	}
}

func TestOvercommitIsUsedWhereAllowed(t *testing.T) {
	// Given false rejects that only overcommit brings down,
	f := func(s sim.Scenario) truth {
		x := rising(func(ms float64) float64 { return 0.01 + ms/1e6 })(s)
		x.falseRejects /= 1 + float64(s.Policy.Overcommit)/100
		return x
	}
	// when none is allowed, then there is no answer;
	mustNotFind(t, &world{f: f}, Question{Scenario: fleet()})
	// and when some is, it is used, and no further than allowed.
	p := mustFind(t, &world{f: f}, Question{Scenario: fleet(), OvercommitMax: 400})
	if c := p.Chosen.Policy; c.Overcommit < 100 || c.Overcommit > 400 {
		t.Errorf("%+v", c)
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
	p := mustFind(t, &world{noise: 3e-5, f: rising(func(ms float64) float64 { return ms / 1e5 })}, Question{Scenario: s})
	if g := p.Given; g == nil || g.Policy.Target != "30ms" || g.Policy.TTL != "300ms" || g.Seed != p.ConfirmSeed || !g.Meets {
		t.Fatalf("%+v", p.Given)
	}
}

func TestTheTradeOffsReachBeyondWhatTheSearchPursued(t *testing.T) {
	// Given 0.5 % at 100 ms, and accuracy that falls with the target throughout,
	p := mustFind(t, &world{f: rising(func(ms float64) float64 { return ms / 20000 })}, Question{Scenario: fleet()})
	// then there are policies with far fewer calls than the chosen one, and far better ones, and none
	// that is beaten.
	first, last := p.TradeOffs[0].Figures, p.TradeOffs[len(p.TradeOffs)-1].Figures
	chosen := p.Chosen.Figures.CallsPerS.Mean
	if first.CallsPerS.Mean > chosen/5 || last.CallsPerS.Mean < chosen*5 || len(p.TradeOffs) > tradeOffsMax {
		t.Errorf("%v to %v calls in %d, chosen %v", first.CallsPerS.Mean, last.CallsPerS.Mean, len(p.TradeOffs), chosen)
	}
	for i := range p.TradeOffs[1:] {
		a, b := p.TradeOffs[i].Figures, p.TradeOffs[i+1].Figures
		if a.CallsPerS.Mean >= b.CallsPerS.Mean || a.FalseRejectRatio.Mean <= b.FalseRejectRatio.Mean {
			t.Errorf("%d is beaten by its neighbour", i)
		}
	}
}

func TestAnInfeasibleQuestionSaysHowNearItCame(t *testing.T) {
	// Given false rejects of 1 % and more, and calls that accuracy costs,
	w := &world{f: rising(func(ms float64) float64 { return 0.01 + ms/1e5 })}
	q := Question{Scenario: fleet(), Targets: []Threshold{AtMost("false_reject_ratio", 0.005), AtMost("calls_per_s", 100)}}
	p, err := ask(t, w, q)
	if !errors.Is(err, ErrInfeasible) || !strings.Contains(err.Error(), "false_reject_ratio") {
		t.Fatal(err)
	}
	// then the closest is that which misses least, and by how much is said;
	m := p.Miss.Closest.Margins[0]
	if m.Figure != "false_reject_ratio" || m.Meets || m.Margin >= 0 || p.Miss.Closest.Meets || p.Miss.RepsNeeded != 0 {
		t.Errorf("%+v", p.Miss)
	}
	// and a target that a trade-off meets is found when it is asked for: at 100 calls/s, 1.2 %.
	q.Targets[0].Bound = 0.0126
	mustFind(t, w, q)
}

func TestWhatOnlyMoreReplicationsWouldShowIsSaid(t *testing.T) {
	// Given a mean just below the target, and much noise,
	w := &world{noise: 1e-3, f: rising(func(float64) float64 { return 0.0048 })}
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

func TestNothingIsSimulatedTwice(t *testing.T) {
	own := fleet()
	for range 2 {
		// Given a question, and then the same one by someone whose own policy is the best,
		w := &world{f: rising(func(ms float64) float64 { return ms / 1e5 })}
		p := mustFind(t, w, Question{Scenario: own})
		own.Policy.Target = target(t, p.Chosen.Policy)
		// then no scenario runs twice.
		seen := map[string]bool{}
		for _, s := range w.runs {
			name := fmt.Sprint(s.Hash(), s.Seed)
			if seen[name] {
				t.Errorf("target %v, %d x %v of seed %d ran twice", s.Policy.Target, s.Reps, s.Duration, s.Seed)
			}
			seen[name] = true
		}
	}
}

func TestAnInterruptedPlanShowsWhatTheSearchHadSeen(t *testing.T) {
	for _, after := range []int{0, 1, 10, 100} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &world{f: rising(func(ms float64) float64 { return ms / 1e5 }), before: interrupting(after, cancel)}
		p, err := Lab{Run: w.run, Parallel: 1}.Plan(ctx, Question{Scenario: fleet()})
		told := errors.Is(err, sim.ErrInterrupted) && p.Verdict == Interrupted && p.Chosen == nil && (len(p.TradeOffs) > 0) == (after > 0)
		testkit.Check(t, told && len(w.runs) == after+1, "after %d of %d runs: %v, %+v", after, len(w.runs), err, p)
		if after < 100 {
			testkit.Check(t, strings.Contains(err.Error(), fmt.Sprintf(`%d of `, after)) && strings.Contains(err.Error(), `in phase "screen"`), "%v", err)
		}
	}
}

func TestProgressIsToldByPhase(t *testing.T) {
	w := &world{f: rising(func(ms float64) float64 { return ms / 1e5 })}
	var phases []string
	last := 0
	l := Lab{Run: w.run, Parallel: 4, Progress: func(phase string, done, of int) {
		if done == 1 {
			phases, last = append(phases, phase), 0
		}
		if last++; done != last || done > of || phase != phases[len(phases)-1] {
			t.Errorf("phase %s: %d of %d, want %d", phase, done, of, last)
		}
	}}
	_, err := l.Plan(t.Context(), Question{Scenario: fleet()})
	want := []string{"screen", "halve", "halve", "confirm", "stress"}
	testkit.Check(t, err == nil && slices.Equal(phases, want), "%v, %q, want %q", err, phases, want)
}

func TestARunThatFailsEndsThePlan(t *testing.T) {
	w, broken := failing(2 * time.Second)
	_, err := ask(t, w, Question{Scenario: fleet()})
	testkit.Check(t, errors.Is(err, broken), "%v", err)
}

func TestBadQuestionsAreRefusedBeforeAnythingRuns(t *testing.T) {
	w := &world{before: func(sim.Scenario) error { t.Error("something ran"); return nil }}
	invalid := fleet()
	invalid.Limits = nil
	for _, c := range []struct {
		q    Question
		want string
	}{
		{Question{Scenario: fleet(), Targets: []Threshold{AtMost("calls", 1)}}, `"calls" is not a figure`},
		{Question{Scenario: fleet(), Targets: []Threshold{AtMost("jain", math.NaN())}}, `"NaN" is not a number`},
		{Question{Scenario: fleet(), Targets: []Threshold{AtMost("jain", 1), AtMost("jain", 2)}}, "jain is bounded twice"},
		{Question{Scenario: fleet(), Targets: []Threshold{{Figure: "jain", Op: "==", Bound: 1}}}, "no plan can be made for jain == 1"},
		{Question{Scenario: fleet(), MustHold: []string{"weather"}}, `unknown stress "weather", must be one of ["skew" "outage" "processes"]`},
		{Question{Scenario: invalid}, "limits"},
	} {
		_, err := ask(t, w, c.q)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), c.want), "%v, want %q", err, c.want)
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
	c := p.Chosen
	ok := len(fresh) == 8 && len(search) > 0 && c.Seed == p.ConfirmSeed && c.Reps == 8 && c.DurationS == 10
	testkit.Check(t, ok, "%d fresh seeds, %d in the search, chosen on %d x %v s of seed %d", len(fresh), len(search), c.Reps, c.DurationS, c.Seed)
}
