package view

import (
	"math"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim"
)

func TestNumbersHaveTheDigitsThatAPersonReads(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 1: "1", -1: "-1", 12: "12", 0.5: "0.5", 1234: "1,234", 9999: "9,999", 10000: "10,000", 1234567: "1,234,567", -12345: "-12,345",
		1234567890123: "1,234,567,890,123", 99999.6: "100,000", 12345.678: "12,346", 1234.5678: "1,234.6", 0.12345678: "0.12346",
		0.001: "0.001", 0.00012345678: "0.00012346", 0.00001234: "1.23e-05", 9.999999: "10", 100: "100", 1e15: "1,000,000,000,000,000",
		math.Inf(1): "∞", math.Inf(-1): "-∞",
	} {
		if got := Number(x); got != want {
			t.Errorf("Number(%v) is %q, want %q", x, got, want)
		}
	}
	if got := Number(math.NaN()); got != "–" {
		t.Errorf("Number(NaN) is %q", got)
	}
}

func TestPercentagesAreNotSpoiltByBinaryFractions(t *testing.T) {
	for x, want := range map[float64]string{0: "0 %", 0.07: "7 %", 0.29: "29 %", 1: "100 %", 0.9983: "99.83 %", 0.00005: "0.005 %", 1.1: "110 %"} {
		if got := Percent(x); got != want {
			t.Errorf("Percent(%v) is %q, want %q", x, got, want)
		}
	}
}

func TestAnIntervalHasTwoDigitsOfItsHalfWidth(t *testing.T) {
	for _, c := range []struct {
		mean, half float64
		want       string
	}{
		{1234.5678, 12.345, "1,235 ± 12"},
		{1234.5678, 1.2345, "1,234.6 ± 1.2"},
		{29951.3, 1240, "29,951 ± 1,240"},
		{1234567, 12345, "1,234,567 ± 12,345"},
		{0.99983, 0.000211, "0.99983 ± 0.00021"},
		{0, 0.5, "0.00 ± 0.50"},
		{-2, 0.5, "-2.00 ± 0.50"},
		{5, 0, "5"},
		{5, 9.96, "5.0 ± 10.0"},
		{5, 1e-11, "5 ± 1e-11"},
		{5, 1e-12, "5"},
		{5, math.Inf(1), "5"},
		{math.NaN(), math.NaN(), "–"},
	} {
		if got := Interval(sim.Figure{Mean: c.mean, Low: c.mean - c.half, High: c.mean + c.half}); got != c.want {
			t.Errorf("%v ± %v is %q, want %q", c.mean, c.half, got, c.want)
		}
	}
	if got := Figure("redis_cpu", fig(0.998296, 0.00021, 0, 0)); got != "99.830 ± 0.021 %" {
		t.Errorf("got %q", got)
	}
}

func TestEveryFigureHasAUnitAndAMeaning(t *testing.T) {
	all := append((&sim.Figures{}).All(), (&sim.RivalReport{}).All()...)
	for _, f := range all {
		if About(f.Name) == "" {
			t.Errorf("nothing is said about %s", f.Name)
		}
	}
	for key, want := range map[string]string{"admitted": "0.5", "jain": "0.5", "false_reject_ratio": "50 %", "wait_ms_p99": "0.5 ms"} {
		if got := Value(key, 0.5); got != want {
			t.Errorf("Value(%s) is %q, want %q", key, got, want)
		}
	}
}

func TestRawNumbersGiveTheSameNumberAgain(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 1234567: "1234567", 0.1: "0.1", 1e-6: "0.000001", 1e-7: "0.0000001", -2.5: "-2.5", 1e20: "100000000000000000000"} {
		if got := Raw(x); got != want {
			t.Errorf("Raw(%v) is %q, want %q", x, got, want)
		}
	}
}
