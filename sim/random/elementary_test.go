package random

import (
	"math"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// ulps is how far x is from want, in units of want's last place.
func ulps(x, want float64) float64 {
	if x == want || math.IsNaN(x) && math.IsNaN(want) {
		return 0
	}
	return math.Abs(x-want) / (math.Nextafter(math.Abs(want), math.Inf(1)) - math.Abs(want))
}

// Package math is itself within 1 ulp, so a result within 1 ulp of the truth is within 2 ulp of it.
func TestElementaryFunctionsAgreeWithMath(t *testing.T) {
	r := New(6)
	const n = 300_000
	near := func(name string, f, want func(float64) float64, draw func() float64, most float64) {
		t.Helper()
		worst, at := 0.0, 0.0
		for range n {
			x := draw()
			if d := ulps(f(x), want(x)); !(d <= worst) {
				worst, at = d, x
			}
		}
		t.Logf("%s: at most %.2f ulp from math", name, worst)
		if !(worst <= most) {
			t.Errorf("%s(%v) is %v, math has %v: %g ulp", name, at, f(at), want(at), worst)
		}
	}
	const tiniest, beyond = 0x0010_0000_0000_0000, 0x7ff0_0000_0000_0000
	normal := func() float64 { return math.Float64frombits(tiniest + r.Uint64()%(beyond-tiniest)) }
	near("Log", Log, math.Log, normal, 2)
	near("Log near 1", Log, math.Log, func() float64 { return 0.5 + r.Float64() }, 2)
	near("Log at 1", Log, math.Log, func() float64 { return 1 + 1e-9*(r.Float64()-0.5) }, 2)
	near("Exp", Exp, math.Exp, func() float64 { return -708 + 1417*r.Float64() }, 2)
	near("Exp near 0", Exp, math.Exp, func() float64 { return r.Float64() - 0.5 }, 2)
	near("Exp at 0", Exp, math.Exp, func() float64 { return 1e-9 * (r.Float64() - 0.5) }, 2)
}

func TestPowAgreesWithMath(t *testing.T) {
	r := New(7)
	for range 300_000 {
		x, y := Exp(20*(r.Float64()-0.5)), 8*(r.Float64()-0.5)
		got, want := Pow(x, y), math.Pow(x, y)
		most := float64((2+math.Abs(y*math.Log(x)))*0x1p-52) + 0x1p-52
		if d := math.Abs(got/want - 1); !(d <= most) {
			t.Fatalf("Pow(%v, %v) is %v, math has %v: off by %g of it, want %g", x, y, got, want, d, most)
		}
	}
}

func TestSinAgreesWithMath(t *testing.T) {
	r := New(8)
	worst := 0.0
	for range 300_000 {
		x := 2*r.Float64() - 1
		worst = max(worst, math.Abs(Sin(x)-math.Sin(2*math.Pi*x)))
		if a, b := Sin(x+1024), Sin(x); math.Abs(a-b) > 1e-12 { // what x loses where it is added
			t.Fatalf("Sin(%v) is %v; 1024 turns on it is %v", x, b, a)
		}
	}
	// The argument that math gets is rounded to 2^-52 of a turn, which is most of this.
	if t.Logf("at most %.2g from math", worst); worst > 2e-15 {
		t.Errorf("Sin is %g off", worst)
	}
}

func TestElementaryFunctionsAtTheirEdges(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"Log(1)", Log(1), 0},
		// math's assembly for amd64 is wrong for subnormal numbers (Go 1.26 has -709.09 here).
		{"Log(2^-1074)", Log(0x1p-1074), -1074 * math.Ln2},
		{"Exp(0)", Exp(0), 1},
		{"Exp(-Inf)", Exp(-inf), 0},
		{"Exp(-800)", Exp(-800), 0},
		{"Exp(-740)", Exp(-740), math.Exp(-740)}, // subnormal
		{"Exp(709.9)", Exp(709.9), inf},
		{"Exp(Inf)", Exp(inf), inf},
		{"Pow(1, 1e300)", Pow(1, 1e300), 1},
		{"Pow(7, 0)", Pow(7, 0), 1},
		{"Pow(7, -0)", Pow(7, math.Copysign(0, -1)), 1},
		{"Sin(0)", Sin(0), 0},
		{"Sin(1/4)", Sin(0.25), 1},
		{"Sin(1/2)", Sin(0.5), 0},
		{"Sin(3/4)", Sin(0.75), -1},
		{"Sin(1)", Sin(1), 0},
		{"Sin(-1/4)", Sin(-0.25), -1},
		{"Sin(2^60)", Sin(1 << 60), 0},
		{"Sin(-1e-300)", Sin(-1e-300), 0},
	} {
		testkit.Check(t, ulps(c.got, c.want) == 0, "%s is %v, want %v", c.name, c.got, c.want)
	}
}
