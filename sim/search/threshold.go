package search

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/report"
)

var (
	// ErrThreshold is wrapped by every error about an invalid threshold.
	ErrThreshold = errors.New("search: invalid threshold")
	// ErrNotMet is wrapped by the error of Threshold.Check for a report that does not meet the threshold.
	ErrNotMet = errors.New("search: threshold does not hold")
)

// Threshold bounds one figure of a report: FIGURE OP NUMBER, as in
//
//	bound_exceeded_by.worst == 0
//	false_reject_ratio < 0.5%
//
// FIGURE is a JSON key. FIGURE alone stands for every value in the figure's interval or range. FIGURE.mean,
// .low, .high or .worst is a single number. OP is one of < <= > >= == !=.
type Threshold struct {
	Figure string  `json:"figure"`
	Part   string  `json:"part,omitempty"` // empty for the whole interval
	Op     string  `json:"op"`
	Bound  float64 `json:"bound"`
}

// AtMost returns the threshold "figure <= bound".
func AtMost(figure string, bound float64) Threshold {
	return Threshold{Figure: figure, Op: "<=", Bound: bound}
}

var (
	thresholdSyntax = regexp.MustCompile(`^\s*([^\s<>=!]+)\s*(<=|>=|==|!=|<|>)\s*([^\s<>=!]+)\s*$`)
	figureParts     = []string{"mean", "low", "high", "worst"}
	// holds reports whether every x with low <= x <= high is on the right side of a bound.
	holds = map[string]func(low, high, bound float64) bool{
		"<":  func(_, high, bound float64) bool { return high < bound },
		"<=": func(_, high, bound float64) bool { return high <= bound },
		">":  func(low, _, bound float64) bool { return low > bound },
		">=": func(low, _, bound float64) bool { return low >= bound },
		"==": func(low, high, bound float64) bool { return low == bound && high == bound },
		"!=": func(low, high, bound float64) bool { return high < bound || low > bound },
	}
)

// ParseThreshold parses "FIGURE OP NUMBER". NUMBER is decimal and may end in %. A ratio other than 0 needs
// the %.
func ParseThreshold(text string) (Threshold, error) {
	wrong := wrongText(ErrThreshold, text)
	match := thresholdSyntax.FindStringSubmatch(text)
	if match == nil {
		return Threshold{}, wrong("must be FIGURE OP NUMBER, as in 'bound_exceeded_by.worst == 0'; " +
			"OP is one of < <= > >= == !=")
	}
	t := Threshold{Figure: match[1], Op: match[2]}
	if i := strings.LastIndexByte(t.Figure, '.'); i >= 0 && slices.Contains(figureParts, t.Figure[i+1:]) {
		t.Figure, t.Part = t.Figure[:i], t.Figure[i+1:]
	}
	if known := FigureNames(); !slices.Contains(known, t.Figure) {
		return Threshold{}, wrong("%q is not a figure. The figures are %s; each alone or with .%s",
			t.Figure, strings.Join(known, ", "), strings.Join(figureParts, ", ."))
	}
	number, percent := strings.CutSuffix(match[3], "%")
	var err error
	t.Bound, err = strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(t.Bound) || math.IsInf(t.Bound, 0) {
		return Threshold{}, wrong("%q is not a number", match[3])
	}
	switch {
	case percent:
		t.Bound /= 100
	case report.IsPart(t.Figure) && t.Bound != 0:
		return Threshold{}, wrong("%s is ambiguous: write %s%% or %s%%", number, number, decimal(t.Bound*100))
	}
	return t, nil
}

func (t Threshold) name() string { return strings.TrimSuffix(t.Figure+"."+t.Part, ".") }

// String returns a text that ParseThreshold can parse.
func (t Threshold) String() string {
	bound := decimal(t.Bound)
	if report.IsPart(t.Figure) {
		bound = decimal(t.Bound*100) + "%"
	}
	return fmt.Sprint(t.name(), " ", t.Op, " ", bound)
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'g', 12, 64) }

func (t Threshold) interval(report *sim.Report) (low, high float64) {
	f := FigureOf(&report.Figures, t.Figure)
	if t.Part == "" {
		return f.Low, f.High
	}
	x := map[string]float64{"mean": f.Mean, "low": f.Low, "high": f.High, "worst": f.Worst}[t.Part]
	return x, x
}

// Failure describes the figure if it misses the threshold, or returns "" if it does not. A NaN misses every
// threshold.
func (t Threshold) Failure(report *sim.Report) string {
	low, high := t.interval(report)
	switch {
	case math.IsNaN(low) || math.IsNaN(high):
		return t.name() + " is unknown"
	case holds[t.Op](low, high, t.Bound):
		return ""
	case low == high:
		return fmt.Sprintf("%s is %s", t.name(), t.value6(low))
	}
	return fmt.Sprintf("%s is in [%s, %s]", t.name(), t.value6(low), t.value6(high))
}

func (t Threshold) value6(x float64) string {
	if report.IsPart(t.Figure) {
		return fmt.Sprintf("%.6g%%", 100*x)
	}
	return fmt.Sprintf("%.6g", x)
}

// Check returns nil if the report meets the threshold, else an error that wraps ErrNotMet, with the figure.
func (t Threshold) Check(report *sim.Report) error {
	if failure := t.Failure(report); failure != "" {
		return fmt.Errorf("%w: %s: %s", ErrNotMet, t, failure)
	}
	return nil
}

// FigureNames returns the JSON keys of a report's figures, in the report's order.
func FigureNames() (names []string) {
	for _, f := range (&sim.Figures{}).All() {
		names = append(names, f.Name)
	}
	return names
}

// FigureOf returns the figure of a report with this JSON key. FigureOf panics for an unknown key.
func FigureOf(report interface{ All() []sim.Named }, name string) sim.Figure {
	all := report.All()
	return *all[slices.IndexFunc(all, func(named sim.Named) bool { return named.Name == name })].Figure
}

// Saturated reports whether the busiest shard was saturated in any replication. cpu is the figure redis_cpu.
func Saturated(cpu sim.Figure) bool { return cpu.Worst >= report.Saturated }
