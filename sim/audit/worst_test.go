package audit

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

const ms = int64(time.Millisecond)

// tenPerSecond allows 5 at once and then one more every 100 ms.
var tenPerSecond = Bound{Tokens: 10, Per: time.Second, Burst: 4, Overcommit: 1}

func sortByBefore(spans []Span) {
	slices.SortStableFunc(spans, func(a, b Span) int { return cmp.Compare(a.Before, b.Before) })
}

func worst(t *testing.T, b Bound, spans ...Span) Window {
	t.Helper()
	w, err := Worst(spans, b)
	testkit.NoErr(t, err)
	return w
}

func TestWorstJudgesByHand(t *testing.T) {
	cases := []struct {
		given string
		spans []Span
		want  Window
	}{
		{"nothing at all", nil, Window{}},
		{"exactly the burst at one moment",
			[]Span{{7, 7, 2}, {7, 7, 3}},
			Window{From: 7, To: 7, Admitted: 5, Bound: 5}},
		{"one more than the burst at one moment",
			[]Span{{7, 7, 2}, {7, 7, 4}},
			Window{From: 7, To: 7, Admitted: 6, Bound: 5, ExceededBy: 1}},
		{"the burst, then one more exactly when it has flowed in",
			[]Span{{0, 0, 5}, {100 * ms, 100 * ms, 1}},
			Window{From: 0, To: 0, Admitted: 5, Bound: 5}}, // as is [0, 100 ms] with 6: the first to end is named
		{"the same, one nanosecond early: a fraction of a token over counts as one",
			[]Span{{0, 0, 5}, {100*ms - 1, 100*ms - 1, 1}},
			Window{From: 0, To: 100*ms - 1, Admitted: 6, Bound: 6 - 1e-8, ExceededBy: 1}},
		{"a span that straddles the left edge stays out",
			[]Span{{100 * ms, 101 * ms, 5}, {-300 * ms, 100 * ms, 1}},
			Window{From: 100 * ms, To: 101 * ms, Admitted: 5, Bound: 5.01}},
		{"spans that begin together but end apart all count from that beginning",
			[]Span{{0, 30, 2}, {0, 10, 2}, {0, 20, 3}},
			Window{From: 0, To: 30, Admitted: 7, Bound: 5.0000003, ExceededBy: 2}},
	}
	for _, c := range cases {
		t.Run(c.given, func(t *testing.T) {
			given := slices.Clone(c.spans)
			got := worst(t, tenPerSecond, c.spans...)

			d := math.Abs(got.Bound - c.want.Bound)
			testkit.Check(t, d <= 1e-9, "displayed bound %v, want %v", got.Bound, c.want.Bound)
			got.Bound = c.want.Bound
			testkit.Check(t, got == c.want, "got  %+v\nwant %+v", got, c.want)
			testkit.Check(t, slices.Equal(given, c.spans), "the argument was modified")
		})
	}
}

func TestWorstAgreesWithTheDefinition(t *testing.T) {
	rng := testkit.Rand(t)
	rounds := testkit.ShortOrLong(t, 100, 700, "rounds for each kind of limit")
	exceeded := 0
	for _, w := range worlds {
		for range rounds {
			spans, b := w.draw(rng)
			got, err := Worst(spans, b)
			if err == nil {
				err = verify(spans, b, got)
			}
			testkit.Must(t, err == nil, "%s: %v", w.name, err)
			if got.ExceededBy > 0 {
				exceeded++
			}
		}
	}
	// A draw that never or always exceeds would prove little.
	if all := rounds * len(worlds); exceeded < all/10 || exceeded > all*9/10 {
		t.Errorf("%d of %d cases exceed the bound: the draw is lopsided", exceeded, all)
	}
}

func TestWorstRefusesWhatItCannotJudgeExactly(t *testing.T) {
	const most = math.MaxInt64
	ok := Bound{Tokens: 1, Per: 1}
	cases := []struct {
		given string
		spans []Span
		bound Bound
		is    error
		says  []string
	}{
		{"a zero bound", nil, Bound{}, ErrBound, []string{"Per:0s", "Per positive"}},
		{"everything wrong at once", nil, Bound{Tokens: -1, Per: -2, Burst: -3, Overcommit: -4}, ErrBound,
			[]string{"Tokens:-1 Per:-2ns Burst:-3 Overcommit:-4"}},
		{"a ceiling beyond int64", nil, Bound{Tokens: 1, Per: 1, Burst: most, Overcommit: 1}, ErrBound,
			[]string{"Burst:9223372036854775807 Overcommit:1"}},
		{"a window beyond int64", nil, Bound{Tokens: most, Per: 1, Overcommit: 1, Kind: lease.KindSliding},
			ErrBound, []string{"Tokens:9223372036854775807"}},
		{"a kind that there is not", nil, Bound{Tokens: 1, Per: 1, Kind: 3}, ErrBound, []string{"Kind:Kind(3)"}},
		{"an offset beyond the period", nil, Bound{Tokens: 1, Per: 5, Kind: lease.KindCalendar, Offset: 5},
			ErrBound, []string{"Offset:5ns"}},
		{"a span that ends before it begins", []Span{{1, 1, 1}, {5, 4, 1}}, ok, ErrSpan,
			[]string{"number 1", "Before:5 After:4"}},
		{"a negative admission", []Span{{1, 1, -1}}, ok, ErrSpan, []string{"number 0", "N:-1"}},
		{"more tokens than int64", []Span{{1, 1, most}, {1, 1, 1}}, ok, ErrSpan,
			[]string{"number 1", "the sum of N"}},
		{"more time than int64", []Span{{-2, -2, 1}, {most, most, 1}}, ok, ErrSpan,
			[]string{"[-2, 9223372036854775807]"}},
	}
	for _, c := range cases {
		t.Run(c.given, func(t *testing.T) {
			_, err := Worst(c.spans, c.bound)
			testkit.Must(t, errors.Is(err, c.is), "error %v, want one that is %v", err, c.is)
			for _, s := range c.says {
				testkit.Check(t, strings.Contains(err.Error(), s), "error %q does not say %q", err, s)
			}
		})
	}
}
