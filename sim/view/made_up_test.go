package view

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/search"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// fig is a figure with its interval and its worst value.
func fig(mean, half, worst float64, seed uint64) sim.Figure {
	return sim.Figure{Mean: mean, Low: mean - half, High: mean + half, Worst: worst, WorstSeed: seed}
}

// madeUp is a result that no run gave, of every kind of figure.
func madeUp() Result {
	s := sim.Scenario{
		Name:        "made-up",
		Description: "Twenty processes that nobody ever ran.",
		Limits:      []lease.Limit{lease.PerSecond(1000).WithBurst(2000)},
		Warmup:      2 * time.Second,
		Groups:      []sim.Group{{Name: "web", Count: 16}, {Name: "batch", Count: 4, Weight: 2, Skew: 0.5}},
		Policy:      lease.Policy{Fallback: lease.FallbackDeny},
	}
	r := sim.Report{
		SchemaVersion: report.SchemaVersion, Scenario: s.Name, ScenarioHash: "0123456789abcdef", Seed: 7, Reps: 10,
		RepsAsked: 10,
		DurationS: 30, WarmupS: 2, Confidence: 0.95, Processes: 20,
		Figures: sim.Figures{
			Offered:           fig(56012.4, 131.7, 55700, 9),
			Admitted:          fig(28003.2, 12.4, 27968, 4),
			CentralAdmitted:   fig(28051, 11, 28020, 4),
			AdmittedVsCentral: fig(0.998296, 0.00021, 0.99781, 4),
			BoundExceededBy:   fig(0, 0, 0, 7),
			FalseRejectRatio:  fig(0.001704, 0.00021, 0.00219, 4),
			SwappedRatio:      fig(0.0104, 0.0007, 0.0121, 12),
			CallsPerS:         fig(198.25, 1.5, 201.5, 8),
			RoundTripsPerS:    fig(198.25, 1.5, 201.5, 8),
			RedisCPU:          fig(0.00297, 0.00002, 0.00302, 8),
			Jain:              fig(0.99987, 0.00003, 0.99976, 15),
			WorstShare:        fig(0.9712, 0.0041, 0.9633, 15),
			Stranded:          fig(99.1, 2.3, 104.9, 11),
			Burnt:             fig(0, 0, 0, 7),
			Degraded:          fig(0, 0, 0, 7),
			Shadowed:          fig(120, 8, 131, 9),
			Charged:           fig(0, 0, 0, 7),
			Refunded:          fig(0, 0, 0, 7),
			WaitMsP50:         fig(0, 0, 0, 7),
			WaitMsP99:         fig(1.0534, 0.0101, 1.0751, 10),
			WaitMsMax:         fig(4.2, 0.8, 6.1, 16),
			DeniedWaitMsP99:   fig(0.82, 0.02, 0.9, 10),
		},
		Classes: []sim.ClassReport{
			{Groups: []string{"web"}, Offered: fig(40012, 90, 39880, 9), Admitted: fig(25903, 9, 25880, 4),
				AdmittedRatio: fig(0.6474, 0.002, 0.6431, 9)},
			{Headroom: 0.2, Groups: []string{"batch"}, Offered: fig(16000.4, 40, 15900, 9),
				Admitted:      fig(2100.2, 11, 2080, 4),
				AdmittedRatio: fig(0.1313, 0.001, 0.1298, 4), Shadowed: fig(120, 8, 131, 9)},
		},
		Rivals: []sim.RivalReport{
			rivalOf("central", fig(28051, 11, 28020, 4), fig(0, 0, 0, 7), 2000),
			rivalOf("fixed_window", fig(29800, 55, 30100, 4), fig(1893, 21, 1987, 13), 2000),
			rivalOf("local_batches", fig(28320, 40, 28500, 4), fig(412, 9, 440, 3), 28),
		},
		Machine: sim.Machine{
			Elapsed: 1234567890, Requests: 560124, RequestsPerS: 453700.4, Parallel: 2, GoVersion: "go1.26.8",
			Platform: "linux/amd64",
		},
	}
	r.Series.StepS = 0.25
	for i := range 120 {
		x := float64(i)
		wave := math.Abs(math.Mod(x, 40) - 20)
		add := func(series *[]float64, y float64) { *series = append(*series, y) }
		add(&r.Series.Offered, 2000+wave*10)
		add(&r.Series.Admitted, 1000+max(0, 900-x*60)-wave)
		add(&r.Series.Central, 1002+max(0, 920-x*60)-wave)
		add(&r.Series.RoundTrips, 190+wave)
		add(&r.Series.Level, max(30, 1900-x*130)+wave)
		add(&r.Series.Ledger, 100-wave)
		add(&r.Series.Held, 90-wave)
		add(&r.Series.Running, 20)
	}
	for i := range 20 {
		m := sim.Member{Group: "web", Offered: 2500, Admitted: 1400 - int64(i%5)*6, Share: 1398.5, Calls: 280}
		if i >= 16 {
			m = sim.Member{Group: "batch", Offered: 4000, Admitted: 2790 + int64(i)*2, Share: 2797, Calls: 285}
		}
		r.Members = append(r.Members, m)
	}
	return Result{
		Scenario: s, Report: r,
		Text:       "name: made-up\nlimits: [1000/s burst 2000]\n",
		Command:    "leasesim run -f made-up.yaml --set 'policy.fallback=deny' --seed 7",
		Thresholds: thresholds("bound_exceeded_by.worst == 0", "false_reject_ratio < 0.1%"),
	}
}

