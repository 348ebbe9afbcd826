package view

import (
	"math"
	"strconv"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"

	"github.com/yuzhi-go/yuzhi/sim"
)

// Number is x as a person reads it: at most five significant digits but never fewer than its whole
// part, thousands grouped by commas, no zeros at the end. What is below 0.0001 is in scientific
// notation; NaN is "–".
func Number(x float64) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case x != 0 && math.Abs(x) < 1e-4:
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	return decimal(x, 0, max(0, 4-exponent(x)))
}

// decimal is x with a number of decimals between least and most.
func decimal(x float64, least, most int) string {
	format := number.Decimal(x, number.MinFractionDigits(least), number.MaxFractionDigits(most))
	return message.NewPrinter(language.English).Sprint(format)
}

// exponent is the power of ten of x's first digit; 0 for 0 and what is not finite.
func exponent(x float64) int {
	if x == 0 || !finite(x) {
		return 0
	}
	return int(math.Floor(math.Log10(math.Abs(x))))
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Percent is a part of one, in percent: 0.9983 is "99.83 %".
func Percent(x float64) string { return Number(100*x) + " %" }

// Interval is the mean and the half width of a figure's confidence interval, the half width with
// two significant digits and the mean with as many decimals. Without a width it is Number of the
// mean.
func Interval(f sim.Figure) string { return interval(f, 1) }

func interval(f sim.Figure, scale float64) string {
	mean, half := scale*f.Mean, scale*max(f.High-f.Mean, f.Mean-f.Low)
	const rounding = 1e-12 // a smaller part of the mean is what the sum of the replications was rounded by
	if !(half > rounding*math.Abs(mean)) || math.IsInf(half, 0) {
		return Number(mean)
	}
	decimals := 1 - exponent(half)
	if decimals > 8 {
		return Number(mean) + " ± " + Number(half)
	}
	decimals = max(0, decimals)
	return decimal(mean, decimals, decimals) + " ± " + decimal(half, decimals, decimals)
}

// Raw is x in the fewest digits that give x again, without an exponent, for programs.
func Raw(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
