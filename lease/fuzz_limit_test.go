package lease

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

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
		if (err == nil) != (errText == nil) {
			t.Fatalf("%q: ParseLimit says %v, UnmarshalText %v", s, err, errText)
		}
		if err != nil {
			// a refusal is typed, is one line or one line for each violation, and gives nothing to
			// use by mistake,
			if !errors.Is(err, ErrInvalidLimit) || l != (Limit{}) || fromText != kept {
				t.Fatalf("%q: %v with %+v, and %+v from UnmarshalText", s, err, l, fromText)
			}
			return
		}
		// and a limit is valid and survives being written down, as text and inside JSON.
		if fromText != l {
			t.Fatalf("%q: ParseLimit gives %+v, UnmarshalText %+v", s, l, fromText)
		}
		raw, err := json.Marshal(l)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if err := json.Unmarshal(raw, &fromJSON); err != nil || fromJSON != canonical(l) {
			t.Fatalf("%q: %+v became %s, which reads %+v, %v", s, l, raw, fromJSON, err)
		}
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
		if !errors.Is(err, ErrInvalidLimit) {
			t.Fatalf("%+v: %v does not wrap ErrInvalidLimit", l, err)
		}
		if l.TimeToFull() != 0 {
			t.Fatalf("%+v is refused because it cannot be held, and takes %v to fill", l, l.TimeToFull())
		}
		// A limit that is refused is refused as text too: what is written into a configuration file
		// is no way around.
		if got, err := ParseLimit(l.String()); err == nil && got.Validate() != nil {
			t.Fatalf("%+v is refused, its text %q is taken for %+v", l, l.String(), got)
		}
		if _, text, ok := strings.Cut(err.Error(), "the nearest limit that can be held is "); ok {
			if near, err := ParseLimit(text); err != nil {
				t.Fatalf("%+v: the nearest limit %q: %+v, %v", l, text, near, err)
			}
		}
	})
}

// canonical is l as a text gives it back: a burst that is the number of tokens is not written.
func canonical(l Limit) Limit {
	if l.Burst == l.Tokens {
		l.Burst = 0
	}
	return l
}

// survives checks that a valid limit is what its own text says, to the last nanosecond and token.
func survives(t *testing.T, l Limit) {
	t.Helper()
	if err := l.Validate(); err != nil {
		t.Fatalf("%+v: %v", l, err)
	}
	text, err := l.MarshalText()
	if err != nil || string(text) != l.String() {
		t.Fatalf("%+v: String is %q, MarshalText %q, %v", l, l.String(), text, err)
	}
	again, err := ParseLimit(l.String())
	if err != nil || again != canonical(l) || again.String() != l.String() {
		t.Fatalf("%+v, written %q, is read as %+v (%q), %v", l, l.String(), again, again, err)
	}
	if l.TimeToFull() <= 0 || again.TimeToFull() != l.TimeToFull() || again.Capacity() != l.Capacity() {
		t.Fatalf("%+v takes %v to fill to %d, its text %v to %d", l, l.TimeToFull(), l.Capacity(),
			again.TimeToFull(), again.Capacity())
	}
}
