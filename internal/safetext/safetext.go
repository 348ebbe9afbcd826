// Package safetext makes texts of servers, files and users fit for logs and terminals, which may obey
// control characters and keep lines of any length.
package safetext

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Odd reports whether r is no character that is printed.
func Odd(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }

// Text returns text with odd characters escaped, but for those in keep, and about most bytes of it.
func Text(text string, most int, keep string) string {
	var b strings.Builder
	for _, r := range text {
		if b.Len() >= most {
			return b.String() + "…"
		}
		if Odd(r) && !strings.ContainsRune(keep, r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// errorMost bounds the text of an error in bytes: a few times the longest of our own.
const errorMost = 1000

// Error returns err with its text on one line, without control characters, and bounded. It wraps
// err. It is nil for nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	return shown{err}
}

type shown struct{ error }

// Error implements error.
func (s shown) Error() string { return Text(s.error.Error(), errorMost, "") }

// Unwrap returns the error as it is.
func (s shown) Unwrap() error { return s.error }
