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

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

var question = sim.Scenario{
	Name:   "question",
	Seed:   7,
	Reps:   5,
	Limits: []lease.Limit{lease.PerSecond(1000)},
	Policy: lease.Policy{Target: 50 * time.Millisecond},
	Groups: []sim.Group{{Name: "all", Count: 4}},
}

// surface makes up a simulator: the figures are a function of the scenario, plus noise that depends
// on the seed and the replication alone, as that of common random numbers.
func surface(f func(s sim.Scenario) (falseRejects, calls float64)) Run {
	return func(_ context.Context, s sim.Scenario) (sim.Report, error) {
		r := sim.Report{Confidence: 0.95, Machine: sim.Machine{Requests: 1000}}
		falseRejects, calls := f(s)
		noise := rand.New(rand.NewPCG(s.Seed, 0))
		for range s.Reps {
			luck := noise.NormFloat64()
			r.FalseRejectRatio.Values = append(r.FalseRejectRatio.Values, falseRejects+luck)
			r.CallsPerS.Values = append(r.CallsPerS.Values, calls+luck)
		}
		for _, f := range []*sim.Figure{&r.FalseRejectRatio, &r.CallsPerS} {
			for _, v := range f.Values {
				f.Mean += v / float64(len(f.Values))
			}
		}
		return r, nil
	}
}

// byTarget: false rejects rise with the target, calls fall.
func byTarget(s sim.Scenario) (falseRejects, calls float64) {
	return s.Policy.Target.Seconds(), float64(s.Groups[0].Count) / s.Policy.Target.Seconds()
}

