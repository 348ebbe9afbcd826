package planner

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

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

func TestWhatFailsOnFreshSeedsAloneRelaxesNothing(t *testing.T) {
	// Given a world that is good on the search's seed, and bad on all others,
	w := &world{f: func(s sim.Scenario) truth {
		x := rising(func(float64) float64 { return 0.001 })(s)
		if s.Seed != fleet().Seed {
			x.falseRejects = 0.02
		}
		return x
	}}
	// then the search's figures relax no target, for they meet it.
	if m := mustNotFind(t, w, Question{Scenario: fleet()}).Miss; len(m.Relaxed) != 0 || m.Missed[0].Value < 0.019 {
		t.Errorf("%+v", m)
	}
}

func TestALeverIsWhatTheQuestionDidNotAllow(t *testing.T) {
	f := func(s sim.Scenario) truth {
		x := rising(func(float64) float64 { return 0.01 })(s)
		if s.Policy.Overcommit > 2500 {
			x.falseRejects = 0.001
		}
		return x
	}
	w := &world{f: f}
	m := mustNotFind(t, w, Question{Scenario: fleet(), OvercommitMax: 2500}).Miss
	for _, s := range w.runs {
		if s.Policy.Overcommit == 2000 {
			t.Error("a quarter of the burst was tried as a lever, although it was allowed anyway")
		}
	}
	if len(m.Levers) != 1 || m.Levers[0].Name != "overcommit" || m.Levers[0].Value != 4000 {
		t.Errorf("%+v", m.Levers)
	}
}

func TestTheTradeOffsReachBeyondWhatTheSearchPursued(t *testing.T) {
	// Given 0.5 % at 100 ms, and accuracy that falls with the target throughout,
	p := mustFind(t, &world{f: rising(func(ms float64) float64 { return ms / 20000 })}, Question{Scenario: fleet()})
	// then there are policies with far fewer calls than the chosen one, and far better ones, and none that is beaten,
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
	// each with its difference from the chosen one.
	for _, c := range p.TradeOffs {
		if want := c.Figures.CallsPerS.Mean - chosen; math.Abs(c.Differences["calls_per_s"].Mean-want) > 1e-9 {
			t.Errorf("%+v, want %v", c.Differences["calls_per_s"], want)
		}
	}
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
	// The end of what is tried is no cap of the burst's.
	if p := mustFind(t, w, Question{Scenario: fleet()}); p.TargetCap != "" || p.Chosen.Policy.Target != "2s" {
		t.Errorf("cap %q, %+v", p.TargetCap, p.Chosen.Policy)
	}
	w.f = rising(func(ms float64) float64 { return ms / 4000 })
	if p := mustFind(t, w, Question{Scenario: s}); p.TargetCap != "" || target(t, p.Chosen.Policy) > 20*time.Millisecond {
		t.Errorf("cap %q, %+v", p.TargetCap, p.Chosen.Policy)
	}
}
