package planner

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// unlucky is a world whose fresh seeds reject a tenth more than those of the search.
func unlucky(f func(ms float64) float64) *world {
	return &world{f: func(s sim.Scenario) truth {
		x := rising(f)(s)
		if s.Seed != fleet().Seed {
			x.falseRejects *= 1.1
		}
		return x
	}}
}

func TestFollowingTheAdviceOfAMissWorks(t *testing.T) {
	// Given a question without an answer, and fresh seeds that are worse than those of the search,
	w := unlucky(func(ms float64) float64 { return 0.01 + ms/1e5 })
	q := Question{Scenario: fleet(), Targets: []Target{AtMost("false_reject_ratio", 0.005), AtMost("calls_per_s", 100)}}
	m := mustNotFind(t, w, q).Miss
	if len(m.Relaxed) != 1 {
		t.Fatalf("%+v", m.Relaxed)
	}
	// when the advised target is asked for, then there is an answer, as advised or better.
	q.Targets[0].Bound = m.Relaxed[0].Target.Bound
	if p := mustFind(t, w, q); p.Chosen.Figures.CallsPerS.Mean > m.Relaxed[0].CallsPerS.Mean*(1+alike) {
		t.Errorf("%v calls, advised %v", p.Chosen.Figures.CallsPerS.Mean, m.Relaxed[0].CallsPerS.Mean)
	}
}

func TestFollowingTheAdviceOfTheBindingTargetSavesWhatItSays(t *testing.T) {
	w := unlucky(func(ms float64) float64 { return ms / 20000 })
	q := Question{Scenario: fleet(), Targets: []Target{AtMost("false_reject_ratio", 0.005)}}
	p := mustFind(t, w, q)
	b := p.Binding
	if b == nil || b.Relaxed == nil {
		t.Fatalf("%+v", b)
	}
	q.Targets[0].Bound = b.Relaxed.Target.Bound
	if calls := mustFind(t, w, q).Chosen.Figures.CallsPerS.Mean; calls > b.Relaxed.CallsPerS.Mean*(1+alike) || calls > p.Chosen.Figures.CallsPerS.Mean*(1-alike) {
		t.Errorf("%v calls, advised %v, before %v", calls, b.Relaxed.CallsPerS.Mean, p.Chosen.Figures.CallsPerS.Mean)
	}
}

func TestASavingThatTheFreshSeedsDoNotShowIsNotAdvised(t *testing.T) {
	// Given leases above 100 ms that save calls on the search's seed only,
	w := &world{f: func(s sim.Scenario) truth {
		x := rising(func(ms float64) float64 { return ms / 20000 })(s)
		if s.Seed != fleet().Seed && s.Policy.Target > 100*time.Millisecond {
			x.calls = 1000
		}
		return x
	}}
	if b := mustFind(t, w, Question{Scenario: fleet()}).Binding; b == nil || b.Relaxed != nil {
		t.Errorf("%+v", b)
	}
}

func TestAdviceThatMissesAnotherTargetOnFreshSeedsIsDropped(t *testing.T) {
	// Given calls that are within their target on the search's seed only,
	w := &world{f: func(s sim.Scenario) truth {
		x := rising(func(ms float64) float64 { return 0.01 + ms/1e5 })(s)
		if s.Seed != fleet().Seed {
			x.calls += 1000
		}
		return x
	}}
	q := Question{Scenario: fleet(), Targets: []Target{AtMost("false_reject_ratio", 0.005), AtMost("calls_per_s", 100)}}
	if m := mustNotFind(t, w, q).Miss; len(m.Relaxed) != 0 {
		t.Errorf("%+v", m.Relaxed)
	}
}

func TestALeverWorksOnFreshSeedsToo(t *testing.T) {
	// Given overcommit that helps from 4000 on, or from 8000 on where the seeds are fresh,
	w := &world{f: func(s sim.Scenario) truth {
		x := rising(func(float64) float64 { return 0.01 })(s)
		if o := s.Policy.Overcommit; o >= 8000 || o >= 4000 && s.Seed == fleet().Seed {
			x.falseRejects = 0.001
		}
		return x
	}}
	p := mustNotFind(t, w, Question{Scenario: fleet(), OvercommitMax: 2500})
	// then the larger one is advised, with figures of the fresh seeds;
	if l := p.Miss.Levers; len(l) != 1 || l[0].Value != 8000 || l[0].Candidate.Seed != p.ConfirmSeed {
		t.Fatalf("%+v", l)
	}
	// and with it there is an answer.
	mustFind(t, w, Question{Scenario: fleet(), OvercommitMax: p.Miss.Levers[0].Value})
}

func TestTheAdviceHoldsUnderTheStressesThatMustHold(t *testing.T) {
	// Given a tenth more false rejects under skew, which must hold,
	w := &world{f: func(s sim.Scenario) truth {
		x := rising(func(ms float64) float64 { return 0.01 + ms/1e5 })(s)
		if harder(s) == StressSkew {
			x.falseRejects *= 1.1
		}
		return x
	}}
	q := Question{Scenario: fleet(), MustHold: []string{StressSkew}, Targets: []Target{AtMost("false_reject_ratio", 0.005), AtMost("calls_per_s", 100)}}
	m := mustNotFind(t, w, q).Miss
	if len(m.Relaxed) != 1 {
		t.Fatalf("%+v", m.Relaxed)
	}
	q.Targets[0].Bound = m.Relaxed[0].Target.Bound
	if p := mustFind(t, w, q); !slices.ContainsFunc(p.Stress, func(s Stress) bool { return s.Must && s.Meets }) {
		t.Errorf("%+v", p.Stress)
	}
}
