package lease

import (
	"errors"
	"strings"
	"testing"
	"time"
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
		again, err := ParseLimit(got.String())
		if err != nil || again.String() != got.String() || again.Capacity() != got.Capacity() {
			t.Errorf("%q does not survive String: %q, %v", text, again, err)
		}
		raw, _ := got.MarshalText()
		var l Limit
		if err := l.UnmarshalText(raw); err != nil || l != again {
			t.Errorf("%q does not survive MarshalText: %v, %v", text, l, err)
		}
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

func TestValidateNamesEveryViolationAtOnce(t *testing.T) {
	err := Limit{Tokens: -1, Per: time.Nanosecond, Burst: -2}.validateWith(-3)
	for _, part := range []string{"Tokens is -1, must be at least 1", "Per is 1ns, must be at least 1µs",
		"Burst is -2, must be at least 0", "Overcommit is -3, must be at least 0"} {
		if !errors.Is(err, ErrInvalidLimit) || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nlacks %q", err, part)
		}
	}
	if (Limit{}).Validate() == nil {
		t.Error("the zero Limit is valid; a forgotten configuration would read as something")
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
		if err != nil {
			t.Errorf("%v: %v", l, err)
			continue
		}
		// step/unit tokens a tick is Tokens/Per: step * Per = Tokens * tick * unit, in arbitrary precision.
		if !equalProducts([]int64{sc.Step, int64(l.Per)}, []int64{l.Tokens, sc.Tick * 1000, sc.Unit}) {
			t.Errorf("%v: %+v is not exact", l, sc)
		}
	}
}

func TestLimitThatCannotBeHeldNamesTheNearest(t *testing.T) {
	for _, l := range []Limit{
		{Tokens: 999_999_937, Per: 86399*time.Second + 1, Burst: 1 << 45},
		{Tokens: 1, Per: 30*24*time.Hour + 1, Burst: 1 << 40},
	} {
		err := l.Validate()
		if !errors.Is(err, ErrInvalidLimit) || !strings.Contains(err.Error(), "the nearest limit that can be held is ") {
			t.Errorf("%v: %v", l, err)
			continue
		}
		_, text, _ := strings.Cut(err.Error(), "can be held is ")
		if _, err := ParseLimit(text); err != nil {
			t.Errorf("the nearest limit of %v cannot be held either: %v", l, err)
		}
	}
}

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"100/s", "5000/m burst 200", "1/250ms", "3/30d", "1/s burst 0", "//", "1/1h1m burst 9999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseLimit(s)
		if err != nil {
			if !errors.Is(err, ErrInvalidLimit) {
				t.Fatalf("%q: %v does not wrap ErrInvalidLimit", s, err)
			}
			return
		}
		again, err := ParseLimit(l.String())
		if err != nil || again.Tokens != l.Tokens || again.Per != l.Per || again.Capacity() != l.Capacity() {
			t.Fatalf("%q became %+v, written %q, read %+v, %v", s, l, l.String(), again, err)
		}
		if l.TimeToFull() <= 0 {
			t.Fatalf("%q takes %v to fill", s, l.TimeToFull())
		}
	})
}
