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

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

func TestAnAxisIsAPathAndItsValues(t *testing.T) {
	for text, want := range map[string]string{
		"clock.offset=0,100ms,10s":                    "0|100ms|10s",
		"clock.offset=normal(0s,10ms),uniform(0s,1s)": "normal(0s,10ms)|uniform(0s,1s)",
		"limits.0=100/s, 5000/m burst 200":            "100/s|5000/m burst 200",
	} {
		a, err := ParseAxis(text)
		path, _, _ := strings.Cut(text, "=")
		read := err == nil && a.Path == path && strings.Join(a.Values, "|") == want
		testkit.Check(t, read, "%s:\n%v, %v; want\n%s", text, strings.Join(a.Values, "|"), err, want)
	}
}

func TestAnAxisThatCannotBeReadSaysWhy(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "must be PATH=VALUES",
		"policy.target":          "must be PATH=VALUES",
		" policy.target=1":       "must be PATH=VALUES",
		"policy.target=1ms,,2ms": "a value is missing",
	} {
		_, err := ParseAxis(text)
		named := errors.Is(err, ErrAxis) && strings.Contains(err.Error(), want)
		testkit.Check(t, named, "%s: %v; want %q", text, err, want)
	}
}

// byTarget has the target as false rejects, and calls that fall with it.
func byTarget(s sim.Scenario) truth {
	tau := s.Policy.Target.Seconds()
	return truth{falseRejects: tau, calls: float64(s.Groups[0].Count) / tau}
}

func axes(t *testing.T, texts ...string) (all []Axis) {
	t.Helper()
	for _, text := range texts {
		a, err := ParseAxis(text)
		testkit.NoErr(t, err)
		all = append(all, a)
	}
	return all
}

// swept returns an undisturbed sweep of the fleet.
func swept(t *testing.T, w *world, texts ...string) SweepReport {
	t.Helper()
	r, err := Lab{Run: w.run}.Sweep(t.Context(), fleet(), axes(t, texts...))
	testkit.NoErr(t, err)
	return r
}

func TestASweepVisitsEveryPointOfTheGridInOrder(t *testing.T) {
	r := swept(t, &world{f: byTarget}, "policy.target=10ms,20ms", "groups.all.count=1,2,3")
	var labels []string
	for i := range r.Points {
		labels = append(labels, r.Label(&r.Points[i]))
	}
	want := []string{
		"policy.target=10ms groups.all.count=1", "policy.target=10ms groups.all.count=2",
		"policy.target=10ms groups.all.count=3", "policy.target=20ms groups.all.count=1",
		"policy.target=20ms groups.all.count=2", "policy.target=20ms groups.all.count=3",
	}
	testkit.Check(t, slices.Equal(labels, want), "%q", labels)
	// then the seed and the size of the question are in the report.
	asked := Asked{"fleet", fleet().Hash(), 3, 8, 10, 0.95}
	testkit.Check(t, r.Asked == asked && r.Machine.Requests == 6000, "%+v", r)
}

func TestDifferencesArePairedSoThatCommonLuckCancels(t *testing.T) {
	// Given noise a hundred times the effect, which all points share,
	r := swept(t, &world{f: byTarget, noise: 1}, "policy.target=10ms,20ms")
	// then the difference is exact all the same, and certain.
	d := r.Points[1].Differences["false_reject_ratio"]
	testkit.Check(t, math.Abs(d.Mean-0.01) < 1e-12 && d.Certain() && d.High-d.Low < 1e-12, "%+v", d)
	d = r.Points[0].Differences["false_reject_ratio"]
	testkit.Check(t, d == (sim.Difference{}) && !d.Certain(), "the base differs from itself by %+v", d)
}

func TestASweepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{f: byTarget, before: interrupting(2, cancel)}
	var told []string
	tell := func(phase string, done, of int) { told = append(told, fmt.Sprint(phase, done, "/", of)) }
	_, err := Lab{w.run, 1, tell}.Sweep(ctx, fleet(), axes(t, "policy.target=10ms,20ms,30ms,40ms,50ms,60ms"))
	testkit.Check(t, errors.Is(err, sim.ErrInterrupted) && len(w.runs) == 3, "%v after %d runs", err, len(w.runs))
	testkit.Check(t, slices.Equal(told, []string{"sweep1/6", "sweep2/6"}), "progress %q", told)
}

func TestARunThatFailsEndsASweepOrAPlanAndIsNamed(t *testing.T) {
	broken := errors.New("a law of nature")
	w := &world{f: byTarget, before: func(s sim.Scenario) error {
		if s.Policy.Target == 20*time.Millisecond {
			return broken
		}
		return nil
	}}
	l := Lab{Run: w.run, Parallel: 1}
	_, err := l.Sweep(t.Context(), fleet(), axes(t, "policy.target=10ms,20ms,30ms,40ms,50ms,60ms"))
	named := errors.Is(err, broken) && strings.Contains(err.Error(), "policy.target=20ms")
	testkit.Check(t, named && len(w.runs) == 2, "%v after %d runs", err, len(w.runs))
	own := fleet()
	own.Policy.Target = 20 * time.Millisecond
	_, err = l.Plan(t.Context(), Question{Scenario: own})
	const name = "policy.target=20ms policy.ttl=200ms"
	testkit.Check(t, errors.Is(err, broken) && strings.Contains(err.Error(), name), "%v", err)
}

func TestAnInvalidGridIsRefusedBeforeAnythingRuns(t *testing.T) {
	w := &world{before: func(sim.Scenario) error { t.Error("something ran"); return nil }}
	for _, c := range []struct {
		axes []string
		want string
	}{
		{[]string{"policy.target=1ms,2ms", "policy.target=3ms"}, "policy.target varies twice"},
		{[]string{"policy.target=1ms,2cm"}, `invalid axis policy.target=2cm: `},
		{[]string{"policy.goal=1,2"}, `invalid axis policy.goal=1: policy.goal: `},
		{[]string{"policy.target=10ms,80ms", "policy.ttl=100ms"}, "policy.ttl is 100ms, must be at least 160ms"},
	} {
		_, err := Lab{Run: w.run}.Sweep(t.Context(), fleet(), axes(t, c.axes...))
		testkit.Check(t, errors.Is(err, ErrAxis) && strings.Contains(err.Error(), c.want), "%v: %v, want %q", c.axes, err, c.want)
	}
}
