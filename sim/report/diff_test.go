package report

import (
	"slices"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// figure is one whose replications showed values.
func figure(ranged bool, values ...float64) *Figure {
	d := meanOf(values, 0.95)
	if ranged {
		d.Low, d.High = slices.Min(values), slices.Max(values)
	}
	return &Figure{Mean: d.Mean, Low: d.Low, High: d.High, Range: ranged, Values: values}
}

func TestADifferenceIsBeyondNoiseWhereOtherSeedsWouldShowItToo(t *testing.T) {
	wide := []float64{100, 200, 300, 400, 500, 600}
	raised := []float64{101, 202, 301, 402, 501, 602} // by little, each time
	mixed := []float64{101, 198, 301, 398, 501, 598}
	for name, c := range map[string]struct {
		before, after *Figure
		paired, want  bool
	}{
		"a little in each pair":         {figure(false, wide...), figure(false, raised...), true, true},
		"the same without pairs":        {figure(false, wide...), figure(false, raised...), false, false},
		"as often up as down":           {figure(false, wide...), figure(false, mixed...), true, false},
		"equal":                         {figure(false, wide...), figure(false, wide...), true, false},
		"far apart without pairs":       {figure(false, 1, 2, 3), figure(false, 101, 102, 103), false, true},
		"rare, and up in all six":       {figure(true, wide...), figure(true, raised...), true, true},
		"rare, and up in some":          {figure(true, wide...), figure(true, mixed...), true, false},
		"rare, and up in all of three":  {figure(true, wide[:3]...), figure(true, raised[:3]...), true, false},
		"left out of JSON, as it was 0": {&Figure{}, figure(true, 5, 6, 7, 5, 6, 7), true, true},
		"left out of both":              {&Figure{}, &Figure{}, true, false},
		"rare, ranges that overlap":     {figure(true, 1, 9), figure(true, 2, 12), false, false},
		// All of two above all of two is luck one time in three, all of four above all of four never.
		"two ranges of two apart":  {figure(true, 1, 2), figure(true, 3, 4), false, false},
		"two ranges of four apart": {figure(true, 1, 2, 3, 4), figure(true, 5, 6, 7, 8), false, true},
		"one beside a range":       {figure(true, wide...), figure(false, 999), false, false},
		"one beside an interval":   {figure(false, wide...), figure(false, 999), false, false},
		"one beside one":           {figure(false, 1), figure(false, 999), false, false},
	} {
		got := Changes([]Named{{"x", c.before}}, []Named{{"y", &Figure{}}, {"x", c.after}}, c.paired, 0.95)
		testkit.Must(t, len(got) == 1 && got[0].Name == "x", "%s: %+v", name, got)
		testkit.Check(t, got[0].BeyondNoise == c.want, "%s: %+v, want %v", name, got[0], c.want)
	}
}

func TestReportsArePairedWhereTheirReplicationsHaveTheSameSeeds(t *testing.T) {
	of := func(seed uint64, values ...float64) *Report {
		return &Report{Seed: seed, Figures: Figures{Offered: *figure(false, values...)}}
	}
	testkit.Check(t, Paired(of(1, 5, 6), of(1, 7, 8)), "the same seed and number")
	testkit.Check(t, !Paired(of(1, 5, 6), of(2, 7, 8)), "another seed")
	testkit.Check(t, !Paired(of(1, 5, 6), of(1, 7, 8, 9)), "another number")
}
