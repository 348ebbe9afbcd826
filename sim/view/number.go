package view

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"

	"github.com/yuzhi-go/yuzhi/sim"
)

// Number formats x for users: with at most five significant digits but all digits of its whole part, commas
// between thousands, and no trailing zeros. Numbers below 0.0001 are in scientific notation. NaN is "–".
func Number[N ~int | ~int64 | ~float64](n N) string {
	x := float64(n)
	switch {
	case math.IsNaN(x):
		return "–"
	case x != 0 && math.Abs(x) < 1e-4:
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	return decimal(x, 0, max(0, 4-exponent(x)))
}

func decimal(x float64, least, most int) string {
	format := number.Decimal(x, number.MinFractionDigits(least), number.MaxFractionDigits(most))
	return message.NewPrinter(language.English).Sprint(format)
}

// exponent returns the power of ten of x's first digit, or 0 if there is none.
func exponent(x float64) int {
	if x == 0 || !finite(x) {
		return 0
	}
	return int(math.Floor(math.Log10(math.Abs(x))))
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Count formats a number of things; thing is the singular: "1 replication", "3 processes".
func Count[N int | int64 | float64](n N, thing string) string {
	return things(Number(n), thing)
}

// things returns a formatted number with the singular or plural of thing. "1" takes the singular.
func things(number, thing string) string {
	plural := thing + either(strings.HasSuffix(thing, "s"), "es", "s")
	return number + " " + either(number == "1", thing, plural)
}

// Percent formats a ratio in percent: 0.9983 is "99.83 %".
func Percent(x float64) string { return Number(100*x) + inPercent }

// interval formats the mean and the half width of a figure's confidence interval, to two digits of the half
// width. For a figure with a range, interval shows both ends instead: "3 (0..7)".
func interval(f sim.Figure, scale float64) string {
	mean, low, high := scale*f.Mean, scale*f.Low, scale*f.High
	half := max(high-mean, mean-low)
	if f.Range && low < high {
		// Nearly equal ends would need many digits, so at most four digits of the mean are shown.
		_, round := known(max(half, math.Pow10(exponent(mean)-3)))
		return round(mean) + " (" + round(low) + ".." + round(high) + ")"
	}
	const rounding = 1e-12 // a smaller fraction of the mean is a rounding error of the sum
	if !(half > rounding*math.Abs(mean)) || math.IsInf(half, 0) {
		return Number(mean)
	}
	decimals, round := known(half)
	if decimals > 8 {
		return Number(mean) + " ± " + Number(half)
	}
	return round(mean) + " ± " + round(half)
}

// known returns the decimals that show two digits of half, and a function that rounds to them.
func known(half float64) (decimals int, round func(float64) string) {
	decimals = 1 - exponent(half)
	return decimals, func(x float64) string {
		if decimals >= 0 {
			return decimal(x, decimals, decimals)
		}
		unit := math.Pow10(-decimals)
		return decimal(math.Round(x/unit)*unit, 0, 0)
	}
}

// Mean formats a figure's mean with its unit, with the number of digits that Figure shows.
func Mean(key string, f sim.Figure) string { return spread.ReplaceAllString(Figure(key, f), "") }

// Shortly formats d with about three significant digits.
func Shortly(d time.Duration) string {
	for unit := time.Nanosecond; unit < time.Minute; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}

// Figures have these units, or are numbers of tokens, numbers per second, or indices without a unit.
const (
	inPercent = " %" // unit of a ratio
	inMillis  = " ms"
)

// about maps the JSON key of a figure to its unit, a short column name, and a description.
var about = map[string]struct{ unit, column, text string }{
	"offered":             {"", "", "tokens requested"},
	"admitted":            {"", "", "tokens admitted"},
	"admitted_ratio":      {inPercent, "", "admitted, as a part of offered"},
	"central_admitted":    {"", "", "tokens that one central bucket would have admitted"},
	"admitted_vs_central": {inPercent, "of central", "admissions in the steady state" + ofCentral},
	"bound_exceeded_by":   {"", "excess", "tokens above the bound in the worst window of all replications"},
	"false_reject_ratio":  {inPercent, "rejects", "wrong rejects in the steady state" + ofCentral},
	"start_stock":         {"", "", "tokens rejected wrongly once, while the fleet starts or grows"},
	"fault_stock":         {"", "per fault", "tokens rejected wrongly per fault, beyond the ratio"},
	"swapped_ratio":       {inPercent, "", "admissions in place of other requests" + ofCentral},
	"calls_per_s":         {"", "calls/s", "lease calls per second of the whole fleet"},
	"round_trips_per_s":   {"", "trips/s", "round trips to Redis per second"},
	"redis_cpu":           {inPercent, "Redis busy", "share of one core that the busiest shard uses"},
	"jain":                {"", "Jain", "Jain's index: 1 if all processes get their fair shares"},
	"worst_share":         {inPercent, "worst share", "lowest part of its fair share that a process gets"},
	"stranded":            {"", "", "unspent tokens in leases, mean over time"},
	"burnt":               {"", "", "leased tokens that were lost, as in a crash"},
	"degraded":            {"", "", "tokens admitted without a lease, by the fallback or at a cold start"},
	"shadowed":            {"", "", "tokens that the limit denied and shadow mode admitted"},
	"charged":             {"", "", "tokens used beyond the reservations"},
	"refunded":            {"", "", "tokens reserved and given back"},
	"wait_ms_p50":         {inMillis, "", "from request to answer, half of the admitted requests"},
	"wait_ms_p99":         {inMillis, "wait p99", "from request to answer, 99 % of the admitted requests"},
	"wait_ms_max":         {inMillis, "", "from request to answer, all admitted requests"},
	"denied_wait_ms_p99":  {inMillis, "", "from request to denial, 99 % of the denied requests"},
}

const ofCentral = ", as a share of the admissions of one central bucket"

func column(key string) string { return cmp.Or(about[key].column, key) }

func glossary(keys ...string) string {
	lines := make([]string, len(keys))
	for i, key := range keys {
		name := column(key)
		lines[i] = strings.ToUpper(name[:1]) + name[1:] + either(name == key, "", " ("+key+")") + ": " +
			About(key) + "."
	}
	return strings.Join(lines, " ")
}

// Bases explains the base of each figure that is a ratio.
const Bases = "A reject is wrong if one central bucket would have admitted the request. Fair shares are " +
	"max-min shares of the admissions of the algorithm itself, for the most popular key."

// About describes the figure with that JSON key in a few words, or returns "" for an unknown key.
func About(key string) string { return about[key].text }

// Value formats a value of the figure with that JSON key, with its unit.
func Value(key string, x float64) string { return Figure(key, sim.Figure{Mean: x, Low: x, High: x}) }

// Figure formats the figure with that JSON key as its mean and the half width of its interval, with its unit.
func Figure(key string, f sim.Figure) string {
	return interval(f, scaleOf(key)) + about[key].unit
}

func scaleOf(key string) float64 { return either(about[key].unit == inPercent, 100.0, 1) }

const noBreak = "\u00a0"

func together(text string) string { return strings.ReplaceAll(text, " ", noBreak) }

// printable replaces characters that HTML and XML forbid.
func printable(r rune) rune {
	if r == '\n' || r == '\t' || r >= ' ' && r < 0x7f || r >= 0xa0 && r != 0xfffe && r != 0xffff {
		return r
	}
	return utf8.RuneError
}

func either[T any](is bool, yes, no T) T {
	if is {
		return yes
	}
	return no
}

const unnamed = "unnamed scenario"

// Own is the name of the leases in comparisons with rivals.
const Own = "yuzhi"

// limits reports whether one central bucket denied any request. Without denials, a run has no rejects.
func limits(f *sim.Figures) bool { return f.CentralAdmitted.Mean < f.Offered.Mean*(1-1e-6) }
