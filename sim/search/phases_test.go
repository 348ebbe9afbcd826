package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/random"
)

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
		if (len(p.TradeOffs) > 0) != (after > 0) {
			t.Errorf("after %d runs: %d trade-offs", after, len(p.TradeOffs))
		}
		if want := fmt.Sprintf("%d of ", map[int]int{0: 0, 1: 1, 10: 10}[after]); after < 40 && !strings.Contains(err.Error(), want) {
			t.Errorf("after %d runs: %v, want %q", after, err, want)
		}
	}
}

func TestProgressIsToldByPhase(t *testing.T) {
	w := &world{f: rising(func(ms float64) float64 { return ms / 1e5 })}
	var phases []string
	last := 0
	p := Planner{Run: w.run, Parallel: 4, Progress: func(phase string, done, of int) {
		if done == 1 {
			phases, last = append(phases, phase), 0
		}
		if last++; done != last || done > of || phase != phases[len(phases)-1] {
			t.Errorf("phase %s: %d of %d, want %d", phase, done, of, last)
		}
	}}
	if _, err := p.Plan(t.Context(), Question{Scenario: fleet()}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"screen", "halve", "refine", "trade-offs", "confirm", "stress"}; !slices.Equal(slices.Compact(phases), want) {
		t.Errorf("%q, want %q", phases, want)
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
		{Question{Scenario: fleet(), MustHold: []string{"weather"}}, `unknown stress "weather", must be one of ["skew" "outage" "processes"]`},
		{Question{Scenario: invalid}, "limits"},
	} {
		if _, err := ask(t, w, c.q); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
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
