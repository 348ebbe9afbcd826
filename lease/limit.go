package lease

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/violation"
)

// ErrInvalidLimit is wrapped by every error about an invalid Limit.
var ErrInvalidLimit = errors.New("lease: invalid limit")

// Limit is a token bucket's rate and capacity: Tokens tokens are added every Per, evenly, up to Burst. A
// Limit of another Kind admits at most Tokens in any window of Per, or in each period of Per.
//
// Most callers want PerSecond, PerMinute, PerHour or Every, with WithBurst if the burst differs from the
// number of tokens; Sliding for "at most 100 in any minute"; Calendar for "1,000 a day". The zero Limit is
// invalid, so that a forgotten configuration never means "unlimited" or "nothing". A Limit is a value; any
// goroutine may use a copy.
type Limit struct {
	// Tokens is the number of tokens per Per, at least 1.
	Tokens int64
	// Per is the time for Tokens, at least one microsecond, the resolution of the server's clock.
	Per time.Duration
	// Burst is the capacity in tokens; 0 means Tokens. A window has no Burst.
	Burst int64
	// Kind is KindBucket (the zero value), KindSliding or KindCalendar.
	Kind Kind
	// Offset is the time from a multiple of Per since 1970 UTC to the start of a calendar's period.
	Offset time.Duration
}

// PerSecond returns a limit of n tokens per second with a burst of n. An idle key admits up to 2n in its
// first second, the burst and the refill, and then n per second.
//
// If a partner allows n calls per second, use nine tenths of that rate, a burst of n/20 rounded down and
// FallbackDeny, such as PerSecond(90).WithBurst(5) for 100 calls: calls arrive less evenly than they are
// sent. Add StartEmpty if Redis may lose its data. Sliding admits n tokens in any window, but possibly all at
// once, and needs a larger margin.
func PerSecond(n int64) Limit { return Limit{Tokens: n, Per: time.Second} }

// PerMinute returns a limit of n tokens per minute with a burst of n.
func PerMinute(n int64) Limit { return Limit{Tokens: n, Per: time.Minute} }

// PerHour returns a limit of n tokens per hour with a burst of n.
func PerHour(n int64) Limit { return Limit{Tokens: n, Per: time.Hour} }

// Every returns a limit of one token per d with a burst of 1.
func Every(d time.Duration) Limit { return Limit{Tokens: 1, Per: d} }

// WithBurst returns l with a capacity of n tokens; 0 means the number of tokens per Per.
func (l Limit) WithBurst(n int64) Limit {
	l.Burst = n
	return l
}

// Blocked is the limit that admits nothing, with the text "blocked": it starts empty, and a token takes 100
// years. While Blocked is in force, no fallback or cold start admits anything.
var Blocked = Limit{Tokens: 1, Per: exact.MaxTime}

// Unlimited is the limit that no load reaches, with the text "unlimited": a hundred thousand tokens per
// microsecond. While Unlimited is in force, no request is denied because the store is away. Unlimited or
// Blocked must be a key's only limit. The limits that it replaces are suspended, and refill as if unused.
var Unlimited = Limit{Tokens: 1e11, Per: time.Second, Burst: 1 << 38}

var named = []struct {
	name  string
	limit *Limit
}{{"blocked", &Blocked}, {"unlimited", &Unlimited}}

// Capacity returns the burst in force in tokens: Burst, or Tokens if Burst is 0.
func (l Limit) Capacity() int64 {
	if l.Burst == 0 {
		return l.Tokens
	}
	return l.Burst
}

// Rate returns tokens per second, for display and estimates; the protocol counts in integers.
func (l Limit) Rate() float64 {
	return float64(l.Tokens) / float64(l.Per) * float64(time.Second)
}

// TimeToFull returns how long an empty bucket takes to fill, rounded up to a microsecond. TimeToFull returns
// 0 for an invalid limit.
func (l Limit) TimeToFull() time.Duration {
	if l.Validate() != nil {
		return 0
	}
	if l.Windowed() {
		return exact.NewWindowScale(l.Tokens, l.Per, l.Offset, l.Kind == KindSliding).TimeToFull()
	}
	s, _ := l.scale(0)
	return s.TimeToFull()
}

