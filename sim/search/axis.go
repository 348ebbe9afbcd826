package search

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/random"
)

// ErrAxis is wrapped by every error about an axis's text or values.
var ErrAxis = errors.New("search: invalid axis")

// pointsMax is the most points in a grid, and the most values in a range.
const pointsMax = 10_000

// Axis is one parameter that varies: the path of its field, as in --set, and its values as texts.
type Axis struct {
	Path   string   `json:"path"`
	Values []string `json:"values"`
}

var (
	parentheses = regexp.MustCompile(`\([^()]*\)`)
	rangeSyntax = regexp.MustCompile(`^(.*?)\.\.(.*):(lin|log):(\d+)$`)
	// numberSyntax matches a number with or without a unit; time.ParseDuration parses the unit of a duration.
	numberSyntax = regexp.MustCompile(`^([-+0-9.]+)([^-+0-9.(), ][^(), ]*)?$`)
)

// ParseAxis parses "path=value,value,...". Each value is a text that the field accepts, or a range. Commas
// inside parentheses belong to a value ("normal(0s,10ms)"). The range "10ms..1s:log:8" has 8 values from 10ms
// to 1s with equal factors between them, and "1..9:lin:5" has 5 values with equal differences. Both ends of a
// range are durations, or numbers with the same unit. Values between the ends are rounded to the first two
// digits of the step, and to whole numbers if both ends are whole and have no unit. Equal values count once.
func ParseAxis(text string) (Axis, error) {
	wrong := wrongText(ErrAxis, text)
	path, list, ok := strings.Cut(text, "=")
	if !ok || path == "" || strings.TrimSpace(path) != path {
		return Axis{}, wrong("must be PATH=VALUES, as in policy.target=10ms..1s:log:8")
	}
	a := Axis{Path: path}
	// A comma inside parentheses is part of a value.
	const inner = "\x00"
	hide := func(s string) string { return strings.ReplaceAll(s, ",", inner) }
	list = parentheses.ReplaceAllStringFunc(list, hide)
	for part := range strings.SplitSeq(list, ",") {
		part = strings.ReplaceAll(strings.TrimSpace(part), inner, ",")
		values, err := []string{part}, error(nil)
		switch {
		case part == "":
			return Axis{}, wrong("a value is missing")
		case strings.Contains(part, ".."):
			values, err = rangeValues(part)
		case slices.Contains(a.Values, part):
			return Axis{}, wrong("%s occurs twice", part)
		}
		if err != nil {
			return Axis{}, wrong("%v", err)
		}
		for _, v := range values {
			if !slices.Contains(a.Values, v) {
				a.Values = append(a.Values, v)
			}
		}
	}
	return a, nil
}

// rangeValues returns the values of a range. The first and the last value keep the texts of the range's ends.
func rangeValues(text string) ([]string, error) {
	match := rangeSyntax.FindStringSubmatch(text)
	if match == nil {
		return nil, fmt.Errorf("the range %s must end in :log:8 (equal factors) or :lin:8 (equal steps)", text)
	}
	low, lowUnit, lowErr := parseNumber(match[1])
	high, highUnit, highErr := parseNumber(match[2])
	n, countErr := strconv.Atoi(match[4])
	isLog := match[3] == "log"
	if low == 0 && highUnit == "ns" {
		lowUnit = "ns" // a duration of 0 needs no unit
	}
	switch {
	case lowErr != nil || highErr != nil:
		return nil, fmt.Errorf("the ends of %s must be numbers or durations", text)
	case lowUnit != highUnit:
		return nil, fmt.Errorf("the ends of %s have different units", text)
	case high <= low:
		return nil, fmt.Errorf("%s is not above %s", match[2], match[1])
	case isLog && low <= 0:
		return nil, fmt.Errorf("%s must be above 0 for equal factors", match[1])
	case countErr != nil || n < 2 || n > pointsMax:
		return nil, fmt.Errorf("the number of values is %s, must be 2 to %d", match[4], pointsMax)
	}
	whole := lowUnit == "" && !strings.Contains(match[1]+match[2], ".")
	texts, before := []string{match[1]}, low
	for i := 1; i < n-1; i++ {
		part := float64(i) / float64(n-1)
		x := low + float64((high-low)*part)
		if isLog {
			x = float64(low * random.Pow(high/low, part))
		}
		texts = append(texts, roundedText(x, x-before, lowUnit, whole))
		before = x
	}
	return slices.Compact(append(texts, match[2])), nil
}

// roundedText rounds x to the first two digits of step, the distance from the previous value to x.
func roundedText(x, step float64, unit string, whole bool) string {
	decimals := 1 - int(math.Floor(math.Log10(step)))
	if unit == "ns" {
		return time.Duration(x).Round(time.Duration(math.Pow10(max(-decimals, 0)))).String()
	}
	if decimals <= 0 || whole {
		return strconv.FormatFloat(math.Round(x), 'f', -1, 64) + unit
	}
	text := strconv.FormatFloat(x, 'f', decimals, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + unit
}

// parseNumber splits a number from its unit, and converts a duration to nanoseconds.
func parseNumber(text string) (x float64, unit string, err error) {
	match := numberSyntax.FindStringSubmatch(text)
	if match == nil {
		return 0, "", strconv.ErrSyntax
	}
	if d, err := time.ParseDuration(text); err == nil && match[2] != "" {
		return float64(d), "ns", nil
	}
	x, err = strconv.ParseFloat(match[1], 64)
	return x, match[2], err
}
