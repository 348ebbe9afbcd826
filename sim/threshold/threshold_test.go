package threshold

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim"
)

// measured is a report in which figures have these intervals: mean, low, high, worst.
func measured() *sim.Report {
	r := &sim.Report{}
	r.Admitted = sim.Figure{Mean: 990, Low: 980, High: 1000, Worst: 970}
	r.CentralAdmitted = sim.Figure{Mean: 1000, Low: 1000, High: 1000, Worst: 1000}
	r.FalseRejectRatio = sim.Figure{Mean: 0.004, Low: 0.002, High: 0.006, Worst: 0.009}
	r.CallsPerS = sim.Figure{Mean: 50, Low: 45, High: 55, Worst: 60}
	r.Rivals = []sim.RivalReport{{Name: "gcra", Admitted: sim.Figure{Mean: 900, Low: 890, High: 910, Worst: 880}}}
	r.Rivals = append(r.Rivals, sim.RivalReport{Name: "settle_afterwards:2.5ms", Jain: sim.Figure{Mean: 1, Low: 1, High: 1, Worst: 1}})
	return r
}

func TestARuleHoldsOnlyIfItHoldsForTheWholeInterval(t *testing.T) {
	for rule, want := range map[string]bool{
		"bound_exceeded_by == 0":                             true,
		"bound_exceeded_by.worst == 0":                       true,
		"false_reject_ratio < 0.7%":                          true,
		"false_reject_ratio < 0.5%":                          false, // its mean is, its upper end is not
		"false_reject_ratio.mean < 0.5%":                     true,
		"false_reject_ratio.low >= 0.2%":                     true,
		"false_reject_ratio.high <= 0.006":                   true,
		"false_reject_ratio.worst <= 0.006":                  false,
		"admitted > 980":                                     false, // its lower end is 980
		"admitted >= 980":                                    true,
		"admitted == 990":                                    false,
		"admitted.mean == 990":                               true,
		"central_admitted == 1000":                           true,
		"central_admitted != 1000":                           false,
		"admitted != 1001":                                   true,
		"admitted != 1000":                                   false,
		"admitted / central_admitted >= 98%":                 true,
		"admitted / central_admitted > 0.98":                 false,
		"admitted >= 0.98 * central_admitted":                true,
		"-calls_per_s > -56":                                 true,
		"-calls_per_s > -54":                                 false,
		"calls_per_s - calls_per_s == 0":                     false, // as if the two were independent
		"calls_per_s.mean - calls_per_s.mean == 0":           true,
		"1 + 2 * 3 == 7":                                     true,
		"(1 + 2) * 3 == 9":                                   true,
		"10 - 2 - 3 == 5":                                    true,
		"8 / 2 / 2 == 2":                                     true,
		"2 * -3 == -6":                                       true,
		"--3 == 3":                                           true,
		"50% == .5":                                          true,
		"1e3 == 1000 && 1E-2 == 1%":                          true,
		"1 / stranded > 0":                                   false, // a division by zero is unknown
		"stranded / stranded == 1":                           false,
		"1 == 2 && 1 == 1 || 1 == 1":                         true, // && is tighter than ||
		"1 == 2 && (1 == 1 || 1 == 1)":                       false,
		"(calls_per_s < 56) && (((admitted) > 900))":         true,
		"rival.gcra.admitted < admitted":                     true,
		"rival.gcra.admitted.worst == 880":                   true,
		"rival.settle_afterwards:2.5ms.jain == 1":            true,
		"rival.settle_afterwards:2.5ms.jain.worst == 1":      true,
		"rival.settle_afterwards:5ms.jain == 1":              false,
		"rival.fixed_window.admitted >= 0":                   false, // a rival that did not run is unknown
		"rival.fixed_window.admitted < 0 || calls_per_s > 1": true,
	} {
		parsed, err := Parse(rule)
		if err != nil {
			t.Errorf("%s: %v", rule, err)
			continue
		}
		if err := parsed.Check(measured()); (err == nil) != want || err != nil && !errors.Is(err, ErrFailed) {
			t.Errorf("%s: %v, want it to hold: %v", rule, err, want)
		}
	}
}

