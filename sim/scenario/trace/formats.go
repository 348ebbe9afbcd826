package trace

import (
	"bufio"
	"bytes"
	"errors"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
)

// timeColumns has the nanoseconds per unit of each time column; 0 for a timestamp.
var timeColumns = map[string]int64{"time_s": 1e9, "time_ms": 1e6, "time_us": 1e3, "time_ns": 1, "time": 0}

const columnNames = "time_s (or time_ms, time_us, time_ns; or time, a timestamp), process, key and tokens"

// timestampOf returns the time since 1970 of a timestamp.
func timestampOf(text string) (time.Duration, error) {
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

// layouts lists formats of timestamps, which may all have fractions of a second. The last layout is that of
// access logs.
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

// client matches the client's address, or the first address of a list (X-Forwarded-For). rest matches the
// fields after the two names in an access log, and captures the time. Some servers add fields at the end.
const (
	client = `([^\s,]+)(?:, ?[^\s,]+)*`
	rest   = ` [^[]+ \[([^]]+)\] "(?:[^"\\]|\\.)*" \S+ \S+`
)

// logForms match a line of an access log in the common or the combined format: with a virtual host before the
// line, and without. The first form that matches a line counts.
var logForms = []*regexp.Regexp{
	regexp.MustCompile(`^[^\s,]+ ` + client + ` -` + rest), regexp.MustCompile(`^` + client + ` \S+` + rest),
}

// otherKinds lists the first bytes of files that are not traces, with advice to the user.
var otherKinds = []struct{ begin, kind string }{
	{"\x1f\x8b", "is compressed by gzip; unpack it with gunzip"},
	{"\x28\xb5\x2f\xfd", "is compressed by zstd; unpack it with zstd -d"},
	{"\xfd7zXZ", "is compressed by xz; unpack it with xz -d"},
	{"BZh", "is compressed by bzip2; unpack it with bzip2 -d"},
	{"{", "is JSON; jq makes CSV of it, see leasesim replay --help"},
	{"metric_name,timestamp,", "has the metrics of k6; keep the lines that begin with http_reqs, and the first line " +
		"with time_s in place of timestamp"},
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
		return logLine(string(line)) != nil
	})
}

// logLine returns the fields of an access log's line, or nil for another line.
func logLine(line string) map[string]string {
	line = strings.Trim(line, "\x00 \t\r") // a log that was cut during a write has zeros
	for _, form := range logForms {
		if found := form.FindStringSubmatch(line); found != nil {
			return map[string]string{"key": found[1], "time": found[2]}
		}
	}
	return nil
}
