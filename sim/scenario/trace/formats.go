package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
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

// client matches the client's address, or a list of addresses (X-Forwarded-For) whose first is the client's.
// rest matches the fields after the two names in an access log. Some servers add fields at the end.
const (
	client = `(?P<host>[^\s,]+)(?:, ?[^\s,]+)*`
	rest   = ` (?P<user>[^[]+) \[(?P<time>[^]]+)\] ` +
		`"(?P<request>(?P<method>[^ "\\]*)(?: (?P<path>[^ ?"\\]*))?(?:[^"\\]|\\.)*)" (?P<status>\S+) (?P<bytes>\S+)` +
		`(?: "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)")?`
)

// logForms has the lines of access logs: the common and the combined format, with or without a virtual host
// before the line. The names of the groups are the field names. The first form that matches a line counts.
var logForms = []*regexp.Regexp{
	regexp.MustCompile(`^(?P<vhost>[^\s,]+) ` + client + ` (?P<ident>-)` + rest),
	regexp.MustCompile(`^` + client + ` (?P<ident>\S+)` + rest),
}

// logFields lists the field names in logForms.
var logFields = func() (all []string) {
	for _, form := range logForms {
		for _, name := range form.SubexpNames() {
			if name != "" && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}()

// otherKinds lists the first bytes of files that are not traces, with advice to the user.
var otherKinds = []struct{ begin, kind string }{
	{"\x28\xb5\x2f\xfd", "is compressed by zstd; unpack it with zstd -d"},
	{"\xfd7zXZ", "is compressed by xz; unpack it with xz -d"},
	{"BZh", "is compressed by bzip2; unpack it with bzip2 -d"},
	{"{", "is JSON; jq makes CSV of it, see leasesim replay --help"},
	{"metric_name,timestamp,", "has the metrics of k6; keep its first line and those that begin with http_reqs, with " +
		"--columns time_s=timestamp"},
}

// kindOf detects the kind of a file by its first lines. other describes a file that is no trace, and isLog
// reports whether a line has the form of an access log.
func kindOf(from *bufio.Reader) (other string, isLog bool) {
	start, _ := from.Peek(1 << 14)
	for _, o := range otherKinds {
		if bytes.HasPrefix(start, []byte(o.begin)) {
			return o.kind, false
		}
	}
	return "", slices.ContainsFunc(bytes.SplitN(start, []byte("\n"), 20), func(line []byte) bool {
		_, ok := logLine(string(line))
		return ok
	})
}

// logLine returns the fields of an access log's line by name, without empty fields.
func logLine(line string) (fields map[string]string, ok bool) {
	line = strings.Trim(line, "\x00 \t\r") // a log that was cut during a write has zeros
	for _, form := range logForms {
		if found := form.FindStringSubmatch(line); found != nil {
			fields = map[string]string{}
			for i, name := range form.SubexpNames() {
				if name != "" && found[i] != "" {
					fields[name] = found[i]
				}
			}
			return fields, true
		}
	}
	return nil, false
}
