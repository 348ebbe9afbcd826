package render

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLongSentencesAreWrappedAtBlanks(t *testing.T) {
	text := strings.Repeat("± four ", 60) + "end"
	wrapped := Wrap(text)
	for line := range strings.SplitSeq(wrapped, "\n") {
		if n := utf8.RuneCountInString(line); n > 120 || line != strings.TrimSpace(line) {
			t.Errorf("%d characters: %q", n, line)
		}
	}
	if got := strings.ReplaceAll(wrapped, "\n", " "); got != text {
		t.Errorf("words were lost: %q", got)
	}
	// Paragraphs, indents and words that are too long stay.
	long := strings.Repeat("x", 130)
	for _, same := range []string{"", "a\n\nb", "  a b", "a   b", long} {
		if got := Wrap(same); got != same {
			t.Errorf("%q became %q", same, got)
		}
	}
	if got := Wrap("  a " + long); got != "  a\n  "+long {
		t.Errorf("%q", got)
	}
}

func TestAScenarioWithoutANameHasAHeading(t *testing.T) {
	if Heading("") != "unnamed scenario" || Heading("a") != "a" {
		t.Errorf("%q, %q", Heading(""), Heading("a"))
	}
}
