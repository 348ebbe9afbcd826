package safetext

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// Control characters and texts without end do not reach a log.
func TestErrorsAreBoundedAndHaveNoControlCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"ERR wrong \x1b[31mred\x1b[0m": `ERR wrong \x1b[31mred\x1b[0m`,
		"two\nlines\r\x00\x9b":         `two\nlines\r\x00` + "\ufffd",
		"rtl \u202e and 限流器":           `rtl \u202e and 限流器`,
		strings.Repeat("a", 999):       strings.Repeat("a", 999),
		strings.Repeat("a", 1<<20):     strings.Repeat("a", 1000) + "…",
		strings.Repeat("\x1b", 1<<20):  strings.Repeat(`\x1b`, 250) + "…",
	} {
		got := Error(errors.New(text)).Error()
		testkit.Check(t, got == want, "%.40q: %.100q, want %.100q", text, got, want)
	}
	testkit.Check(t, Error(nil) == nil && errors.Is(Error(io.EOF), io.EOF), "an error is another one")
}
