// Package student has the quantiles of Student's t distribution, for confidence intervals of few replications. They are
// computed with + - * / and square roots alone, every product rounded, so that they are the same to the last bit on
// every machine; gonum's, which use math.Exp and math.Log, are not.
package student

import "math"

// Quantile is the t that a t-distributed quantity with the given degrees of freedom stays within, on both sides
// of zero, with probability confidence. Confidence 0 gives 0; 1 and more, or less than one degree of freedom, give
// infinity.
func Quantile(confidence float64, freedom int) float64 {
	if freedom < 1 || confidence >= 1 {
		return math.Inf(1)
	}
	if confidence <= 0 {
		return 0
	}
	high := 1.0
	for within(high, freedom) < confidence && high < 1e300 {
		high *= 2
	}
	low := 0.0
	for {
		mid := low + float64((high-low)/2)
		if mid <= low || mid >= high {
			return mid
		}
		if within(mid, freedom) < confidence {
			low = mid
		} else {
			high = mid
		}
	}
}

// within is the probability of [-t, t]: the finite series of Abramowitz and Stegun 26.7.3 and 26.7.4.
func within(t float64, freedom int) float64 {
	n := float64(freedom)
	sin := 1 / math.Sqrt(1+n/float64(t*t))
	cos := math.Sqrt(n) / math.Sqrt(n+float64(t*t))
	square := float64(cos * cos)
	term, sum := 1.0, 0.0
	first := 1 // of the even case; the odd one starts a step later
	if freedom%2 == 1 {
		term, first = cos, 2
	}
	for k := first; k <= freedom-1; k += 2 {
		sum += term
		term = float64(float64(term*square) * (float64(k) / float64(k+1)))
	}
	if freedom%2 == 0 {
		return float64(sin * sum)
	}
	angle := arctan(t / math.Sqrt(n))
	return (angle + float64(sin*sum)) / (math.Pi / 2)
}

// arctan halves the angle until the series converges fast: arctan x = 2 arctan(x / (1 + sqrt(1+x*x))).
func arctan(x float64) float64 {
	scale := 1.0
	for x > 0.1 {
		x /= 1 + math.Sqrt(1+float64(x*x))
		scale *= 2
	}
	square := float64(x * x)
	sum, power := 0.0, x
	for k := 1; k < 40; k += 2 {
		sum += power / float64(k)
		power = -float64(power * square)
	}
	return float64(scale * sum)
}
