package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestParseLimitReadsWhatStringWrites(t *testing.T) {
	for text, want := range map[string]Limit{
		"100/s":             PerSecond(100),
		"5000/m burst 200":  PerMinute(5000).WithBurst(200),
		"1/250ms":           Every(250 * time.Millisecond),
		"3/720h":            {Tokens: 3, Per: 30 * 24 * time.Hour},
		"7/h":               PerHour(7),
		"100/min":           PerMinute(100),
		"100/minute":        PerMinute(100),
		"9/sec burst 2":     PerSecond(9).WithBurst(2),
		"9/second":          PerSecond(9),
		"7/hr":              PerHour(7),
		"7/hour":            PerHour(7),
		"1000/day":          {Tokens: 1000, Per: 24 * time.Hour},
		"1000 each day":     Calendar(1000, 24*time.Hour, 0),
		"5 in minute":       Sliding(5, time.Minute),
		"1/us":              {Tokens: 1, Per: time.Microsecond},
		"1000000000/s":      PerSecond(1_000_000_000),
		"1/d burst 5":       {Tokens: 1, Per: 24 * time.Hour, Burst: 5},
		"  2/ms   burst 3 ": {Tokens: 2, Per: time.Millisecond, Burst: 3},
	} {
		got, err := ParseLimit(text)
		testkit.Check(t, err == nil && got == want, "ParseLimit(%q) = %+v, %v; want %+v", text, got, err, want)
		survives(t, got)
	}
}

func TestParseLimitSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "0 words",
		"100":                     `no "/"`,
		"1/0d":                    "days 0 must be at least 1",
		"1.5/s":                   `tokens "1.5" is not a whole number`,
		"0/s":                     "tokens 0 must be at least 1",
		"1/99999999999999999999d": `days "99999999999999999999" must be at most 9223372036854775807`,
		"1/fortnight":             `period "fortnight" is not a duration`,
		"1/40000d":                "at most 36500d",
		"1/s bust 3":              `has "bust" in place of "burst"`,
		"1/s burst 0":             "burst 0 must be at least 1",
		"1/10ns":                  "Per is 10ns, must be at least 1µs",
	} {
		_, err := ParseLimit(text)
		testkit.Check(t, errors.Is(err, ErrInvalidLimit) && strings.Contains(err.Error(), want),
			"ParseLimit(%q): %v; want an ErrInvalidLimit with %q", text, err, want)
	}
}

func TestEveryViolationIsNamedAtOnce(t *testing.T) {
	for _, c := range []struct {
		err, wraps error
		parts      string // in any order, on lines of the error
	}{
		{Limit{Tokens: -1, Per: time.Nanosecond, Burst: -2}.validateWith(-3), ErrInvalidLimit, `
			Tokens is -1, must be at least 1
			Per is 1ns, must be at least 1µs
			Burst is -2, must be at least 0
			Overcommit is -3, must be at least 0`},
		// A forgotten configuration would otherwise read as something.
		{Limit{}.Validate(), ErrInvalidLimit, `Tokens is 0
			Per is 0s`},
		{Policy{Target: -1, TTL: -1, MinBatch: -1, Overcommit: -1, Weight: -1, ColdStart: 9,
			Fallback: -1, MaxOvershoot: -1}.Validate(), ErrInvalidPolicy,
			`Target is -1ns, must be 1ms to 30m0s
			TTL is -1ns, must be 2ms to 1h0m0s
			MinBatch is -1, must be at least 1
			Overcommit is -1, must be 0 to 4503599627370495
			Weight is -1, must be 1 to 1048576
			MaxOvershoot is -1, must be 1 to 1000000
			ColdStart is 9
			Fallback is -1`},
		{Sliding(0, time.Minute).Validate(), ErrInvalidLimit, "Tokens is 0, must be at least 1"},
		{Sliding(exact.MaxUnits, time.Minute).Validate(), ErrInvalidLimit, "must be below 2^52"},
		{Config{Limits: make([]Limit, 5), TTL: -1, Version: Version{-1, -1}}.Validate(), ErrInvalidConfig,
			`Limits has 5 entries, must have 1 to 4
			Limits[0].Tokens is 0
			Target is 0s
			TTL is -1ns, must be 0s, two targets,
			Version.Deploy is -1
			Version.Revision is -1`},
		{Config{Limits: []Limit{PerSecond(1), Blocked}}.Validate(), ErrInvalidConfig,
			"Limits[1] is blocked, must be the only limit"},
	} {
		for part := range strings.Lines(c.parts) {
			part = strings.TrimSpace(part)
			testkit.Check(t, errors.Is(c.err, c.wraps) && strings.Contains(c.err.Error(), part),
				"%v\nlacks %q", c.err, part)
		}
	}
}

