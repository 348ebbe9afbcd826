package trace

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"
)

// Columns maps the fields of a request to column names. The zero Columns expects the names in the package's
// documentation, and refuses a CSV file with other names.
type Columns struct {
	named map[string]string // column name by field
	unit  int64             // number of nanoseconds in a unit of time; 0 for a timestamp
}

// timeColumns has the nanoseconds per unit of each time column.
var timeColumns = map[string]int64{"time_s": 1e9, "time_ms": 1e6, "time_us": 1e3, "time_ns": 1, "time": 0}

const columnNames = "time_s (or time_ms, time_us, time_ns; or time, a timestamp), process, key and tokens"

// ParseColumns parses "time_ms=ts,key=user.id": the field on the left of each pair is in the column on the
// right. A field without a pair is in the column with the field's own name, if the file has such a column.
// Other columns are ignored.
func ParseColumns(text string) (Columns, error) {
	c := Columns{}
	if text == "" {
		return c, nil
	}
	c.named = map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		what, name, ok := strings.Cut(strings.TrimSpace(part), "=")
		unit, isTime := timeColumns[what]
		if isTime {
			what = "time"
		}
		_, again := c.named[what]
		switch {
		case !ok || name == "":
			return Columns{}, fmt.Errorf("%w: columns %q must be like time_ms=ts,key=user", ErrInvalid, text)
		case !isTime && what != "process" && what != "key" && what != "tokens":
			return Columns{}, fmt.Errorf("%w: columns %q: unknown %q; there are %s",
				ErrInvalid, text, what, columnNames)
		case again:
			return Columns{}, fmt.Errorf("%w: columns %q: %s is mapped twice", ErrInvalid, text, what)
		case isTime:
			c.unit = unit
		}
		c.named[what] = name
	}
	return c, nil
}

// timeOf parses a text as a time.
func (c *Columns) timeOf(text string) (time.Duration, error) {
	if c.unit > 0 {
		return nanoseconds(text, c.unit)
	}
	const n = len(time.DateOnly)
	if len(text) > n && text[n] == ' ' { // databases write a space instead of T, and sometimes UTC at the end
		text = text[:n] + "T" + strings.ReplaceAll(strings.TrimSuffix(text[n:], " UTC"), " ", "")
	}
	for _, layout := range layouts {
		if at, err := time.Parse(layout, text); err == nil {
			if at.Year() < 1971 || at.Year() > 2200 {
				return 0, errors.New("must be between 1971 and 2200")
			}
			return time.Duration(at.UnixNano()), nil
		}
	}
	return 0, errors.New("is not a timestamp like 2026-11-23T09:16:00Z or 23/Nov/2026:09:16:00 +0000; " +
		"a number needs its unit, as in time_s")
}

// layouts lists formats of timestamps, that of access logs last. All formats may have fractions.
var layouts = []string{
	time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07", "2006-01-02T15:04:05",
	"02/Jan/2006:15:04:05 -0700",
}

// decimal matches a number whose exponent has at most three digits, which bounds the digits of its value.
var decimal = regexp.MustCompile(`^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?$`)

// nanoseconds parses a decimal number of a unit. A double is not precise enough: 1700000000.123456789 has
// more digits than a double.
func nanoseconds(s string, unit int64) (time.Duration, error) {
	if !decimal.MatchString(s) {
		return 0, errors.New("is not a decimal number")
	}
	x, _ := new(big.Rat).SetString(s)
	if x.Sign() < 0 {
		return 0, errors.New("is negative")
	}
	x.Mul(x, big.NewRat(unit, 1))
	ns := new(big.Int).Quo(x.Num(), x.Denom())
	if !ns.IsInt64() {
		return 0, errors.New("is too large: a time is at most 292 years; is its unit right?")
	}
	return time.Duration(ns.Int64()), nil
}
