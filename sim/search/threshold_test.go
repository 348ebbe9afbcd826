package search

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

// measured is a report in which figures have these intervals.
func measured() *sim.Report {
	r := &sim.Report{}
	r.Admitted = sim.Figure{Mean: 990, Low: 980, High: 1000, Worst: 970}
	r.CentralAdmitted = sim.Figure{Mean: 1000, Low: 1000, High: 1000, Worst: 1000}
	r.FalseRejectRatio = sim.Figure{Mean: 0.004, Low: 0.002, High: 0.006, Worst: 0.009}
	r.Rivals = []sim.RivalReport{
		{Name: "central", Admitted: sim.Figure{Mean: 900, Low: 890, High: 910, Worst: 880}},
		{Name: "settle_afterwards:2.5ms", Jain: sim.Figure{Mean: 1, Low: 1, High: 1, Worst: 1}},
	}
	return r
}

// An empty failure means that the threshold holds.
func TestAThresholdHoldsOnlyIfItHoldsForTheWholeInterval(t *testing.T) {
	for text, failure := range map[string]string{
		"bound_exceeded_by == 0":                        "",
		"bound_exceeded_by.worst==0":                    "",
		" false_reject_ratio < 0.7% ":                   "",
		"false_reject_ratio < 0.5%":                     "false_reject_ratio is in [0.2%, 0.6%]", // its mean is, its upper end is not
		"false_reject_ratio.mean < 0.5%":                "",
		"false_reject_ratio.low >= 0.2%":                "",
		"false_reject_ratio.high <= 6e-1%":              "",
		"false_reject_ratio.worst <= .6%":               "false_reject_ratio.worst is 0.9%",
		"false_reject_ratio >= 0":                       "",
		"false_reject_ratio <= 0.6%":                    "",
		"false_reject_ratio < 0.6%":                     "false_reject_ratio is in [0.2%, 0.6%]",
		"admitted > 980":                                "admitted is in [980, 1000]", // its lower end is 980
		"admitted >= 980":                               "",
		"admitted > -1":                                 "",
		"admitted == 990":                               "admitted is in [980, 1000]",
		"admitted.mean == 990":                          "",
		"central_admitted == 1e3":                       "",
		"central_admitted != 1000":                      "central_admitted is 1000",
		"admitted != 1001":                              "",
		"admitted != 979":                               "",
		"admitted != 1000":                              "admitted is in [980, 1000]",
		"rival.central.admitted < 911":                  "",
		"rival.central.admitted.worst == 880":           "",
		"rival.central.admitted > 900":                  "rival.central.admitted is in [890, 910]",
		"rival.settle_afterwards:2.5ms.jain == 1":       "",
		"rival.settle_afterwards:2.5ms.jain.worst == 1": "",
		"rival.settle_afterwards:5ms.jain == 1":         "rival.settle_afterwards:5ms.jain is unknown",
		"rival.fixed_window.admitted >= 0":              "rival.fixed_window.admitted is unknown", // it did not run
	} {
		threshold, err := ParseThreshold(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		err = threshold.Check(measured())
		if failure == "" && err != nil || failure != "" && (!errors.Is(err, ErrNotMet) ||
			!strings.HasSuffix(err.Error(), text+": "+failure)) {
			t.Errorf("%s: %v, want the failure %q", text, err, failure)
		}
	}
}

func TestAThresholdThatCannotBeReadSaysWhatItMustBe(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "must be FIGURE OP NUMBER",
		"calls_per_s":                            "must be FIGURE OP NUMBER",
		"calls_per_s <":                          "must be FIGURE OP NUMBER",
		"calls_per_s = 5":                        "must be FIGURE OP NUMBER",
		"calls_per_s ≤ 5":                        "must be FIGURE OP NUMBER",
		"0 < jain < 1":                           "must be FIGURE OP NUMBER",
		"jain > 1 && burnt == 0":                 "must be FIGURE OP NUMBER",
		"admitted >= 0.9*central_admitted":       "is not a number",
		"calls_per_s < 5ms":                      `"5ms" is not a number`,
		"jain > 1e999":                           `"1e999" is not a number`,
		"jain > nan":                             `"nan" is not a number`,
		"jain > inf%":                            `"inf%" is not a number`,
		"calls < 5":                              `"calls" is not a figure. The figures are offered, admitted,`,
		"jain.median > 1":                        `"jain.median" is not a figure`,
		"jain.mean.mean > 1":                     `"jain.mean" is not a figure`,
		"jain. > 1":                              `"jain." is not a figure`,
		"false_reject_ratio <= 0.5":              "0.5 could mean 0.5% or 50%: say which, with the % sign",
		"worst_share.low >= 1":                   "1 could mean 1% or 100%",
		"rival.central.admitted_vs_central > .9": ".9 could mean .9% or 90%",
		"rival.central > 1":                      "a rival's figure is rival.NAME.FIGURE",
		"rival..jain > 1":                        "a rival's figure is rival.NAME.FIGURE",
		"rival.central.calls_per_s.low > 1":      `"calls_per_s" is not a figure. The figures are admitted,`,
	} {
		if _, err := ParseThreshold(text); !errors.Is(err, ErrThreshold) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", text, err, want)
		}
	}
}

