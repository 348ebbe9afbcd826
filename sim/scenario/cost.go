package scenario

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim/random"
)

// Cost is the distribution of the tokens per request, from Min to Max. The text of a Cost is like "3",
// "uniform(1,5)" or "pareto(1,500,1.3)", a Pareto distribution that is cut off at Max.
type Cost struct {
	Min, Max int64
	Shape    float64 `json:",omitzero"` // 0 for a uniform cost
}

// costForm matches a cost that is not a plain number.
var costForm = regexp.MustCompile(`^(uniform|pareto)\(([^,]*),([^,]*?)(?:,([^,]*))?\)$`)

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Cost) UnmarshalText(text []byte) error {
	s := string(text)
	form, low, high, shape := "", s, s, ""
	if found := costForm.FindStringSubmatch(s); found != nil {
		form, low, high = found[1], strings.TrimSpace(found[2]), strings.TrimSpace(found[3])
		shape = strings.TrimSpace(found[4])
	}
	var read Cost
	var err1, err2, err3 error
	read.Min, err1 = strconv.ParseInt(low, 10, 64)
	read.Max, err2 = strconv.ParseInt(high, 10, 64)
	if form == "pareto" {
		read.Shape, err3 = number(shape)
	}
	switch {
	case err1 != nil || err2 != nil || err3 != nil || form != "pareto" && shape != "":
		return bad(s, "is not a cost: it is like 3, uniform(1,5) or pareto(1,500,1.3), from 1 to 500 with that shape")
	case read.Min < 1 || read.Max < read.Min:
		return bad(s, "must be 1 or more, in rising order")
	case form == "pareto" && !read.hasShape():
		return bad(s, "must have a shape of %v to %v", shapeMin, shapeMax)
	}
	*c = read
	return nil
}

// shapeMin bounds Shape so that 1 - (Min/Max)^Shape is precise enough to divide by.
const shapeMin, shapeMax = 0.01, 100

// hasShape reports whether Sample can draw from the Pareto tail with c.Shape.
func (c Cost) hasShape() bool { return c.Shape >= shapeMin && c.Shape <= shapeMax }

// MarshalText implements encoding.TextMarshaler.
func (c Cost) MarshalText() ([]byte, error) {
	switch {
	case c.Shape != 0:
		return fmt.Appendf(nil, "pareto(%d,%d,%s)", c.Min, c.Max, shortest(c.Shape)), nil
	case c.Min == c.Max:
		return strconv.AppendInt(nil, c.Min, 10), nil
	}
	return fmt.Appendf(nil, "uniform(%d,%d)", c.Min, c.Max), nil
}

// Sample draws the cost of one request. A constant Cost draws no number from r.
func (c Cost) Sample(r *random.Stream) int64 {
	switch {
	case c.Max <= c.Min:
		return c.Min
	case c.Shape == 0:
		return c.Min + r.Int64N(c.Max-c.Min+1)
	}
	// The fraction of costs above x is ((Min/x)^Shape - (Min/Max)^Shape) / (1 - (Min/Max)^Shape).
	above := 1 - float64(r.Float64()*(1-c.part(float64(c.Max))))
	return whole(float64(float64(c.Min)*random.Pow(above, -1/c.Shape)), c.Min, c.Max)
}

// part returns (Min/x)^Shape.
func (c Cost) part(x float64) float64 { return random.Pow(float64(c.Min)/x, c.Shape) }

// meanExactly is the number of costs that Mean adds up one by one, before it integrates the larger costs.
const meanExactly = 1000

// Mean returns the expected cost: Min plus, for each k above Min, the fraction of costs of k or more.
func (c Cost) Mean() float64 {
	if c.Shape == 0 || c.Max <= c.Min {
		return float64(c.Min+c.Max) / 2
	}
	end := c.part(float64(c.Max))
	exactly := min(c.Max, c.Min+meanExactly)
	mean := float64(c.Min)
	for k := c.Min + 1; k <= exactly; k++ {
		mean += (c.part(float64(k)-0.5) - end) / (1 - end) // costs are rounded to the nearest integer
	}
	from, to := float64(exactly), float64(c.Max)
	if exactly == c.Max {
		return mean
	}
	tail := random.Log(to/from) * float64(c.Min)
	if c.Shape != 1 {
		tail = (float64(to*c.part(to)) - float64(from*c.part(from))) / (1 - c.Shape)
	}
	return mean + (tail-float64(end*(to-from)))/(1-end)
}