// Validate reports every fault of l, each as a Violation that wraps ErrInvalidLimit. For a valid l every
// level of the bucket is an exact number.
func (l Limit) Validate() error { return l.validateWith(0) }

func (l Limit) validateWith(overcommit int64) error {
	v := violation.List{Kind: ErrInvalidLimit}
	if l.Tokens < 1 {
		v.Add("Tokens", l.Tokens, "must be at least 1")
	}
	if l.Per < time.Microsecond && !l.Windowed() { // a window has narrower bounds
		v.Add("Per", l.Per, "must be at least 1µs")
	}
	if l.Burst < 0 {
		v.Add("Burst", l.Burst, "must be at least 0")
	}
	if overcommit < 0 {
		v.Add("Overcommit", overcommit, "must be at least 0")
	}
	switch l.Kind {
	case KindBucket:
		if l.Offset != 0 {
			v.Add("Offset", l.Offset, "must be 0: a token bucket has no periods")
		}
	case KindSliding, KindCalendar:
		l.validateWindow(&v, max(overcommit, 0))
		return v.Err()
	default:
		v.Add("Kind", int(l.Kind), "must be KindBucket (%d), KindSliding (%d) or KindCalendar (%d)",
			KindBucket, KindSliding, KindCalendar)
	}
	if v.Len() > 0 {
		return v.Err()
	}
	if _, err := l.scale(overcommit); err != nil {
		if overcommit > 0 && l.held(0) {
			v.Add("Overcommit", overcommit, "must be at most %d with %v", overcommitMost(l, overcommit), l)
			return v.Err()
		}
		if near, ok := nearest(l, overcommit); ok {
			err = fmt.Errorf("%w; the nearest valid limit is %v", err, near)
		}
		v.Add("", l, "%v", err)
	}
	return v.Err()
}

func (l Limit) scale(overcommit int64) (exact.Scale, error) {
	return exact.NewScale(l.Tokens, l.Per, l.Capacity(), overcommit)
}

// held reports whether a bucket with the given overcommit can count the tokens of l exactly.
func (l Limit) held(overcommit int64) bool {
	_, err := l.scale(overcommit)
	return err == nil
}

// overcommitMost returns the largest overcommit below bound with which a bucket can hold l, or 0.
func overcommitMost(l Limit, bound int64) int64 {
	least, beyond := int64(0), bound
	for beyond-least > 1 {
		if middle := least + (beyond-least)/2; l.held(middle) {
			least = middle
		} else {
			beyond = middle
		}
	}
	return least
}

// String returns the form that ParseLimit reads, such as "100/s", "5000/m burst 200", "1/250ms", "100 in 1m",
// "1000 each 24h from 16h" or "blocked".
func (l Limit) String() string {
	if l.Windowed() {
		return l.windowString()
	}
	for _, n := range named {
		if l.Equal(*n.limit) {
			return n.name
		}
	}
	per := l.Per.String()
	for _, u := range perUnits {
		if l.Per == u.length {
			per = u.name
		}
	}
	s := fmt.Sprintf("%d/%s", l.Tokens, per)
	if l.Burst != 0 && l.Burst != l.Tokens {
		s += fmt.Sprintf(" burst %d", l.Burst)
	}
	return s
}

// Equal reports whether l and o are the same limit. An unset burst equals a burst of Tokens.
func (l Limit) Equal(o Limit) bool {
	return l.Kind == o.Kind && l.Tokens == o.Tokens && l.Per == o.Per && l.Capacity() == o.Capacity() &&
		l.Offset == o.Offset
}

// MarshalText returns the text of String.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText parses text as ParseLimit does.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := ParseLimit(string(text))
	if err == nil {
		*l = parsed
	}
	return err
}