func TestLimitThatCannotBeHeldNamesTheNearest(t *testing.T) {
	for _, l := range []Limit{
		{Tokens: 999_999_937, Per: 86399*time.Second + 1, Burst: 1 << 45},
		{Tokens: 1, Per: 30*24*time.Hour + 1, Burst: 1 << 40},
	} {
		text, ok := namedInstead(l.Validate())
		near, err := ParseLimit(text)
		testkit.Check(t, ok && err == nil, "%v: %v; the nearest is %v, %v", l, l.Validate(), near, err)
	}
}

func TestAnOvercommitThatIsTooLargeIsNamedWithTheMostThatIsHeld(t *testing.T) {
	for _, l := range []Limit{
		PerSecond(100_000).WithBurst(20_000), {Tokens: 7, Per: 13 * time.Minute, Burst: 5},
		Sliding(100, time.Minute), Calendar(1000, time.Hour, 0),
	} {
		// Given an overcommit that is too large, where the limit alone is not,
		err := l.validateWith(exact.MaxUnits - 1)
		// when its error names another one,
		_, text, ok := strings.Cut(err.Error(), fmt.Sprintf("Overcommit is %d, must be at most ",
			int64(exact.MaxUnits-1)))
		most, _ := strconv.ParseInt(strings.TrimSuffix(text, " with "+l.String()), 10, 64)
		// then a bucket can hold the limit with that, and with no more.
		testkit.Check(t, ok && most > 0 && l.validateWith(most) == nil && l.validateWith(most+1) != nil, "%v", err)
	}
}

// FuzzLimitText is about texts: whatever an operator writes into a configuration is a limit that
// can be held and that every way of writing it down keeps, or an error that is known by name and
// leaves nothing behind.
func FuzzLimitText(f *testing.F) {
	for _, s := range []string{"100/s", "5000/m burst 200", "1/250ms", "3/30d", "7/1h1m1.000001s",
		"2/us burst 3", " 1/s\tburst\n2 ",
		"1/s burst 0", "1/-5s", "0x1/s", "1_000/s", "+1/s", "1/s burst +2", "9223372036854775807/s",
		"1/9223372036854775807ns",
		"1/36500d burst 4503599627370495", "//", "1/1h1m burst 9999999999999", "1/.5s", "1/1ns", "1/µs",
		"1/\xffs", "1//s", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// when any text is read
		l, err := ParseLimit(s)
		var fromText, fromJSON Limit
		kept := Limit{Tokens: 12, Per: time.Second, Burst: 34}
		fromText = kept
		errText := fromText.UnmarshalText([]byte(s))
		// then both ways of reading it agree,
		testkit.Must(t, (err == nil) == (errText == nil),
			"%q: ParseLimit says %v, UnmarshalText %v", s, err, errText)
		if err != nil {
			// a refusal is typed, and gives nothing to use by mistake,
			testkit.Must(t, errors.Is(err, ErrInvalidLimit) && l == (Limit{}) && fromText == kept,
				"%q: %v with %+v, and %+v from UnmarshalText", s, err, l, fromText)
			return
		}
		// and a limit is valid and survives being written down, as text and inside JSON.
		testkit.Must(t, fromText == l, "%q: ParseLimit gives %+v, UnmarshalText %+v", s, l, fromText)
		raw, err := json.Marshal(l)
		testkit.NoErr(t, err)
		err = json.Unmarshal(raw, &fromJSON)
		testkit.Must(t, err == nil && fromJSON == canonical(l), "%q: %+v became %s, which reads %+v, %v", s, l, raw,
			fromJSON, err)
		survives(t, l)
	})
}

