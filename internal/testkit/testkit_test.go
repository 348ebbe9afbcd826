package testkit

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a test that fails without failing this one.
type recorder struct {
	testing.TB
	failed  bool
	logged  string
	skipped string
}

func (r *recorder) Failed() bool                 { return r.failed }
func (r *recorder) Logf(format string, a ...any) { r.logged += fmt.Sprintf(format, a...) }
func (r *recorder) Skip(a ...any)                { r.skipped = fmt.Sprint(a...) }
func (r *recorder) Fatalf(format string, a ...any) {
	r.failed = true
	r.Logf(format, a...)
	panic(r) // ends what called it, as Goexit would
}

func TestEventuallyWaitsForWhatComesAndFailsWithWhatDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := time.Now()
		Eventually(t, "half a minute passes", func() bool { return time.Since(from) >= 30*time.Second })

		r := &recorder{TB: t}
		defer func() {
			if recover(); !r.failed || !strings.Contains(r.logged, "not within a minute: the moon falls") {
				t.Errorf("what never comes: failed %v, %q", r.failed, r.logged)
			}
		}()
		Eventually(r, "the moon falls", func() bool { return false })
	})
}

func TestAFailureSaysHowToRepeatIt(t *testing.T) {
	t.Setenv(variable, "")
	r := &recorder{TB: t}
	var last uint64
	seen := map[uint64]bool{}

	for last = range Seeds(r, 5) {
		seen[last] = true
		r.failed = len(seen) == 3
	}

	if len(seen) != 3 {
		t.Errorf("%d seeds were tried, the third fails", len(seen))
	}
	want := fmt.Sprintf("replay: YUZHI_SEED=%d go test ./internal/testkit -run '^%s$'", last, t.Name())
	if r.logged != want {
		t.Errorf("it says %q, want %q", r.logged, want)
	}
	t.Setenv(variable, fmt.Sprint(last))
	again := 0
	for seed := range Seeds(t, 5) {
		if again++; seed != last || Seed(t) != last {
			t.Errorf("the seed is %d, want %d", seed, last)
		}
	}
	if again != 1 {
		t.Errorf("one seed was given and %d were tried", again)
	}
}

func TestAShortRunSaysWhatTheWholeIs(t *testing.T) {
	command := fmt.Sprintf("YUZHI_LONG=1 go test ./internal/testkit -run '^%s$'", t.Name())

	t.Setenv(longVariable, "")
	r := &recorder{TB: t}
	n := ShortOrLong(r, 5, 500, "seeds")
	want := "short run: 5 of 500 seeds; the whole: " + command
	Check(t, n == 5 && r.logged == want, "short: %d, with the log %q, want %q", n, r.logged, want)
	LongOnly(r)
	Check(t, r.skipped == "long: "+command, "a test that is long only is skipped with %q", r.skipped)

	t.Setenv(longVariable, "1")
	r = &recorder{TB: t}
	n = ShortOrLong(r, 5, 500, "seeds")
	LongOnly(r)
	Check(t, n == 500 && r.logged == "" && r.skipped == "",
		"long: %d, with the log %q, skipped %q", n, r.logged, r.skipped)
}
