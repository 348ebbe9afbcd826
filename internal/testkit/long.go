package testkit

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// longVariable is the environment variable that asks for the long tests. A flag would not work: go test ./...
// fails in every package that does not define it.
const longVariable = "YUZHI_LONG"

// Long reports whether the long tests run: YUZHI_LONG=1 is set. Otherwise t runs only some of the cases, and
// Long logs which, how many there are in all, and the command that runs them all.
func Long(t testing.TB, part, whole string) bool {
	t.Helper()
	if os.Getenv(longVariable) == "1" {
		return true
	}
	t.Logf("short run: %s of %s; the whole: %s", part, whole, longCommand(t))
	return false
}

// ShortOrLong returns the number of repetitions for t: long with YUZHI_LONG=1, and short otherwise.
func ShortOrLong(t testing.TB, short, long int, what string) int {
	t.Helper()
	if Long(t, fmt.Sprint(short), fmt.Sprintf("%d %s", long, what)) {
		return long
	}
	return short
}

// LongOnly skips t unless the long tests run. Use it for a test whose rule other tests check in the short run
// too.
func LongOnly(t testing.TB) {
	t.Helper()
	if os.Getenv(longVariable) != "1" {
		t.Skip("long: " + longCommand(t))
	}
}

// longCommand returns the command that runs t at full length.
func longCommand(t testing.TB) string {
	test, _, _ := strings.Cut(t.Name(), "/")
	return fmt.Sprintf("%s=1 go test ./%s -run '^%s$'", longVariable, folder(), test)
}
