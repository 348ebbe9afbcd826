package search

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// harder tells which stress a run is under.
func harder(s sim.Scenario) string {
	switch {
	case len(s.Redis.Faults) > 0 && s.Redis.Faults[0].Kind == sim.FaultOutage:
		return StressOutage
	case len(s.Redis.Faults) > 0 && s.Redis.Faults[0].Kind == sim.FaultFailover:
		return StressFailover
	case len(s.Redis.Faults) > 0:
		return StressLostBucket
	case len(s.Groups[0].Scale) > 0:
		return StressCrash
	case !s.Clock.Drift.IsZero():
		return StressClocks
	case s.Groups[0].Count > 20:
		return StressProcesses
	}
	for name, load := range loads {
		if math.Abs(s.Load()-load) < 1e-9 {
			return name
		}
	}
	return ""
}

func TestTheLoadOfAFlashIsThatOfItsOverloads(t *testing.T) {
	s := fleet()
	s.Workload.Kind = sim.Flash
	p := mustFind(t, &world{f: rising(func(float64) float64 { return 0.001 })}, Question{Scenario: s})
	testkit.Check(t, p.Load == s.Load(), "the load is %v, want %v", p.Load, s.Load())
}

func TestAStressMattersWhereItMustHold(t *testing.T) {
	for i, stress := range Stresses {
		if stress == "load_1" { // which chance decides for hours
			continue
		}
		// Given leases that are good up to 50 ms and at about 2 s, but the long ones not under one stress,
		w := &world{f: func(s sim.Scenario) truth {
			x := rising(func(float64) float64 { return 0.001 })(s)
			switch ms := s.Policy.Target.Milliseconds(); {
			case ms > 50 && harder(s) == stress: // 20 %, or as many tokens in an hour or a day
				x.falseRejects, x.faultStock = 0.2, 0.2*max(3600, often[stress].Seconds())*1000
			case ms > 50 && ms < 1500:
				x.falseRejects = 0.1
			}
			return x
		}}
		// when another one must hold, then long ones are chosen, and the report says what fails;
		must := []string{Stresses[(i+1)%len(Stresses)]}
		if must[0] == "load_1" {
			must[0] = StressClocks
		}
		p := mustFind(t, w, Question{Scenario: fleet(), MustHold: must})
		testkit.Must(t, p.Chosen.Policy.Target == "2s" && len(p.Stress) == len(Stresses), "%s: %+v", stress, p)
		for k, got := range p.Stress {
			whole := got.Name == Stresses[k] && got.Must == (got.Name == must[0]) && got.Description != "" &&
				len(got.Margins) == 2
			fails, rejects := got.Name == stress, got.Figures.FalseRejectRatio.High > 0.09
			testkit.Check(t, whole && (got.Meets != fails || got.Undecided) && rejects == fails, "%s: %+v", stress, got)
		}
		// when it must hold, then others are chosen,
		q := Question{Scenario: fleet(), MustHold: []string{stress}}
		p = mustFind(t, w, q)
		testkit.Check(t, target(t, p.Chosen.Policy) <= 50*time.Millisecond && p.Stress[i].Must && p.Stress[i].Meets,
			"%s: %+v, %+v", stress, p.Chosen.Policy, p.Stress)
		// or the miss names the stress, where there are no others.
		q.Targets = []Threshold{AtMost("false_reject_ratio", 0.005), AtMost("calls_per_s", 100)}
		testkit.Check(t, mustNotFind(t, w, q).Miss.Stress == stress, "%s", stress)
	}
}

func TestARunUnderStressIsLengthenedWhileItLeavesTheVerdictOpen(t *testing.T) {
	// Given rejects within the target, which only long runs prove where the load is twice the limit,
	w := &world{f: rising(func(float64) float64 { return 0.004 }), noise: 0.0002}
	calm := w.f
	w.f = func(s sim.Scenario) truth {
		x := calm(s)
		if s.Load() == 2 && s.Duration-s.Warmup < 100*time.Second {
			x.falseRejects = 0.005 // in the middle of the interval
		}
		return x
	}
	// when a plan is made, then its verdict at that load is clear, and loads that were clear have short runs.
	p := mustFind(t, w, Question{Scenario: fleet()})
	longest := map[string]time.Duration{}
	for _, s := range w.runs {
		name := harder(s)
		longest[name] = max(longest[name], s.Duration-s.Warmup)
	}
	for _, s := range p.Stress {
		if s.Name == "load_2" {
			testkit.Check(t, s.Meets && !s.Undecided, "%+v", s)
		}
	}
	testkit.Check(t, longest["load_2"] >= 100*time.Second && longest["load_3"] < 100*time.Second, "%v", longest)
}

