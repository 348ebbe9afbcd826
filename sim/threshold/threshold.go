// Package threshold is the small language of --threshold: what a report must show for a command to succeed.
//
//	bound_exceeded_by.worst == 0
//	false_reject_ratio < 0.5% && calls_per_s <= 500
//	admitted >= 0.99 * central_admitted || rival.gcra.admitted.mean < admitted.mean
//
// A figure is named by its JSON key. Alone it stands for its whole confidence interval, and a comparison holds only
// if it holds for every value in it: so 'false_reject_ratio < 0.5%' asks it of the upper end and 'jain > 0.999' of the
// lower one. With .mean, .low, .high or .worst it is that one number. rival.NAME.FIGURE is a rival's figure.
// Numbers are decimal and may end in %. The operators are, the tightest first: unary -; * and /; + and -; one of
// < <= > >= == !=; &&; ||. Parentheses group either numbers or conditions.
//
// Intervals are computed with as if they were independent (Moore, Interval Analysis, 1966): the interval of an
// expression holds every value that it can have, and may be wider than that.
package threshold

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
)

var (
	// ErrSyntax is wrapped by the errors of Parse. They name the column, counted in characters from 1.
	ErrSyntax = errors.New("threshold: cannot be read")
	// ErrFailed is wrapped by the errors of Check for a report that does not meet the rule.
	ErrFailed = errors.New("threshold: does not hold")
)

// Rule is a parsed condition. It is immutable, and safe for use by any goroutine.
type Rule struct {
	text   string
	root   condition
	rivals []string
}

// Parse reads a condition. Names are checked too, but for those of rivals, which Rivals lists.
func Parse(text string) (*Rule, error) {
	p := parser{text: []rune(text)}
	p.next()
	root, err := p.condition()
	if err != nil {
		return nil, err
	}
	slices.Sort(p.rivals)
	return &Rule{text: text, root: root, rivals: slices.Compact(p.rivals)}, nil
}

// String is the text that was parsed.
func (r *Rule) String() string { return r.text }

// Rivals are the rivals that the rule names, in order.
func (r *Rule) Rivals() []string { return r.rivals }

// Failures says of each comparison that fails what the figures are, and by how much it fails; none if the report meets the
// rule. A figure of a rival that the report lacks is unknown: no comparison with it holds.
func (r *Rule) Failures(report *sim.Report) []string { return r.root.check(&figures{report}) }

// Check is nil if the report meets the rule. Else its error wraps ErrFailed, and names the rule and its Failures.
func (r *Rule) Check(report *sim.Report) error {
	failures := r.Failures(report)
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: %s", ErrFailed, r.text, strings.Join(failures, "; "))
}

// Names lists the figures of a report that a rule may name, without those of rivals.
func Names() (names []string) {
	for _, f := range (&sim.Figures{}).All() {
		names = append(names, f.Name)
	}
	return names
}

// RivalNames lists the figures that a rule may name after rival.NAME.
func RivalNames() (names []string) {
	for _, f := range (&sim.RivalReport{}).All() {
		names = append(names, f.Name)
	}
	return names
}

// figures looks names up in a report.
type figures struct{ report *sim.Report }

// find is the figure of a rival, or of the report itself where rival is empty.
func (f *figures) find(rival, name string) (sim.Figure, bool) {
	if rival == "" {
		return pick(f.report.Figures.All(), name)
	}
	for i := range f.report.Rivals {
		if r := &f.report.Rivals[i]; r.Name == rival {
			return pick(r.All(), name)
		}
	}
	return sim.Figure{}, false
}

func pick(all []sim.Named, name string) (sim.Figure, bool) {
	for _, f := range all {
		if f.Name == name {
			return *f.Figure, true
		}
	}
	return sim.Figure{}, false
}

// short is a number with as many digits as somebody wants to read.
func short(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