func TestEveryFigureCanBeNamed(t *testing.T) {
	names := FigureNames()
	for _, name := range RivalFigureNames() {
		names = append(names, "rival.central."+name)
	}
	for _, name := range names {
		for _, part := range append([]string{""}, figureParts...) {
			read, err := ParseThreshold(strings.TrimSuffix(name+"."+part, ".") + " >= 0")
			testkit.NoErr(t, err)
			// What stands for a threshold that was not parsed is read as that one.
			again := Threshold{Rival: read.Rival, Figure: read.Figure, Part: read.Part, Op: "<", Bound: 0.3}
			read, err = ParseThreshold(again.String())
			read.text = ""
			testkit.Check(t, err == nil && read == again, "%s: %+v, %v", again, read, err)
		}
	}
}

// FuzzThreshold checks for any text that it is read or refused, never anything else; and for any
// threshold that one which holds for intervals holds for every value in them.
//
//	go test -run '^$' -fuzz FuzzThreshold ./sim/search
func FuzzThreshold(f *testing.F) {
	for _, text := range []string{
		"bound_exceeded_by.worst == 0", "false_reject_ratio < 0.5%", "jain > .5", "jain != 1", "jain >= -1", "burnt <= 1e-1",
		"rival.central.admitted.mean == 1", "1 < 2", "jain.", "rival..x", "1e", "%",
	} {
		for seed := range uint64(20) {
			f.Add(text, seed)
		}
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		threshold, err := ParseThreshold(text)
		if err != nil {
			testkit.Must(t, errors.Is(err, ErrThreshold), "%q: %v", text, err)
			return
		}
		random := rand.New(rand.NewPCG(seed, 0))
		report := sim.Report{Rivals: []sim.RivalReport{{Name: "central"}}}
		all := append(report.Figures.All(), report.Rivals[0].All()...)
		for _, f := range all {
			f.Mean, f.Worst = random.Float64(), random.Float64()
			f.Low = float64(random.IntN(4)-2) / 2
			f.High = f.Low + random.Float64()*float64(random.IntN(2))
		}
		if err := threshold.Check(&report); err != nil {
			testkit.Must(t, errors.Is(err, ErrNotMet), "%q: %v", text, err)
			return
		}
		if threshold.Part != "" {
			return // about one number; .low and .high are no longer what they were for a part of the interval
		}
		for _, f := range all {
			at := min(f.Low+random.Float64()*(f.High-f.Low), f.High)
			f.Low, f.High = at, at
		}
		if err := threshold.Check(&report); err != nil {
			t.Fatalf("%q holds for intervals, but not for values in them: %v", text, err)
		}
	})
}

// ofMeans is the front of rows of figures without replications, which are as they are.
func ofMeans(rows [][]float64) []bool {
	goals := []Objective{{Figure: "burnt"}, {Figure: "stranded"}, {Figure: "calls_per_s"}, {Figure: "degraded"}}
	figures := make([]*sim.Figures, len(rows))
	for i, row := range rows {
		if row != nil {
			figures[i] = &sim.Figures{}
			for k, x := range row {
				figureIn(figures[i].All(), goals[k].Figure).Mean = x
			}
		}
	}
	return paretoFront(goals, figures, 0.95)
}