func TestAFailureSaysWhichComparisonAndByHowMuch(t *testing.T) {
	for rule, want := range map[string]string{
		"false_reject_ratio < 0.5%":             "threshold: does not hold: false_reject_ratio < 0.5%: false_reject_ratio is in [0.002, 0.006], off by 0.001",
		"admitted > 980":                        "admitted is in [980, 1000], which is not > 980",
		"admitted.worst >= 975":                 "admitted.worst is 970, off by 5",
		"admitted/central_admitted > 0.99":      "(admitted/central_admitted) is in [0.98, 1], off by 0.01",
		"rival.gcra.admitted > admitted":        "rival.gcra.admitted is in [890, 910] and admitted is in [980, 1000], off by 110",
		"1/stranded > 0":                        "1/stranded is unknown",
		"admitted != 1000":                      "admitted is in [980, 1000], which may be equal to 1000",
		"calls_per_s < 50 && admitted == 990":   "calls_per_s is in [45, 55], off by 5; admitted is in [980, 1000], off by 10",
		"calls_per_s < 50 || admitted == 990":   "calls_per_s is in [45, 55], off by 5; admitted is in [980, 1000], off by 10",
		"calls_per_s < 56 && admitted == 990":   "admitted is in [980, 1000], off by 10",
		"rival.tortoise.round_trips_per_s < 10": "rival.tortoise.round_trips_per_s is unknown",
	} {
		parsed, err := Parse(rule)
		if err != nil {
			t.Fatal(rule, err)
		}
		if err := parsed.Check(measured()); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", rule, err, want)
		}
	}
}

func TestAnErrorOfTheTextNamesTheColumn(t *testing.T) {
	for rule, want := range map[string]string{
		"":                                 "column 1: it ends where a number or the name of a figure should be",
		"calls_per_s":                      "column 1: a number where a comparison should be",
		"calls_per_s <":                    "column 14: it ends where",
		"calls_per_s < 5ms":                `column 16: "ms" where an operator or the end should be`,
		"calls_per_s = 5":                  `column 13: "=" where an operator`,
		"calls_per_s < five":               `column 15: "five" is not a figure: there are offered, admitted,`,
		"calls < 5":                        `column 1: "calls" is not a figure`,
		"jain.median > 1":                  `column 1: "jain.median": after jain there is one of .mean, .low, .high, .worst`,
		"jain.mean.mean > 1":               "column 1: ",
		"jain. > 1":                        "column 1: ",
		"rival.gcra > 1":                   "column 1: \"rival.gcra\": a rival's figure is rival.NAME.FIGURE",
		"rival..jain > 1":                  "column 1: ",
		"rival.gcra.calls_per_s > 1":       `column 1: "calls_per_s" is not a figure: there are admitted,`,
		"1 < jain < 2":                     "column 10: a second comparison: write a < b && b < c",
		"(jain > 1":                        "column 10: it ends where a closing parenthesis should be",
		"jain > 1)":                        `column 9: ")" where`,
		"jain > 1 && 2":                    "column 13: a number where && needs a comparison",
		"2 || jain > 1":                    "column 1: a number where || needs a comparison",
		"(jain > 1) + 2 > 1":               "column 1: a condition where + needs a number",
		"2 > (jain > 1)":                   "column 5: a condition where > needs a number",
		"-(jain > 1)":                      "column 2: a condition where - needs a number",
		"jain > 1.2.3":                     `column 8: "1.2.3" is not a number`,
		"jain > 1e999":                     `column 8: "1e999" is not a number`,
		"jäin > 1":                         `column 1: "j" is not a figure`,
		"1 > 0 && jain > 'ä'":              `column 17: "'" where a number`,
		"jain ≥ 1":                         `column 6: "≥" where`,
		strings.Repeat("(", 101) + "1 > 0": "column 101: nested deeper than 100",
		strings.Repeat("-", 101) + "1 > 0": "column 101: nested deeper than 100",
	} {
		_, err := Parse(rule)
		if !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", rule, err, want)
		}
	}
}

func TestARuleSaysWhichRivalsItNeeds(t *testing.T) {
	r, err := Parse("rival.gcra.jain > 0 && rival.fixed_window.jain > 0 && rival.gcra.jain < 1")
	if err != nil || !slices.Equal(r.Rivals(), []string{"fixed_window", "gcra"}) {
		t.Errorf("%v, %v", r.Rivals(), err)
	}
}

func TestEveryFigureCanBeNamed(t *testing.T) {
	rules := Names()
	for _, name := range RivalNames() {
		rules = append(rules, "rival.gcra."+name)
	}
	for _, name := range rules {
		for _, part := range append([]string{""}, figureParts...) {
			rule := strings.TrimSuffix(name+"."+part, ".") + " >= 0"
			if _, err := Parse(rule); err != nil {
				t.Errorf("%s: %v", rule, err)
			}
		}
	}
}
