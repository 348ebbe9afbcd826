package view

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/report"
)

func TestNumbersAreWrittenForTheirReaders(t *testing.T) {
	for _, c := range []struct {
		what  string
		write func(float64) string
		want  map[float64]string
	}{
		{"Number", Number[float64], map[float64]string{
			0: "0", 1: "1", -1: "-1", 12: "12", 0.5: "0.5", 1234: "1,234", 9999: "9,999", 10000: "10,000",
			1234567: "1,234,567",
			-12345:  "-12,345", 1234567890123: "1,234,567,890,123", 99999.6: "100,000", 12345.678: "12,346",
			1234.5678:  "1,234.6",
			0.12345678: "0.12346", 0.001: "0.001", 0.00012345678: "0.00012346", 0.00001234: "1.23e-05", 9.999999: "10",
			100: "100", 1e15: "1,000,000,000,000,000", inf: "∞", math.Inf(-1): "-∞",
		}},
		// Not spoilt by binary fractions.
		{"Percent", Percent, map[float64]string{
			0: "0 %", 0.07: "7 %", 0.29: "29 %", 1: "100 %", 0.9983: "99.83 %", 0.00005: "0.005 %", 1.1: "110 %",
		}},
	} {
		for x, want := range c.want {
			testkit.Check(t, c.write(x) == want, "%s(%v) is %q, want %q", c.what, x, c.write(x), want)
		}
	}
	testkit.Check(t, Number(nan) == "–", "Number(NaN) is %q", Number(nan))
}

func TestAnIntervalHasTwoDigitsOfItsHalfWidth(t *testing.T) {
	for _, c := range []struct {
		mean, half float64
		want       string
	}{
		{1234.5678, 12.345, "1,235 ± 12"}, {1234.5678, 1.2345, "1,234.6 ± 1.2"}, {29951.3, 1240, "30,000 ± 1,200"},
		{1234567, 12345, "1,235,000 ± 12,000"}, {0.99983, 0.000211, "0.99983 ± 0.00021"}, {0, 0.5, "0.00 ± 0.50"},
		{-2, 0.5, "-2.00 ± 0.50"}, {5, 0, "5"}, {5, 9.96, "5.0 ± 10.0"}, {5, 1e-11, "5 ± 1e-11"}, {5, 1e-12, "5"},
		{5, inf, "5"}, {nan, nan, "–"},
	} {
		got := interval(fig(c.mean, c.half, 0, 0), 1)
		testkit.Check(t, got == c.want, "%v ± %v is %q, want %q", c.mean, c.half, got, c.want)
	}
	got := Figure("redis_cpu", fig(0.998296, 0.00021, 0, 0))
	testkit.Check(t, got == "99.830 ± 0.021 %", "got %q", got)
}

func TestEveryFigureHasAUnitAndAMeaning(t *testing.T) {
	for _, f := range append((&sim.Figures{}).All(), (&sim.RivalReport{}).All()...) {
		testkit.Check(t, About(f.Name) != "", "nothing is said about %s", f.Name)
	}
	for key, want := range map[string]string{"admitted": "0.5", "jain": "0.5", "false_reject_ratio": "50 %",
		"wait_ms_p99": "0.5 ms"} {
		testkit.Check(t, Value(key, 0.5) == want, "Value(%s) is %q, want %q", key, Value(key, 0.5), want)
	}
}

func TestAThingIsCounted(t *testing.T) {
	got := strings.Join([]string{Count(1, "process"), Count(3, "process"), Count(0, "point"),
		Count(1.0, "token"),
		Count(int64(2000), "round trip"), things("1.0", "token"), things("1 ± 2", "lease call")}, ", ")
	testkit.Check(t, got == "1 process, 3 processes, 0 points, 1 token, 2,000 round trips, 1.0 tokens, 1 ± 2 "+
		"lease calls", "%s", got)
}

func TestPartsAreShownInPercentAsTheyAreAskedFor(t *testing.T) {
	for key, f := range about {
		testkit.Check(t, (f.unit == inPercent) == report.IsPart(key), "%s has the unit %q", key, f.unit)
	}
}

// On a page a number stays whole, but for its interval.
func TestANumberOnAPageIsNotDivided(t *testing.T) {
	for text, want := range map[string]string{
		"0.5 %": "0.5_%", "1,234 ± 12": "1,234 <small>±_12</small>",
		"3 (0..7) %": "3_% <small>(0..7)</small>",
		"(+1 ± 2)":   "(+1 <small>±_2)</small>", "(-1 (-3..0) %)": "(-1_%) <small>(-3..0)</small>",
		"<b>": "&lt;b&gt;", "(-3)": "(-3)",
	} {
		got := strings.ReplaceAll(string(numeric(text)), noBreak, "_")
		testkit.Check(t, got == want, "%s is %s, want %s", text, got, want)
	}
}

func TestADurationHasThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 70: "70ns", 1234: "1.23µs", 123_456_789: "123ms", 1_234_567_890: "1.23s", 12_345_678_901: "12.3s",
		90*time.Second + 1: "1m30s", 30 * 24 * time.Hour: "720h0m0s",
	} {
		testkit.Check(t, Shortly(d) == want, "%d ns is shown as %s, want %s", d, Shortly(d), want)
	}
}