// rivalOf asks Redis for each request where it makes as many round trips as there are requests.
func rivalOf(name string, admitted, excess sim.Figure, trips float64) sim.RivalReport {
	remote := trips == 2000
	part := map[bool]float64{true: 1}[remote]
	return sim.RivalReport{
		Remote: remote, RedisCPU: fig(0.03*part, 0.001*part, 0.032*part, 4),
		WaitMsP50: fig(1.04*part, 0.01*part, 1.1*part, 5), WaitMsP99: fig(2.31*part, 0.05*part, 2.5*part, 5),
		Name: name, Admitted: admitted, AdmittedVsCentral: fig(admitted.Mean/28051, 0.0003, admitted.Worst/28051,
			4),
		BoundExceededBy: excess, FalseRejectRatio: fig(0.004, 0.0003, 0.005, 4),
		SwappedRatio:   fig(0.02, 0.001, 0.03, 4),
		RoundTripsPerS: fig(trips, trips/100, trips*1.02, 5), Jain: fig(0.98, 0.001, 0.97, 6),
		WorstShare: fig(0.8, 0.02, 0.7, 6),
	}
}

// thresholds parses texts that are right.
func thresholds(texts ...string) (all []search.Threshold) {
	for _, text := range texts {
		t, err := search.ParseThreshold(text)
		if err != nil {
			panic(err)
		}
		all = append(all, t)
	}
	return all
}

// swept is a sweep of a made-up simulator: false rejects rise with the target, calls fall.
func swept(t *testing.T, texts ...string) search.SweepReport {
	t.Helper()
	var axes []search.Axis
	for _, text := range texts {
		a, err := search.ParseAxis(text)
		testkit.NoErr(t, err)
		axes = append(axes, a)
	}
	s := madeUp().Scenario
	s.Policy.Target, s.Seed, s.Reps = 50*time.Millisecond, 7, 5
	r, err := search.Lab{Run: byTarget}.Sweep(t.Context(), s, axes)
	testkit.NoErr(t, err)
	return r
}

// planned is a plan by the same simulator; missed is one that finds nothing. They are kept as they were once
// found, so that what is shown does not change with how plans are found; -update asks the search again.
func planned(t *testing.T) search.Plan { return kept(t, "plan.json") }

func missed(t *testing.T) search.Plan {
	return kept(t, "miss.json", search.AtMost("false_reject_ratio", 0.005), search.AtMost("calls_per_s", 100),
		atLeast("admitted_vs_central", 0.9))
}

func kept(t *testing.T, name string, targets ...search.Threshold) (p search.Plan) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		s := madeUp().Scenario
		s.Policy.Target, s.Seed, s.Reps = 20*time.Millisecond, 7, 5
		found, _ := search.Lab{Run: byTarget}.Plan(t.Context(), search.Question{Scenario: s, Targets: targets})
		found.Machine = madeUp().Report.Machine
		text, err := json.Marshal(found)
		testkit.NoErr(t, err)
		testkit.NoErr(t, os.WriteFile(path, append(text, '\n'), 0o644))
	}
	text, err := os.ReadFile(path)
	testkit.NoErr(t, err)
	testkit.NoErr(t, json.Unmarshal(text, &p))
	return p
}

// byTarget makes up a report. A fault of Redis costs 72,000 tokens.
func byTarget(_ context.Context, s sim.Scenario) (sim.Report, error) {
	s = s.Defaults()
	r := sim.Report{Confidence: 0.95, Seed: s.Seed, Reps: s.Reps, DurationS: s.Duration.Seconds()}
	r.Machine.Requests = 150_000
	tau := s.Policy.Target.Seconds()
	exactly := func(x float64) sim.Figure {
		return sim.Figure{Mean: x, Low: x, High: x, Worst: x, Values: slices.Repeat([]float64{x}, s.Reps)}
	}
	r.CallsPerS, r.AdmittedVsCentral, r.FalseRejectRatio = exactly(20/tau), exactly(1), exactly(tau/25)
	r.CentralAdmitted = exactly(1000 * (s.Duration - s.Warmup).Seconds())
	if len(s.Redis.Faults) > 0 {
		r.FaultStock = exactly(72_000)
	}
	return r, nil
}
