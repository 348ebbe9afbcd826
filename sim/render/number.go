package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
)

// digitsMax is how many significant digits a number without an interval has.
const digitsMax = 5

// Number is x as a person reads it: at most five significant digits but never fewer than its whole part, thousands
// grouped by commas, no zeros at the end. What is below 0.0001 is in scientific notation; NaN is "–".
func Number(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	if math.IsInf(x, 0) {
		return strings.Replace(strconv.FormatFloat(x, 'g', -1, 64), "Inf", "∞", 1)
	}
	if x == 0 {
		return "0"
	}
	if math.Abs(x) < 1e-4 {
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	s := strconv.FormatFloat(x, 'f', max(0, digitsMax-1-exponent(x, digitsMax)), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return group(s)
}

// Percent is a part of one, in percent: 0.9983 is "99.83 %".
func Percent(x float64) string { return Number(100*x) + " %" }

// Interval is the mean and the half width of a figure's confidence interval, the half width with two significant
// digits and the mean with as many decimals. Without a width it is Number of the mean.
func Interval(f sim.Figure) string { return interval(f.Mean, f.Low, f.High) }

// PercentInterval is Interval of a part of one, in percent.
func PercentInterval(f sim.Figure) string {
	return interval(100*f.Mean, 100*f.Low, 100*f.High) + " %"
}

// tiny is which part of the mean a half width has at least that is not an error of rounding.
const tiny = 1e-12

func interval(mean, low, high float64) string {
	half := max(high-mean, mean-low)
	if !(half > tiny*math.Abs(mean)) || math.IsInf(half, 0) {
		return Number(mean) // a smaller one is what the sum of the replications was rounded by
	}
	decimals := 1 - exponent(half, 2)
	if decimals > 8 {
		return fmt.Sprintf("%s ± %s", Number(mean), Number(half))
	}
	decimals = max(0, decimals)
	return group(strconv.FormatFloat(mean, 'f', decimals, 64)) + " ± " + group(strconv.FormatFloat(half, 'f', decimals, 64))
}

// exponent is the power of ten of x's first digit, once x is rounded to that many digits.
func exponent(x float64, digits int) int {
	s := strconv.FormatFloat(x, 'e', digits-1, 64)
	e, err := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:])
	if err != nil {
		panic(fmt.Sprintf("render: %q has no exponent: %v", s, err)) // FormatFloat writes one
	}
	return e
}

// group sets commas between thousands from 10,000 on.
func group(s string) string {
	digits, fraction, _ := strings.Cut(s, ".")
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	if len(digits) < 5 {
		return s
	}
	var b strings.Builder
	for i, r := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	if fraction != "" {
		return sign + b.String() + "." + fraction
	}
	return sign + b.String()
}