func TestAStressChangesWhatItSaysAndNothingElse(t *testing.T) {
	s := fleet()
	s.Warmup = 2 * time.Second
	s.Clock.Offset.Dist = sim.Dist{Kind: scenario.DistNormal, P: 1, Q: 2}
	s.Clock.Drift.Dist = sim.Dist{Kind: sim.DistLognormal, P: 3, Q: 4}
	s.Groups = []sim.Group{
		{
			Name: "a", Count: 3, Share: 3, Scale: []sim.Step{{At: time.Second, Count: 7}},
			Workload: &sim.Workload{Kind: sim.Constant},
		},
		{Name: "b", Count: 1, Share: 1},
	}
	s.Redis.Faults = make([]sim.RedisFault, 0, 4) // room that an append would write into
	s = s.Defaults()
	before := fmt.Sprintf("%+v %+v", s, s.Groups[0].Workload)

	clocks, _ := stressed(s, StressClocks)
	outage, _ := stressed(s, StressOutage)
	more, described := stressed(s, StressProcesses)
	o, d, right := clocks.Clock.Offset, clocks.Clock.Drift, doubled(sim.Clock{})
	testkit.Check(t, o.P == 2 && o.Q == 4 && d.P == 6 && d.Q == 8,
		"offset %+v, drift %+v", o, d)
	testkit.Check(t, right.Offset.P == float64(time.Second) && right.Drift.P == 200, "right clocks go wrong: %+v", right)
	// three times what counts
	f := sim.RedisFault{Kind: sim.FaultOutage, At: 6 * time.Second, For: 24 * time.Second}
	testkit.Check(t, slices.Equal(outage.Redis.Faults, []sim.RedisFault{f}) &&
		outage.Duration == s.Duration+f.For,
		"%+v in %v", outage.Redis.Faults, outage.Duration)
	g := more.Groups
	testkit.Check(t, g[0].Count == 5 && g[0].Scale[0].Count == 11 && g[1].Count == 2 &&
		g[0].Share == 3 && g[1].Share == 1, "groups %+v", g)
	for _, other := range []sim.Scenario{clocks, outage, more} {
		testkit.NoErr(t, other.Validate())
		other = lasting(other, s.Duration)
		other.Clock, other.Redis, other.Groups = s.Clock, s.Redis, s.Groups
		testkit.Check(t, reflect.DeepEqual(other, s), "%+v is not %+v", other, s)
	}
	// then the scenario itself is as it was.
	after := fmt.Sprintf("%+v %+v", s, s.Groups[0].Workload)
	testkit.Check(t, after == before && s.Redis.Faults[:1][0].Kind == "", "%s, was %s", after, before)
	testkit.Check(t, described == "7 processes instead of 4", "%s", described)
	for count, want := range map[int]string{
		4: "1 of 4 processes killed, once an hour", 20: "2 of 20 processes killed, once an hour",
	} {
		_, described := stressed(sim.Scenario{Groups: []sim.Group{{Count: count}}}.Defaults(), StressCrash)
		testkit.Check(t, described == want, "%d processes: %q, want %q", count, described, want)
	}
}

func TestAFaultIsJudgedByHowOftenItComes(t *testing.T) {
	for i, stress := range Stresses {
		every, recurs := often[stress]
		if !recurs {
			continue
		}
		// Given 0.4 % that are falsely rejected, and a fault that costs a thousandth of what is admitted from
		// one to the next,
		f := func(s sim.Scenario) truth {
			x := rising(func(float64) float64 { return 0.004 })(s)
			if harder(s) == stress {
				x.falseRejects, x.faultStock = 0.3, every.Seconds()
			}
			return x
		}
		q := Question{Scenario: fleet(), MustHold: []string{stress}}
		// then that is a thousandth more, however long the run is and whatever goes on in it.
		for _, d := range []time.Duration{10 * time.Second, 100 * time.Second} {
			q.Scenario = lasting(q.Scenario, d)
			q.Targets = []Threshold{AtMost("false_reject_ratio", 0.0051)}
			p := mustFind(t, &world{f: f}, q)
			got := p.Stress[i]
			testkit.Check(t, got.Meets && math.Abs(got.Adds-0.001) < 1e-12 &&
				math.Abs(got.Margins[0].Value-0.005) < 1e-12, "%s: %+v", stress, got)
		}
	}
}
