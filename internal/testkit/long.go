package testkit

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// longVariable is the environment variable that enables the long tests. A flag would not work: go test ./...
// fails in every package that does not define the flag.
const longVariable = "YUZHI_LONG"

// Long reports whether YUZHI_LONG=1 enables the long tests. In a short run, Long logs the cases of t that
// run, the number of all cases, and the command for all.
func Long(t testing.TB, part, whole string) bool {
	t.Helper()
	if os.Getenv(longVariable) == "1" {
		return true
	}
	t.Logf("short run: %s of %s; the whole: %s", part, whole, longCommand(t))
	return false
}

// ShortOrLong returns the number of repetitions for t: long with YUZHI_LONG=1, otherwise short.
func ShortOrLong(t testing.TB, short, long int, what string) int {
	t.Helper()
	if Long(t, fmt.Sprint(short), fmt.Sprintf("%d %s", long, what)) {
		return long
	}
	return short
}

// LongOnly skips t in a short run. A short test should check the same rule as t.
func LongOnly(t testing.TB) {
	t.Helper()
	if os.Getenv(longVariable) != "1" {
		t.Skip("long: " + longCommand(t))
	}
}

func longCommand(t testing.TB) string {
	test, _, _ := strings.Cut(t.Name(), "/")
	return fmt.Sprintf("%s=1 go test ./%s -run '^%s$'", longVariable, folder(), test)
}