func axes(t *testing.T, texts ...string) (all []Axis) {
	t.Helper()
	for _, text := range texts {
		a, err := ParseAxis(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// swept is what a sweep shows that nothing disturbs.
func swept(t *testing.T, w Sweep, texts ...string) SweepReport {
	t.Helper()
	r, err := w.Do(t.Context(), question, axes(t, texts...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestASweepVisitsEveryPointOfTheGridInOrder(t *testing.T) {
	r := swept(t, Sweep{Run: surface(byTarget)}, "policy.target=10ms,20ms", "groups.all.count=1..3:lin:3")
	var labels []string
	for i := range r.Points {
		labels = append(labels, r.Label(&r.Points[i]))
	}
	want := []string{
		"policy.target=10ms groups.all.count=1", "policy.target=10ms groups.all.count=2", "policy.target=10ms groups.all.count=3",
		"policy.target=20ms groups.all.count=1", "policy.target=20ms groups.all.count=2", "policy.target=20ms groups.all.count=3",
	}
	if !slices.Equal(labels, want) || r.Finished != 6 || r.Invalid != 0 {
		t.Errorf("%q, %d finished", labels, r.Finished)
	}
	// then the seed and the size of the question are in the report.
	if r.Seed != 7 || r.Reps != 5 || r.DurationS != 30 || r.ScenarioHash != question.Hash() || r.Machine.Requests != 6000 {
		t.Errorf("%+v", r)
	}
}

func TestDifferencesArePairedSoThatCommonLuckCancels(t *testing.T) {
	// Given noise a hundred times the effect, which all points share,
	r := swept(t, Sweep{Run: surface(byTarget)}, "policy.target=10ms,20ms")
	// then the difference is exact all the same, and certain.
	d := r.Points[1].Differences["false_reject_ratio"]
	if math.Abs(d.Mean-0.01) > 1e-12 || !d.Certain() || d.High-d.Low > 1e-12 {
		t.Errorf("%+v", d)
	}
	if d := r.Points[0].Differences["calls_per_s"]; d != (sim.Difference{}) || d.Certain() {
		t.Errorf("the base differs from itself by %+v", d)
	}
}

func TestAnInvalidPointSaysWhyAndTheOthersRun(t *testing.T) {
	// Given a TTL that the longer of two targets does not fit into,
	r := swept(t, Sweep{Run: surface(byTarget)}, "policy.target=10ms,80ms", "policy.ttl=100ms")
	p := r.Points[1]
	if r.Finished != 1 || r.Invalid != 1 || !strings.Contains(p.Invalid, "TTL is 100ms, must be at least 2*Target") || p.Figures != nil || p.Front || p.Differences != nil {
		t.Errorf("%+v", p)
	}
	if !r.Points[0].Front {
		t.Error("the only point that ran is not on the front")
	}
}

func TestTheFrontHoldsThePointsThatNothingBeats(t *testing.T) {
	// Given calls that fall up to 40 ms and then rise again, while false rejects rise throughout,
	run := surface(func(s sim.Scenario) (float64, float64) {
		ms := s.Policy.Target.Seconds() * 1000
		return ms, (ms - 40) * (ms - 40)
	})
	r := swept(t, Sweep{Run: run}, "policy.target=10ms..60ms:lin:6")
	for i, want := range []bool{true, true, true, true, false, false} {
		if r.Points[i].Front != want {
			t.Errorf("%s: on the front: %v", r.Label(&r.Points[i]), r.Points[i].Front)
		}
	}
	// and with one objective alone, one point.
	r = swept(t, Sweep{Run: run, Objectives: []Objective{{"calls_per_s", true}}}, "policy.target=10ms..60ms:lin:6")
	for i := range r.Points {
		if r.Points[i].Front != (i == 0) {
			t.Errorf("most calls: %s: %v", r.Label(&r.Points[i]), r.Points[i].Front)
		}
	}
}

func TestAnInterruptedSweepKeepsWhatHasFinished(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var told []string
	calls := 0
	run := func(ctx context.Context, s sim.Scenario) (sim.Report, error) {
		calls++
		if calls == 3 { // Ctrl-C in the middle of the third point
			cancel()
			return sim.Report{}, fmt.Errorf("%w: 2 of 5 replications", sim.ErrInterrupted)
		}
		return surface(byTarget)(ctx, s)
	}
	r, err := Sweep{Run: run, Parallel: 1, Progress: func(done, of int) { told = append(told, fmt.Sprintf("%d/%d", done, of)) }}.
		Do(ctx, question, axes(t, "policy.target=10ms..60ms:lin:6"))
	if !errors.Is(err, sim.ErrInterrupted) || !strings.Contains(err.Error(), "2 of 6 points are finished") {
		t.Error(err)
	}
	if r.Finished != 2 || calls != 3 || r.Points[1].Figures == nil || r.Points[2].Figures != nil || !r.Points[0].Front || r.Points[1].Differences == nil {
		t.Errorf("after %d calls: %+v", calls, r)
	}
	if !slices.Equal(told, []string{"1/6", "2/6"}) {
		t.Errorf("progress %q", told)
	}
}

func TestARunThatFailsEndsTheSweepAndNamesThePoint(t *testing.T) {
	broken := errors.New("a law of nature")
	run := func(ctx context.Context, s sim.Scenario) (sim.Report, error) {
		if s.Policy.Target == 20*time.Millisecond {
			return sim.Report{}, broken
		}
		return surface(byTarget)(ctx, s)
	}
	_, err := Sweep{Run: run, Parallel: 1}.Do(t.Context(), question, axes(t, "policy.target=10ms..60ms:lin:6"))
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "policy.target=20ms") {
		t.Error(err)
	}
}

func TestWhatCannotBeAGridIsToldBeforeAnythingRuns(t *testing.T) {
	run := func(context.Context, sim.Scenario) (sim.Report, error) {
		t.Error("something ran")
		return sim.Report{}, nil
	}
	for _, c := range []struct {
		axes []string
		want string
	}{
		{nil, "nothing varies"},
		{[]string{"policy.target=1ms,2ms", "policy.target=3ms"}, "policy.target varies twice"},
		{[]string{"policy.target=1ms..2s:log:101", "groups.all.count=1..100:lin:100"}, "101 x 100 points are too many, must be at most 10000"},
		{[]string{"policy.target=1ms..2s:log:10000", "groups.all.count=1..10000:lin:10000", "policy.ttl=1s..9s:lin:9"}, "10000 x 10000 x 9 points are too many"},
		{[]string{"policy.target=1ms,2cm"}, `invalid axis policy.target=2cm: `},
		{[]string{"policy.goal=1,2"}, `invalid axis policy.goal=1: policy.goal: `},
	} {
		_, err := Sweep{Run: run}.Do(t.Context(), question, axes(t, c.axes...))
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrGrid) && !errors.Is(err, ErrAxis) {
			t.Errorf("%v: %v, want %q", c.axes, err, c.want)
		}
	}
}
