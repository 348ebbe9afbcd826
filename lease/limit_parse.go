package lease

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// perUnits are the periods that may stand without a number, shortest first.
var perUnits = []struct {
	name   string
	length time.Duration
}{
	{"us", time.Microsecond},
	{"ms", time.Millisecond},
	{"s", time.Second},
	{"m", time.Minute},
	{"h", time.Hour},
	{"d", 24 * time.Hour},
}

// ParseLimit reads "TOKENS/PERIOD", optionally followed by "burst N": "100/s", "5000/m burst 200",
// "1/250ms", "3/30d". PERIOD is one of us, ms, s, m, h, d, a whole number of days such as 30d, or
// anything that time.ParseDuration takes. The result is validated: a limit that cannot be held is
// an error that wraps ErrInvalidLimit and names the nearest one that can.
func ParseLimit(s string) (Limit, error) {
	l, err := parseLimit(s)
	if err != nil {
		return Limit{}, fmt.Errorf("%w: %q: %v (want TOKENS/PERIOD [burst N], such as %q, %q or %q)",
			ErrInvalidLimit, s, err, "100/s", "5000/m burst 200", "1/250ms")
	}
	if err := l.Validate(); err != nil {
		return Limit{}, err
	}
	return l, nil
}

func parseLimit(s string) (Limit, error) {
	fields := strings.Fields(s)
	if len(fields) != 1 && len(fields) != 3 {
		return Limit{}, fmt.Errorf("%d words, must be 1 or 3", len(fields))
	}
	tokens, per, found := strings.Cut(fields[0], "/")
	if !found {
		return Limit{}, fmt.Errorf("no %q between tokens and period", "/")
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
			return Limit{}, fmt.Errorf("%q where \"burst\" was expected", fields[1])
		}
		if l.Burst, err = parseCount("burst", fields[2]); err != nil {
			return Limit{}, err
		}
	}
	return l, nil
}

func parseCount(what, s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a whole number", what, s)
	}
	if n < 1 {
		return 0, fmt.Errorf("%s %d must be at least 1", what, n)
	}
	return n, nil
}

func parsePer(s string) (time.Duration, error) {
	for _, u := range perUnits {
		if s == u.name {
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
