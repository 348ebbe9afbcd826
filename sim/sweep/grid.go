package sweep

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
)

// ErrGrid is wrapped by every error about axes that do not make a grid.
var ErrGrid = errors.New("sweep: invalid grid")

// Set changes one setting of a scenario, "path=value", and nothing that a copy of the scenario shares with it.
// scenfile.Set is one.
type Set func(s *sim.Scenario, setting string) error

// grid is all combinations of the axes' values. The first axis varies slowest.
type grid struct {
	axes  []Axis
	count int
}

func newGrid(axes []Axis) (grid, error) {
	g := grid{axes, 1}
	if len(axes) == 0 {
		return g, fmt.Errorf("%w: nothing varies", ErrGrid)
	}
	counts := make([]string, len(axes))
	for i, a := range axes {
		if slices.ContainsFunc(axes[:i], func(other Axis) bool { return other.Path == a.Path }) {
			return g, fmt.Errorf("%w: %s varies twice", ErrGrid, a.Path)
		}
		counts[i] = fmt.Sprint(len(a.Values))
		g.count *= len(a.Values)
		if g.count > PointsMax*PointsMax { // far enough; it must not wrap around
			return g, fmt.Errorf("%w: more than %d points, must be at most %d", ErrGrid, PointsMax*PointsMax, PointsMax)
		}
	}
	if g.count > PointsMax {
		return g, fmt.Errorf("%w: %s is %d points, must be at most %d", ErrGrid, strings.Join(counts, " x "), g.count, PointsMax)
	}
	return g, nil
}

// point is the values at point i, one of each axis.
func (g grid) point(i int) []string {
	values := make([]string, len(g.axes))
	for k, a := range slices.Backward(g.axes) {
		values[k] = a.Values[i%len(a.Values)]
		i /= len(a.Values)
	}
	return values
}

// check tries every value of every axis by itself, so that a mistyped one is told before anything runs.
func (g grid) check(base sim.Scenario, set Set) error {
	for _, a := range g.axes {
		for i, v := range a.Values {
			s := base
			if err := set(&s, a.Path+"="+v); err != nil {
				return fmt.Errorf("%w %q, column %d: %w", ErrAxis, a.text, a.columns[i], err)
			}
		}
	}
	return nil
}

// at is base with the values of point i.
func (g grid) at(i int, base sim.Scenario, set Set) (sim.Scenario, error) {
	s := base
	for k, v := range g.point(i) {
		if err := set(&s, g.axes[k].Path+"="+v); err != nil {
			return s, err
		}
	}
	return s, nil
}
