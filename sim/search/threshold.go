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
)

var (
	// ErrThreshold is wrapped by the errors of ParseThreshold.
	ErrThreshold = errors.New("search: invalid threshold")
	// ErrNotMet is wrapped by the error of Threshold.Check about a report that does not meet it.
	ErrNotMet = errors.New("search: threshold does not hold")
)

// Threshold is what one figure of a report must show: FIGURE OP NUMBER, as in
//
//	bound_exceeded_by.worst == 0
//	false_reject_ratio < 0.5%
//	rival.central.jain >= 0.99
//
// A figure is named by its JSON key. Alone it stands for its whole confidence interval, and the
// threshold holds only if it holds for every value in it: "false_reject_ratio < 0.5%" asks it of
// the upper end. With .mean, .low, .high or .worst it is that one number. rival.NAME.FIGURE is a
// rival's figure. OP is one of < <= > >= == !=.
type Threshold struct {
	Rival  string // "" for a figure of the leases themselves
	Figure string // the JSON key
	Part   string // mean, low, high or worst; "" for the whole interval
	Op     string
	Bound  float64

	text string
}

var (
	figureParts     = []string{"mean", "low", "high", "worst"}
	thresholdSyntax = regexp.MustCompile(`^\s*([^\s<>=!]+)\s*(<=|>=|==|!=|<|>)\s*([^\s<>=!]+)\s*$`)
)

// ParseThreshold reads "FIGURE OP NUMBER". NUMBER is decimal and may end in %. Every name but a
// rival's is checked.
func ParseThreshold(text string) (Threshold, error) {
	wrong := func(format string, args ...any) (Threshold, error) {
		return Threshold{}, fmt.Errorf("%w %q: "+format, append([]any{ErrThreshold, text}, args...)...)
	}
	match := thresholdSyntax.FindStringSubmatch(text)
	if match == nil {
		return wrong("must be FIGURE OP NUMBER, as in 'bound_exceeded_by.worst == 0'; OP is one of < <= > >= == !=")
	}
	t := Threshold{Figure: match[1], Op: match[2], text: text}
	known := FigureNames()
	if i := strings.LastIndexByte(t.Figure, '.'); i >= 0 && slices.Contains(figureParts, t.Figure[i+1:]) {
		t.Figure, t.Part = t.Figure[:i], t.Figure[i+1:]
	}
	if name, ok := strings.CutPrefix(t.Figure, "rival."); ok {
		// A rival's name may have dots of its own, as in settle_afterwards:2.5ms; a figure's name
		// has none.
		i := strings.LastIndexByte(name, '.')
		if i < 1 {
			return wrong("a rival's figure is rival.NAME.FIGURE")
		}
		t.Rival, t.Figure, known = name[:i], name[i+1:], RivalFigureNames()
	}
	if !slices.Contains(known, t.Figure) {
		return wrong("%q is not a figure. The figures are %s; each alone or with .%s",
			t.Figure, strings.Join(known, ", "), strings.Join(figureParts, ", ."))
	}
	number, percent := strings.CutSuffix(match[3], "%")
	var err error
	if t.Bound, err = strconv.ParseFloat(number, 64); err != nil || math.IsNaN(t.Bound) || math.IsInf(t.Bound, 0) {
		return wrong("%q is not a number", match[3])
	}
	if percent {
		t.Bound /= 100
	}
	return t, nil
}

// String is the text that was parsed.
func (t Threshold) String() string { return t.text }

// Failure says what the figure is where it does not meet the threshold; it is empty where it does.
// A figure that the report lacks, because the rival did not run or because it is not a number,
// meets no threshold.
func (t Threshold) Failure(report *sim.Report) string {
	name, all := t.Figure, report.Figures.All()
	if t.Rival != "" {
		name, all = "rival."+t.Rival+"."+t.Figure, nil
		for i := range report.Rivals {
			if report.Rivals[i].Name == t.Rival {
				all = report.Rivals[i].All()
			}
		}
	}
	i := slices.IndexFunc(all, func(f sim.Named) bool { return f.Name == t.Figure })
	if i < 0 {
		return name + " is unknown"
	}
	f := all[i].Figure
	low, high := f.Low, f.High
	if t.Part != "" {
		name += "." + t.Part
		low = map[string]float64{"mean": f.Mean, "low": f.Low, "high": f.High, "worst": f.Worst}[t.Part]
		high = low
	}
	switch {
	case math.IsNaN(low) || math.IsNaN(high):
		return name + " is unknown"
	case t.holds(low, high):
		return ""
	case low == high:
		return fmt.Sprintf("%s is %.6g", name, low)
	}
	return fmt.Sprintf("%s is in [%.6g, %.6g]", name, low, high)
}

// holds reports whether every x with low <= x <= high is on the right side of the bound.
func (t Threshold) holds(low, high float64) bool {
	switch t.Op {
	case "<":
		return high < t.Bound
	case "<=":
		return high <= t.Bound
	case ">":
		return low > t.Bound
	case ">=":
		return low >= t.Bound
	case "==":
		return low == t.Bound && high == t.Bound
	default: // !=
		return high < t.Bound || low > t.Bound
	}
}

// Check is nil if the report meets the threshold. Else its error wraps ErrNotMet and says what the
// figure is.
func (t Threshold) Check(report *sim.Report) error {
	if failure := t.Failure(report); failure != "" {
		return fmt.Errorf("%w: %s: %s", ErrNotMet, t, failure)
	}
	return nil
}
