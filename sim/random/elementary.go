package random

import "math"

// ln2High + ln2Low is ln 2. ln2High ends with 21 zero bits, so that its product with an exponent is exact.
const (
	ln2High = 0x1.62e42feep-1
	ln2Low  = math.Ln2 - ln2High
)

// Log returns the natural logarithm of x within 1 ulp. x must be positive and finite.
func Log(x float64) float64 {
	// x = 2^k (1+f), with 1+f in [sqrt(1/2), sqrt(2)).
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	f, k := m-1, float64(e)
	// ln(1+f) = 2 artanh(s) with s = f/(2+f) = 2(s + s^3/3 + s^5/5 + ...); |s| < 0.172. Because 2s = f - sf,
	// the sum is f - f^2/2 + s(f^2/2 + r), where r has the terms from s^2 on. All terms except f are small,
	// and so are their rounding errors.
	s := f / (2 + f)
	z := float64(s * s)
	r := float64(z * horner(z, 2./21, 2./19, 2./17, 2./15, 2./13, 2./11, 2./9, 2./7, 2./5, 2./3))
	half := float64(float64(0.5*f) * f)
	low := float64(s*(half+r)) + float64(k*ln2Low)
	return float64(k*ln2High) - ((half - low) - f)
}

// Exp returns e^x, within about 1 ulp unless the result is subnormal. x must be a number.
func Exp(x float64) float64 {
	if x > 710 {
		return math.Inf(1)
	}
	if x < -746 {
		return 0
	}
	// x = k ln 2 + r, |r| < 0.347.
	k := math.Floor(float64(x*math.Log2E) + 0.5)
	high := x - float64(k*ln2High)
	low := float64(k * ln2Low)
	r := high - low
	// e^r = 1 + 2r/(q - r) = 1 + r + r(r - p)/(2 - (r - p)), with q = r coth(r/2) = 2 + p and, from
	// the numbers of Bernoulli, p = r^2/6 - r^4/360 + ...
	z := float64(r * r)
	p := float64(z * horner(z,
		1./37362124800, -691./653837184000, 1./23950080, -1./604800, 1./15120, -1./360, 1./6))
	c := r - p
	y := 1 - ((low - float64(r*c)/(2-c)) - high)
	return math.Ldexp(y, int(k))
}

// Pow returns x^y. x must be positive and finite. The relative error of Pow is below (2 + |y ln x|) 2^-52:
// about 1e-14 for results from e^-40 to e^40.
func Pow(x, y float64) float64 { return Exp(float64(y * Log(x))) }

// Sin returns the sine of an angle in turns, sin(2 pi turns), within 2 ulp even for many turns.
func Sin(turns float64) float64 {
	t := turns - math.Floor(turns) // exact, except for tiny negative angles
	quarter := math.Floor(float64(t*4) + 0.5)
	x := float64((t - float64(quarter*0.25)) * (2 * math.Pi)) // an angle within pi/4 of 0
	var y float64
	if int(quarter)&1 == 0 {
		y = sine(x)
	} else {
		y = cosine(x)
	}
	if int(quarter)&2 != 0 {
		return -y
	}
	return y
}

// sine and cosine compute the power series for |x| <= pi/4; the omitted terms are below 1e-17.
func sine(x float64) float64 {
	z := float64(x * x)
	p := horner(z, 1./355687428096000, -1./1307674368000, 1./6227020800, -1./39916800,
		1./362880, -1./5040, 1./120, -1./6)
	return x + float64(x*float64(z*p))
}

func cosine(x float64) float64 {
	z := float64(x * x)
	p := horner(z, 1./20922789888000, -1./87178291200, 1./479001600, -1./3628800,
		1./40320, -1./720, 1./24, -1./2)
	return 1 + float64(z*p)
}

// horner returns the value at z of the polynomial with these coefficients, the highest power first.
func horner(z float64, coefficients ...float64) (p float64) {
	for _, c := range coefficients {
		p = float64(z*p) + c
	}
	return p
}
