package lease

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestParseLimitReadsWhatStringWrites(t *testing.T) {
	for text, want := range map[string]Limit{
		"100/s":             PerSecond(100),
		"5000/m burst 200":  PerMinute(5000).WithBurst(200),
		"1/250ms":           Every(250 * time.Millisecond),
		"3/720h":            {Tokens: 3, Per: 30 * 24 * time.Hour},
		"7/h":               PerHour(7),
		"1/us":              {Tokens: 1, Per: time.Microsecond},
		"1000000000/s":      PerSecond(1_000_000_000),
		"1/d burst 5":       {Tokens: 1, Per: 24 * time.Hour, Burst: 5},
		"  2/ms   burst 3 ": {Tokens: 2, Per: time.Millisecond, Burst: 3},
	} {
		got, err := ParseLimit(text)
		if err != nil || got != want {
			t.Errorf("ParseLimit(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		survives(t, got)
	}
}

func TestParseLimitSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "0 words",
		"100":                   `no "/"`,
		"x/s":                   `tokens "x" is not a whole number`,
		"1.5/s":                 `tokens "1.5" is not a whole number`,
		"0/s":                   "tokens 0 must be at least 1",
		"-1/s":                  "tokens -1 must be at least 1",
		"1/fortnight":           `period "fortnight" is not a duration`,
		"1/0d":                  "days 0 must be at least 1",
		"1/40000d":              "at most 36500d",
		"1/s burst":             "2 words",
		"1/s bust 3":            `"bust" where "burst" was expected`,
		"1/s burst 0":           "burst 0 must be at least 1",
		"1/10ns":                "Per is 10ns, must be at least 1µs",
		"1/-5s":                 "Per is -5s, must be at least 1µs",
		"9223372036854775808/s": "is not a whole number",
	} {
		_, err := ParseLimit(text)
		if !errors.Is(err, ErrInvalidLimit) || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseLimit(%q): %v; want an ErrInvalidLimit with %q", text, err, want)
		}
	}
}

func TestEveryViolationIsNamedAtOnce(t *testing.T) {
	for _, c := range []struct {
		err, wraps error
		parts      []string
	}{
		{Limit{Tokens: -1, Per: time.Nanosecond, Burst: -2}.validateWith(-3), ErrInvalidLimit, []string{
			"Tokens is -1, must be at least 1", "Per is 1ns, must be at least 1µs",
			"Burst is -2, must be at least 0",
			"Overcommit is -3, must be at least 0",
		}},
		// A forgotten configuration would otherwise read as something.
		{Limit{}.Validate(), ErrInvalidLimit, []string{"Tokens is 0", "Per is 0s"}},
		{Policy{Target: -1, TTL: -1, MinBatch: -1, MaxBatch: -1, Overcommit: -1, Weight: -1, ColdStart: 9,
			Fallback: -1}.Validate(),
			ErrInvalidPolicy, []string{
				"Target is -1ns, must be 0s to 30m0s", "TTL is -1ns, must be 0s to 1h0m0s",
				"MinBatch is -1, must be at least 0",
				"MaxBatch is -1, must be at least 0", "Overcommit is -1, must be 0 to 4503599627370495",
				"Weight is -1, must be 0 to 1048576",
				"ColdStart is 9", "Fallback is -1",
			}},
		{Policy{Target: time.Microsecond, TTL: time.Microsecond, MinBatch: 5, MaxBatch: 4}.Validate(),
			ErrInvalidPolicy, []string{
				"Target is 1µs, must be 0 (default) or at least 1ms",
				"TTL is 1µs, must be at least 2*Target (2µs)",
				"MinBatch is 5, must be at most MaxBatch (4)",
			}},
		{Config{Limits: make([]Limit, 5), TTL: -1, Version: Version{-1, -1}}.Validate(), ErrInvalidConfig,
			[]string{
				"5 limits, must be 1 to 4", "limit 0: ", "Target is 0s", "TTL is -1ns, must be 2*Target (0s)",
				"Version is -1", "revision is -1",
			}},
	} {
		for _, part := range c.parts {
			if !errors.Is(c.err, c.wraps) || !strings.Contains(c.err.Error(), part) {
				t.Errorf("%v\nlacks %q", c.err, part)
			}
		}
	}
}

func TestExtremesAreExact(t *testing.T) {
	for _, l := range []Limit{
		PerSecond(1_000_000_000),
		{Tokens: 1, Per: 30 * 24 * time.Hour},
		{Tokens: 1_000_000_000, Per: time.Second, Burst: 1 << 40},
		{Tokens: 1, Per: time.Microsecond, Burst: 1 << 51},
	} {
		sc, err := newScale(l, 0)
		testkit.NoErr(t, err)
		// step/unit tokens a tick are Tokens/Per.
		perTick := new(big.Rat).Mul(big.NewRat(l.Tokens, int64(l.Per)), rat(sc.Tick*1000))
		testkit.Check(t, big.NewRat(sc.Step, sc.Unit).Cmp(perTick) == 0, "%v: %+v is not exact", l, sc)
	}
}

func TestLimitThatCannotBeHeldNamesTheNearest(t *testing.T) {
	for _, l := range []Limit{
		{Tokens: 999_999_937, Per: 86399*time.Second + 1, Burst: 1 << 45},
		{Tokens: 1, Per: 30*24*time.Hour + 1, Burst: 1 << 40},
	} {
		_, text, ok := strings.Cut(fmt.Sprint(l.Validate()), "the nearest limit that can be held is ")
		near, err := ParseLimit(text)
		testkit.Check(t, ok && err == nil, "%v: %v; the nearest is %v, %v", l, l.Validate(), near, err)
	}
}