// nearest looks for the valid limit closest to l: first with the rate rounded to a coarser period, then with
// a smaller burst.
func nearest(l Limit, overcommit int64) (Limit, bool) {
	overcommit = min(overcommit, l.Capacity())
	// A rate in whole tokens per second needs the fewest units per token (at most 10^6).
	for _, u := range perUnits {
		per := u.length
		tokens := math.Round(float64(l.Tokens) * (float64(per) / float64(l.Per)))
		if tokens < 1000 || tokens >= exact.MaxUnits {
			continue
		}
		c := Limit{Tokens: int64(tokens), Per: per, Burst: l.Capacity()}
		if c.held(overcommit) {
			return c, true
		}
	}
	for b := l.Capacity() / 2; b >= 1; b /= 2 {
		c := Limit{Tokens: l.Tokens, Per: l.Per, Burst: b}
		if c.held(min(overcommit, b)) {
			return c, true
		}
	}
	return Limit{}, false
}

// perUnits lists the periods that ParseLimit reads without a number, shortest first.
var perUnits = []struct {
	name   string
	length time.Duration
	others []string
}{
	{"us", time.Microsecond, nil},
	{"ms", time.Millisecond, nil},
	{"s", time.Second, []string{"sec", "second"}},
	{"m", time.Minute, []string{"min", "minute"}},
	{"h", time.Hour, []string{"hr", "hour"}},
	{"d", 24 * time.Hour, []string{"day"}},
}

// ParseLimit reads "TOKENS/PERIOD", optionally followed by "burst N": "100/s", "5000/m burst 200", "1/250ms",
// "3/30d". PERIOD is one of us, ms, s (sec, second), m (min, minute), h (hr, hour), d (day), a whole number
// of days such as 30d, or a duration for time.ParseDuration. "100 in 1m" is Sliding; "1000 each 24h" and
// "1000 each 24h from 16h" are Calendar; "blocked" and "unlimited" are Blocked and Unlimited. The result is
// valid: the error about an invalid limit wraps ErrInvalidLimit and names the nearest valid limit.
func ParseLimit(s string) (Limit, error) {
	for _, n := range named {
		if strings.TrimSpace(s) == n.name {
			return *n.limit, nil
		}
	}
	l, err := parseLimit(s)
	if err != nil {
		return Limit{}, violation.New(ErrInvalidLimit, "", s, "%v (want TOKENS/PERIOD [burst N], N in WINDOW, or "+
			"N each PERIOD [from OFFSET], such as %q, %q, %q or %q)", err,
			"100/s", "5000/m burst 200", "100 in 1m", "1000 each 24h from 16h")
	}
	if err := l.Validate(); err != nil {
		return Limit{}, err
	}
	return l, nil
}

func parseLimit(s string) (Limit, error) {
	fields := strings.Fields(s)
	if len(fields) > 2 && (fields[1] == "in" || fields[1] == "each") {
		return parseWindow(fields)
	}
	if len(fields) != 1 && len(fields) != 3 {
		return Limit{}, fmt.Errorf("has %d words, must have 1 or 3", len(fields))
	}
	tokens, per, found := strings.Cut(fields[0], "/")
	if !found {
		return Limit{}, fmt.Errorf("has no %q between tokens and period", "/")
	}
	var l Limit
	var err error
	if l.Tokens, err = parseCount("tokens", tokens); err != nil {
		return Limit{}, err
	}
	if l.Per, err = parsePer(per); err != nil {
		return Limit{}, err
	}
	if len(fields) == 3 {
		if fields[1] != "burst" {
			return Limit{}, fmt.Errorf("has %q in place of \"burst\"", fields[1])
		}
		if l.Burst, err = parseCount("burst", fields[2]); err != nil {
			return Limit{}, err
		}
	}
	return l, nil
}

func parseCount(what, s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && n > 0:
		return 0, fmt.Errorf("%s %q must be at most %d", what, s, n)
	case err != nil:
		return 0, fmt.Errorf("%s %q is not a whole number", what, s)
	case n < 1:
		return 0, fmt.Errorf("%s %d must be at least 1", what, n)
	}
	return n, nil
}

func parsePer(s string) (time.Duration, error) {
	for _, u := range perUnits {
		if s == u.name || slices.Contains(u.others, s) {
			return u.length, nil
		}
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := parseCount("days", days)
		if err != nil {
			return 0, err
		}
		if n > 36500 {
			return 0, fmt.Errorf("period %q must be at most 36500d", s)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("period %q is not a duration", s)
	}
	return d, nil
}
