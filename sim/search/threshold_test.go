package search

import (
	"errors"
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
	return r
}

// An empty failure means that the threshold holds.
func TestAThresholdHoldsOnlyIfItHoldsForTheWholeInterval(t *testing.T) {
	for text, failure := range map[string]string{
		"bound_exceeded_by == 0":           "",
		" false_reject_ratio < 0.7% ":      "",
		"false_reject_ratio < 0.5%":        "false_reject_ratio is in [0.2%, 0.6%]",
		"false_reject_ratio.mean < 0.5%":   "",
		"false_reject_ratio.high <= 6e-1%": "",
		"false_reject_ratio.worst <= 0.6%": "false_reject_ratio.worst is 0.9%",
		"false_reject_ratio <= 0.6%":       "",
		"false_reject_ratio < 0.6%":        "false_reject_ratio is in [0.2%, 0.6%]",
		"admitted > 980":                   "admitted is in [980, 1000]", // its lower end is 980
		"admitted >= 980":                  "",
		"admitted == 990":                  "admitted is in [980, 1000]",
		"central_admitted != 1000":         "central_admitted is 1000",
		"admitted != 1001":                 "",
		"admitted != 979":                  "",
		"admitted != 990":                  "admitted is in [980, 1000]",
		"admitted != 1000":                 "admitted is in [980, 1000]",
	} {
		threshold, err := ParseThreshold(text)
		testkit.NoErr(t, err)
		got, err := threshold.Failure(measured()), threshold.Check(measured())
		same := err == nil || errors.Is(err, ErrNotMet) && strings.HasSuffix(err.Error(), text+": "+failure)
		testkit.Check(t, got == failure && same, "%s: %v, want the failure %q", text, err, failure)
	}
}

func TestAThresholdThatCannotBeReadSaysWhatItMustBe(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "must be FIGURE OP NUMBER",
		"calls_per_s <":                    "must be FIGURE OP NUMBER",
		"calls_per_s = 5":                  "must be FIGURE OP NUMBER",
		"0 < jain < 1":                     "must be FIGURE OP NUMBER",
		"admitted >= 0.9*central_admitted": "is not a number",
		"calls_per_s < 5ms":                `"5ms" is not a number`,
		"jain > 1e999":                     `"1e999" is not a number`,
		"jain > inf%":                      `"inf%" is not a number`,
		"calls < 5":                        `"calls" is not a figure. The figures are offered, admitted,`,
		"jain.median > 1":                  `"jain.median" is not a figure`,
		"false_reject_ratio <= 0.5":        "0.5 is ambiguous: write 0.5% or 50%",
	} {
		_, err := ParseThreshold(text)
		named := errors.Is(err, ErrThreshold) && strings.Contains(err.Error(), want)
		testkit.Check(t, named, "%s: %v\nwant %s", text, err, want)
	}
}

func TestEveryFigureCanBeNamed(t *testing.T) {
	for _, name := range FigureNames() {
		for _, part := range append([]string{""}, figureParts...) {
			read, err := ParseThreshold(strings.TrimSuffix(name+"."+part, ".") + " >= 0")
			testkit.NoErr(t, err)
			// The text of a threshold reads as that one.
			read.Bound = 0.3
			again, err := ParseThreshold(read.String())
			testkit.Check(t, err == nil && read == again, "%s: %+v, %v", again, read, err)
		}
	}
}