func TestTheFrontLeavesNoiseAndBrokenPromisesOut(t *testing.T) {
	row := func(calls float64, excess float64, rejects ...float64) Point {
		f := &sim.Figures{
			CallsPerS:        sim.Figure{Mean: calls, Values: slices.Repeat([]float64{calls}, len(rejects))},
			BoundExceededBy:  sim.Figure{Worst: excess},
			FalseRejectRatio: sim.Figure{Values: rejects},
		}
		for _, x := range rejects {
			f.FalseRejectRatio.Mean += x / float64(len(rejects))
		}
		return Point{Figures: f}
	}
	for _, c := range []struct {
		what   string
		points []Point
		want   []bool
	}{
		{"dearer, and better by luck", []Point{row(364, 0, .10, .13, .12), row(3600, 0, .12, .11, .11)}, []bool{true, false}},
		{"dearer, and better on every seed", []Point{row(364, 0, .10, .13, .12), row(3600, 0, .08, .11, .10)}, []bool{true, true}},
		{"cheap, and above the limit", []Point{row(3, 35816, .1, .1, .1), row(364, 0, .2, .2, .2)}, []bool{false, true}},
		// The second is as good as the first for all that is known, and the third as the second; that
		// the third is better than the first is certain.
		{"a chain", []Point{row(1, 0, .30, .31, .32), row(2, 0, .10, .31, .52), row(3, 0, .20, .21, .22)}, []bool{true, false, true}},
	} {
		// Given the points of a sweep, when they are compared,
		r := SweepReport{Asked: Asked{Confidence: 0.95, Reps: 3}, Objectives: DefaultObjectives(), Points: c.points}
		r.compare()
		// then these are on the front.
		for i, want := range c.want {
			testkit.Check(t, r.Points[i].Front == want, "%s: point %d on the front: %v", c.what, i, r.Points[i].Front)
		}
	}
}

func TestTheFrontIsWhatNothingBeats(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		rows [][]float64
		want []bool
	}{
		{nil, []bool{}},
		{[][]float64{nil, {1}, {0}, {0}}, []bool{false, false, true, true}},            // equal rows stand together
		{[][]float64{{1, 3}, {2, 2}, {3, 1}, {2, 3}}, []bool{true, true, true, false}}, // beaten by two
		{[][]float64{{1, 1}, {1, 2}, {2, 1}}, []bool{true, false, false}},              // better in one alone
		{[][]float64{{nan, 0}, {5, 5}, {-inf, nan}}, []bool{false, true, false}},       // what is unknown beats none
		{[][]float64{{-inf, 3}, {inf, 2}, {0, 3}, nil}, []bool{true, true, false, false}},
		{[][]float64{{1, 1, 1, 2}, {1, 1, 1, 1}}, []bool{false, true}},
	} {
		testkit.Check(t, slices.Equal(ofMeans(c.rows), c.want),
			"%v: %v, want %v", c.rows, ofMeans(c.rows), c.want)
	}
	// Of many rows, each is beaten by one of the front, or on it.
	r := testkit.Rand(t)
	for range 500 {
		rows := make([][]float64, 1+r.IntN(40))
		for i := range rows {
			rows[i] = []float64{float64(r.IntN(9)), float64(r.IntN(9)), float64(r.IntN(9))}
		}
		on := ofMeans(rows)
		for i, row := range rows {
			beaten := false
			for k, other := range rows {
				beaten = beaten || on[k] &&
					slices.Max([]float64{other[0] - row[0], other[1] - row[1], other[2] - row[2]}) <= 0 &&
					!slices.Equal(other, row)
			}
			testkit.Must(t, on[i] != beaten, "%v: row %d: on the front: %v, beaten: %v", rows, i, on[i], beaten)
		}
	}
}

func TestObjectivesAreFiguresWithADirection(t *testing.T) {
	for text, want := range map[string][]Objective{
		"admitted_vs_central:max,calls_per_s:min": {{"admitted_vs_central", true}, {"calls_per_s", false}},
		"jain, stranded": {{"jain", true}, {"stranded", false}},
		"jain:min":       {{"jain", false}},
	} {
		got, err := ParseObjectives(text)
		testkit.Check(t, err == nil && slices.Equal(got, want), "%s: %v, %v", text, got, err)
	}
	for text, want := range map[string]string{
		"":                    `there is no figure ""; the figures are offered, admitted`,
		"calls":               `there is no figure "calls"`,
		"jain:up":             `"up" must be min or max`,
		"jain,calls_per_s:":   `"" must be min or max`,
		"jain,burnt,jain:max": "jain is there twice",
	} {
		if _, err := ParseObjectives(text); !errors.Is(err, ErrObjective) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestAnObjectiveScoresSoThatLessIsBetter(t *testing.T) {
	f := sim.Figures{Jain: sim.Figure{Mean: 0.9}, CallsPerS: sim.Figure{Mean: 70}}
	if got := scores([]Objective{{"jain", true}, {"calls_per_s", false}}, &f); !slices.Equal(got, []float64{-0.9, 70}) {
		t.Error(got)
	}
	scores(DefaultObjectives(), &f) // panics if there is no such figure
}
