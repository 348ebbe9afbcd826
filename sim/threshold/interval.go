package threshold

import "math"

// interval holds all values from low to high. An end that cannot be told is infinite.
type interval struct{ low, high float64 }

var unknown = interval{math.Inf(-1), math.Inf(1)}

func point(x float64) interval { return hull(x, x) }

// hull is the smallest interval that holds all of xs; not a number among them means that nothing is known.
func hull(xs ...float64) interval {
	i := interval{math.Inf(1), math.Inf(-1)}
	for _, x := range xs {
		if math.IsNaN(x) {
			return unknown
		}
		i.low, i.high = min(i.low, x), max(i.high, x)
	}
	return i
}

func (a interval) negate() interval { return interval{-a.high, -a.low} }

func (a interval) plus(b interval) interval { return hull(a.low+b.low, a.high+b.high) }

func (a interval) times(b interval) interval {
	return hull(a.low*b.low, a.low*b.high, a.high*b.low, a.high*b.high)
}

func (a interval) over(b interval) interval {
	if b.low <= 0 && b.high >= 0 {
		return unknown
	}
	return hull(a.low/b.low, a.low/b.high, a.high/b.low, a.high/b.high)
}

// compare reports whether a op b for all values of both, and if not, by how much it fails.
func (a interval) compare(op string, b interval) (holds bool, by float64) {
	switch op {
	case "<":
		return a.high < b.low, a.high - b.low
	case "<=":
		return a.high <= b.low, a.high - b.low
	case ">":
		return a.low > b.high, b.high - a.low
	case ">=":
		return a.low >= b.high, b.high - a.low
	case "==":
		by = max(math.Abs(a.high-b.low), math.Abs(b.high-a.low))
		return by == 0, by
	default: // "!=": how far they overlap
		return a.high < b.low || b.high < a.low, min(a.high, b.high) - max(a.low, b.low)
	}
}
