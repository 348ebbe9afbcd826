package scenario

import (
	"math"

	"github.com/yuzhi-go/yuzhi/sim/random"
)

// normal99 is the 99th percentile of the normal distribution with mean 0 and standard deviation 1.
const normal99 = 2.3263478740408408

// Draw draws one value. d must be valid; a constant takes nothing from r.
func (d Dist) Draw(r *random.Stream) float64 {
	switch d.Kind {
	case DistUniform:
		return d.P + float64((d.Q-d.P)*r.Float64())
	case DistNormal:
		return d.P + float64(d.Q*r.Normal())
	case DistExp:
		return float64(d.P * r.Exp())
	case DistLognormal:
		return float64(d.P * random.Exp(float64(d.sigma()*r.Normal())))
	case DistPareto:
		return float64(d.P * r.Pareto(d.Q))
	}
	return d.P
}

// sigma is the standard deviation of a lognormal variable's logarithm: P is its median, e^mu, and Q
// its 99th percentile, e^(mu + sigma z) with z that of the normal distribution.
func (d Dist) sigma() float64 { return random.Log(d.Q/d.P) / normal99 }

// Mean returns the expected value.
func (d Dist) Mean() float64 {
	switch d.Kind {
	case DistUniform:
		return (d.P + d.Q) / 2
	case DistLognormal:
		return float64(d.P * random.Exp(float64(d.sigma()*d.sigma())/2))
	case DistPareto:
		return float64(d.P * d.Q / (d.Q - 1))
	}
	return d.P
}

// Sample is one duration in nanoseconds, cut off at 0 and at durationMax, the longest run. So the
// mean of a normal distribution that reaches below 0 is above Mean.
func (d DurationDist) Sample(r *random.Stream) int64 {
	return whole(d.Draw(r), 0, int64(DurationMax))
}

// Draw is the error of one process's clock: offset in nanoseconds, drift in parts per million. What
// is drawn is cut off at the bounds of Validate.
func (c Clock) Draw(r *random.Stream) (offset, driftPPM int64) {
	offset = whole(c.Offset.around().Draw(r), -int64(offsetMax), int64(offsetMax))
	driftPPM = whole(c.Drift.around().Draw(r), 1-int64(driftMax), int64(driftMax)-1)
	return offset, driftPPM
}

// around returns what a distribution means for a clock: a constant is the bound of a uniform one.
// The uniform one takes a number even where the bound is 0, so that a change of the offset does not
// change the drift, which is drawn next.
func (d Dist) around() Dist {
	if d.Kind == DistConstant {
		return Dist{Kind: DistUniform, P: -d.P, Q: d.P}
	}
	return d
}

// whole is the integer next to x in [low, high].
func whole(x float64, low, high int64) int64 {
	return int64(math.Round(min(max(x, float64(low)), float64(high))))
}
