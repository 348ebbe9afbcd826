package lease

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/violation"
)

// Kind selects the bound that a Limit promises.
type Kind uint8

const (
	// KindBucket is a token bucket: at most Burst + Tokens/Per*w in any window of length w.
	KindBucket Kind = iota
	// KindSliding is a sliding window: at most Tokens in any window of length Per.
	KindSliding
	// KindCalendar is a quota of a period: at most Tokens in each period of length Per.
	KindCalendar
)

// String returns the kind's name in the documentation.
func (k Kind) String() string { return nameOf("Kind", int(k), "bucket", "sliding", "calendar") }

func nameOf(kind string, i int, names ...string) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("%s(%d)", kind, i)
	}
	return names[i]
}

// Sliding returns a limit of at most n tokens in any window of length w: docs/protocol.md section 3.10. The
// limit of 100 tokens in one minute has the text "100 in 1m". w is in whole microseconds, 1 ms to 50 years.
func Sliding(n int64, w time.Duration) Limit {
	return Limit{Kind: KindSliding, Tokens: n, Per: w}
}

// Calendar returns a limit of at most n tokens in each period, by the server's clock. Periods begin at offset
// plus multiples of period since 1970-01-01 00:00 UTC. For example, "1,000 a day from midnight in Beijing",
// where midnight is 16:00 UTC, is Calendar(1000, 24*time.Hour, 16*time.Hour), with the text "1000 each 24h
// from 16h". A period has a fixed length, at least 1 ms and at most 50 years: months and daylight saving are
// not supported.
func Calendar(n int64, period, offset time.Duration) Limit {
	return Limit{Kind: KindCalendar, Tokens: n, Per: period, Offset: offset}
}

// Windowed reports whether l is a window, which counts admitted tokens instead of keeping a level.
func (l Limit) Windowed() bool { return l.Kind != KindBucket }

// windowMax keeps the end of every window within the times that a bucket can count.
const windowMin, windowMax = exact.WindowMin, exact.MaxTime / 2

func (l Limit) validateWindow(v *violation.List, overcommit int64) {
	name := "window"
	if l.Kind == KindCalendar {
		name = "period"
	}
	if l.Per%time.Microsecond != 0 || l.Per < windowMin || l.Per > windowMax {
		near := l
		near.Per = min(max(l.Per.Round(time.Microsecond), windowMin), windowMax)
		v.Add("Per", l.Per, "must be whole microseconds, %v to %v; the nearest valid %s is %v",
			windowMin, windowMax, name, near.Per)
	}
	if l.Burst != 0 && l.Burst != l.Tokens {
		v.Add("Burst", l.Burst, "must be 0: a %s has no burst", name)
	}
	if l.Offset < 0 || l.Offset > 0 && l.Offset >= max(l.Per, windowMin) || l.Offset%time.Microsecond != 0 {
		v.Add("Offset", l.Offset, "must be whole microseconds, 0 to below the period")
	}
	if l.Kind == KindSliding && l.Offset != 0 {
		v.Add("Offset", l.Offset, "must be 0: a sliding window begins anywhere")
	}
	if l.Tokens >= exact.MaxUnits {
		v.Add("Tokens", l.Tokens, "must be below 2^52")
	} else if most := exact.MaxUnits - 1 - l.Tokens; l.Tokens > 0 && overcommit > most {
		v.Add("Overcommit", overcommit, "must be at most %d with %v", most, l)
	}
}

func (l Limit) windowString() string {
	if l.Kind == KindSliding {
		return fmt.Sprintf("%d in %s", l.Tokens, shortDuration(l.Per))
	}
	s := fmt.Sprintf("%d each %s", l.Tokens, shortDuration(l.Per))
	if l.Offset != 0 {
		s += " from " + shortDuration(l.Offset)
	}
	return s
}

// shortDuration returns the text of d without units that are zero: "24h", not "24h0m0s".
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

var errFixedLength = errors.New("a period has a fixed length, such as 24h or 30d: months, years " +
	"and daylight saving are not supported")

func parseWindow(fields []string) (l Limit, err error) {
	if l.Tokens, err = parseCount("tokens", fields[0]); err != nil {
		return Limit{}, err
	}
	l.Kind = KindSliding
	if fields[1] == "each" {
		l.Kind = KindCalendar
	}
	if l.Per, err = parseLength(fields[2]); err != nil {
		return Limit{}, err
	}
	if len(fields) == 3 {
		return l, nil
	}
	if l.Kind != KindCalendar || fields[3] != "from" || len(fields) != 5 {
		return Limit{}, fmt.Errorf("has unexpected %q", strings.Join(fields[3:], " "))
	}
	if fields[4] == "0" {
		return l, nil
	}
	l.Offset, err = parseLength(fields[4])
	return l, err
}

func parseLength(s string) (time.Duration, error) {
	switch strings.TrimLeft(s, "0123456789") {
	case "mo", "month", "months", "y", "year", "years", "M":
		return 0, errFixedLength
	}
	if strings.Contains(s, "/") { // s names a time zone such as Europe/Berlin
		return 0, errFixedLength
	}
	return parsePer(s)
}