// FuzzLimitNumbers is about limits made by a program: Validate, String and ParseLimit agree on
// every one of them, and where a limit is refused because it cannot be held, the one that the error
// names instead can be.
func FuzzLimitNumbers(f *testing.F) {
	f.Add(int64(100), int64(time.Second), int64(0))
	f.Add(int64(5000), int64(time.Minute), int64(200))
	f.Add(int64(1), int64(time.Microsecond), int64(1<<51))
	f.Add(int64(999_999_937), int64(86399*time.Second+1), int64(1)<<45)
	f.Add(int64(1), int64(30*24*time.Hour+1), int64(1)<<40)
	f.Add(int64(-1), int64(-1), int64(-1))
	f.Add(int64(1<<62), int64(1<<62), int64(1<<62))
	f.Add(int64(7), int64(13*time.Microsecond+1), int64(9))
	f.Fuzz(func(t *testing.T, tokens, per, burst int64) {
		l := Limit{Tokens: tokens, Per: time.Duration(per), Burst: burst}
		err := l.Validate()
		if err == nil {
			survives(t, l)
			return
		}
		testkit.Must(t, errors.Is(err, ErrInvalidLimit) && l.TimeToFull() == 0,
			"%+v is refused by %v, and takes %v to fill", l, err, l.TimeToFull())
		// A limit that is refused is refused as text too: what is written into a configuration file
		// is no way around.
		got, textErr := ParseLimit(l.String())
		testkit.Must(t, textErr != nil || got.Validate() == nil, "%+v is refused, its text %q is taken for %+v", l,
			l.String(), got)
		if text, ok := namedInstead(err); ok {
			near, err := ParseLimit(text)
			testkit.Must(t, err == nil, "%+v: the nearest limit %q: %+v, %v", l, text, near, err)
		}
	})
}

// namedInstead is the limit that an error names instead of one that cannot be held.
func namedInstead(err error) (text string, ok bool) {
	_, text, ok = strings.Cut(err.Error(), "the nearest valid limit is ")
	return text, ok
}

// canonical is l as a text gives it back: a burst that is the number of tokens is not written.
func canonical(l Limit) Limit {
	if l.Burst == l.Tokens {
		l.Burst = 0
	}
	return l
}

// survives checks that the text of a valid limit reads as that limit, to the last nanosecond and token.
func survives(t *testing.T, l Limit) {
	t.Helper()
	testkit.NoErr(t, l.Validate())
	text, err := l.MarshalText()
	testkit.Must(t, err == nil && string(text) == l.String(),
		"%+v: String is %q, MarshalText %q, %v", l, l, text, err)
	again, err := ParseLimit(l.String())
	testkit.Must(t, err == nil && again == canonical(l) && again.String() == l.String(),
		"%+v, written %q, is read as %+v (%q), %v", l, l, again, again, err)
	full, burst := again.TimeToFull(), again.Capacity()
	testkit.Must(t, l.TimeToFull() > 0 && full == l.TimeToFull() && burst == l.Capacity(),
		"%+v takes %v to fill to %d, its text %v to %d", l, l.TimeToFull(), l.Capacity(), full, burst)
}

func TestZeroPolicyIsAGoodDefault(t *testing.T) {
	testkit.NoErr(t, Policy{}.Validate())
	// given a burst that is large beside a Target's worth
	c := Policy{}.ConfigFor([]Limit{PerSecond(1000)}, 7, 0)
	testkit.NoErr(t, c.Validate())
	testkit.Check(t, c.Target == 100*time.Millisecond && c.TTL == 400*time.Millisecond && c.Overcommit == 0 &&
		!c.StartEmpty && c.Version == (Version{Deploy: 7}), "%+v", c)
	// a slow network makes T longer: two call timeouts
	c = Policy{}.ConfigFor([]Limit{PerSecond(1000)}, 0, time.Second)
	testkit.Check(t, c.TTL == 2*time.Second, "T is %v", c.TTL)
	// up to the longest, whatever the timeout
	c = Policy{}.ConfigFor([]Limit{PerSecond(1000)}, 0, math.MaxInt64)
	testkit.Check(t, c.TTL == exact.MaxTTL, "T is %v", c.TTL)
}

func TestTargetShrinksWithTheBurst(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		limits []Limit
		want   time.Duration
	}{
		{Policy{}, []Limit{PerSecond(1000)}, 100 * time.Millisecond},
		{Policy{}, []Limit{PerSecond(1000).WithBurst(40)}, 10 * time.Millisecond},
		// By itself an overcommit makes no lease longer.
		{Policy{Overcommit: 40}, []Limit{PerSecond(1000).WithBurst(40)}, 10 * time.Millisecond},
		{Policy{Target: time.Second, Overcommit: 40}, []Limit{PerSecond(1000).WithBurst(40)},
			20 * time.Millisecond},
		{Policy{}, []Limit{PerSecond(1000), PerSecond(1000).WithBurst(40)}, 10 * time.Millisecond},
		{Policy{}, []Limit{PerSecond(1_000_000).WithBurst(1)}, time.Millisecond},
		{Policy{Target: 20 * time.Millisecond}, []Limit{PerHour(1)}, 20 * time.Millisecond},
	} {
		got := c.policy.TargetFor(c.limits)
		testkit.Check(t, got == c.want, "%+v for %v: %v, want %v", c.policy, c.limits, got, c.want)
	}
}
