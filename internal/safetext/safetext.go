// Package safetext makes texts of servers, files and users safe for logs and terminals: some terminals obey
// control characters, and some logs keep lines of any length.
package safetext

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Odd reports whether r is not printable.
func Odd(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }

// Text returns about the first `most` bytes of text, with odd characters escaped except those in keep.
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

// errorMost bounds the text of an error in bytes: a few times the longest error of this module.
const errorMost = 1000

// Error returns an error that wraps err, with a bounded text on one line without control characters. Error
// returns nil for nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	return shown{err}
}

type shown struct{ error }

func (s shown) Error() string { return Text(s.error.Error(), errorMost, "") }

func (s shown) Unwrap() error { return s.error }
