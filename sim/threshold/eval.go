package threshold

import (
	"fmt"
	"math"
	"strings"
)

// condition is a node that holds or not.
type condition interface {
	// check lists the comparisons that fail; none if the condition holds.
	check(*figures) []string
}

// value is a node that has an interval of values.
type value interface{ eval(*figures) interval }

type (
	// conjunction fails with what fails in each part.
	conjunction []condition
	// disjunction fails with what fails in all parts, if all fail.
	disjunction []condition
	comparison  struct {
		op                  string
		left, right         value
		leftText, rightText string
	}
	binary struct {
		op          string
		left, right value
	}
	negative struct{ value }
	figure   struct{ rival, name, part string }
)

// figureParts are what may follow a figure's name.
var figureParts = []string{"mean", "low", "high", "worst"}

func (c conjunction) check(f *figures) (failures []string) {
	for _, part := range c {
		failures = append(failures, part.check(f)...)
	}
	return failures
}

func (d disjunction) check(f *figures) (failures []string) {
	for _, part := range d {
		failed := part.check(f)
		if len(failed) == 0 {
			return nil
		}
		failures = append(failures, failed...)
	}
	return failures
}

func (c comparison) check(f *figures) []string {
	a, b := c.left.eval(f), c.right.eval(f)
	holds, by := a.compare(c.op, b)
	if holds {
		return nil
	}
	says := describe(c.leftText, c.left, a)
	if _, plain := c.right.(interval); !plain {
		says += " and " + describe(c.rightText, c.right, b)
	}
	switch {
	case math.IsInf(by, 0) || math.IsNaN(by):
		return []string{says}
	case c.op == "!=":
		return []string{fmt.Sprintf("%s, which may be equal to %s", says, c.rightText)}
	case by == 0:
		return []string{fmt.Sprintf("%s, which is not %s %s", says, c.op, c.rightText)}
	}
	return []string{fmt.Sprintf("%s, off by %s", says, short(by))}
}

// describe says what a side of a comparison came to.
func describe(text string, v value, i interval) string {
	switch {
	case i == unknown:
		return text + " is unknown"
	case i.low == i.high:
		return text + " is " + short(i.low)
	case strings.ContainsAny(text, "+-*/ "):
		return fmt.Sprintf("(%s) is in [%s, %s]", text, short(i.low), short(i.high))
	}
	return fmt.Sprintf("%s is in [%s, %s]", text, short(i.low), short(i.high))
}

func (i interval) eval(*figures) interval { return i }

func (n negative) eval(f *figures) interval { return n.value.eval(f).negate() }

func (b binary) eval(f *figures) interval {
	x, y := b.left.eval(f), b.right.eval(f)
	switch b.op {
	case "+":
		return x.plus(y)
	case "-":
		return x.plus(y.negate())
	case "*":
		return x.times(y)
	default:
		return x.over(y)
	}
}

func (n figure) eval(f *figures) interval {
	got, ok := f.find(n.rival, n.name)
	if !ok {
		return unknown
	}
	switch n.part {
	case "mean":
		return point(got.Mean)
	case "low":
		return point(got.Low)
	case "high":
		return point(got.High)
	case "worst":
		return point(got.Worst)
	}
	return hull(got.Low, got.High)
}
