package rival

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

const (
	ms     = int64(1000) // microseconds
	second = 1000 * ms
)

// tenPerSecond allows 5 at once and one more every 100 ms: its window Burst/R is 500 ms.
var tenPerSecond = lease.PerSecond(10).WithBurst(5)

// fleetOf is n processes whose clocks are right, with one key.
func fleetOf(n int, limits ...lease.Limit) Fleet {
	return Fleet{Processes: n, Limits: limits, Keys: 1}
}

// ahead is a fleet of two: the clock of the second is d microseconds ahead.
func ahead(d int64, limits ...lease.Limit) Fleet {
	f := fleetOf(2, limits...)
	f.Local = func(p int, now int64) int64 { return now + int64(p)*d }
	return f
}

func start(t *testing.T, name string, f Fleet) Algorithm {
	t.Helper()
	a, err := New(name, f)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// burst is how many of many requests for one token a process is admitted at one moment.
func burst(a Algorithm, now int64, p int) (n int64) {
	for range 1000 {
		if a.Decide(now, p, 0, 1) {
			n++
		}
	}
	return n
}

// worstExcess is by how many tokens, rounded up, the worst window of (at, n) exceeds Burst + R*w.
// It is the level of a bucket that leaks at R; the unit is a token in 10^6, so that a limit per
// second needs no fraction.
type worstExcess struct {
	limit       lease.Limit
	level, peak int64
	at          int64
}

func (w *worstExcess) admit(at, n int64) {
	const unit = 1_000_000
	w.level = max(0, w.level-w.limit.Tokens*(at-w.at)) + n*unit
	w.at = at
	w.peak = max(w.peak, w.level)
}

func (w *worstExcess) tokens() int64 {
	return max(0, (w.peak+999_999)/1_000_000-w.limit.Capacity())
}

func TestNamesAreFoundDescribedAndInOrder(t *testing.T) {
	want := []string{
		"central", "central_client", "fixed_window", "fixed_window_client", "sliding_log", "sliding_log_client",
		"sliding_cells", "sliding_cells_client", "static_split", "local_batches", "settle_afterwards",
	}
	if got := Names(); !slices.Equal(got, want) {
		t.Errorf("Names() is %v\nwant %v", got, want)
	}
	for _, name := range append(Names(), "sliding_cells:20", "sliding_cells_client:1", "local_batches:7", "settle_afterwards:5ms") {
		start(t, name, fleetOf(3, tenPerSecond))
		if text := Describe(name); text == "" || strings.Contains(text, "\n") {
			t.Errorf("Describe(%q) is %q, want one line", name, text)
		}
	}
	if text := Describe("magic"); text != "" {
		t.Errorf("Describe of an unknown name is %q", text)
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	f := fleetOf(3, tenPerSecond)
	awful := Fleet{Processes: 1, Keys: 1, Limits: []lease.Limit{{}, tenPerSecond, tenPerSecond, tenPerSecond, tenPerSecond}}
	crooked := fleetOf(3, lease.Limit{Tokens: 7, Per: 50 * 365 * 24 * time.Hour})
	crooked.Weights = []int64{1, 1 << 32, 1<<32 - 5}
	coprime := lease.Limit{Tokens: 999_983, Per: 24 * time.Hour, Burst: 4_000_000_007}
	cases := []struct {
		given, name string
		fleet       Fleet
		is          error
		says        []string
	}{
		{"no such name", "magic", f, ErrUnknown, append(Names(), `"magic"`)},
		{"a name in capitals", "CENTRAL", f, ErrUnknown, []string{`"CENTRAL"`}},
		{"an argument too many", "central:5", f, ErrArgument, []string{"central takes none"}},
		{"a colon without an argument", "local_batches:", f, ErrArgument, []string{"TOKENS is missing"}},
		{"no batch", "local_batches:0", f, ErrArgument, []string{`"0"`, "1 or more"}},
		{"a batch that is no number", "local_batches:ten", f, ErrArgument, []string{`"ten"`}},
		{"no cells", "sliding_cells:0", f, ErrArgument, []string{`"0"`, "1 to 10000"}},
		{"too many cells", "sliding_cells_client:10001", f, ErrArgument, []string{`"10001"`, "1 to 10000"}},
		{"a period without a unit", "settle_afterwards:50", f, ErrArgument, []string{`"50"`, "with a unit"}},
		{"a period of nothing", "settle_afterwards:0s", f, ErrArgument, []string{`"0s"`, "from 1us"}},
		{"a period that is no whole microsecond", "settle_afterwards:1500ns", f, ErrArgument, []string{`"1500ns"`}},
		{"a period of a year", "settle_afterwards:8760h", f, ErrArgument, []string{"24h0m0s"}},
		{"all at once", "central", awful, ErrLimit, []string{"there are 5 Limits", "Limits[0]", "Tokens is 0"}},
		{"cells below a microsecond", "sliding_cells", fleetOf(1, lease.Limit{Tokens: 1, Per: 9 * time.Microsecond}), ErrLimit, []string{"9/10 us", "at least 1"}},
		{"a window below a microsecond", "fixed_window", fleetOf(1, lease.Limit{Tokens: 3, Per: time.Microsecond, Burst: 1}), ErrLimit, []string{"1/3 us"}},
		{"cells that cannot be held", "sliding_cells", fleetOf(1, coprime), ErrLimit, []string{"cannot be held exactly"}},
		{"parts that cannot be held", "static_split", crooked, ErrLimit, []string{"cannot be held exactly"}},
	}
	for _, c := range cases {
		a, err := New(c.name, c.fleet)
		if !errors.Is(err, c.is) || a != nil {
			t.Errorf("%s: New(%q) is %v, error %v; want one that wraps %v", c.given, c.name, a, err, c.is)
			continue
		}
		for _, text := range c.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: the error does not say %q:\n%v", c.given, text, err)
			}
		}
	}
}
