package render

import (
	"strings"
	"unicode/utf8"
)

// lineMax is how many characters a line of a report on a terminal has at most.
const lineMax = 120

// Wrap breaks text at blanks, into lines of at most 120 characters. A longer word stays whole, and so do the blanks that
// a line begins with, which the lines below it get too.
func Wrap(text string) string {
	var lines []string
	for paragraph := range strings.SplitSeq(text, "\n") {
		indent := paragraph[:len(paragraph)-len(strings.TrimLeft(paragraph, " "))]
		if utf8.RuneCountInString(paragraph) <= lineMax {
			lines = append(lines, paragraph)
			continue
		}
		line := indent
		for _, word := range strings.Fields(paragraph) {
			switch {
			case line == indent:
				line += word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > lineMax:
				lines, line = append(lines, line), indent+word
			default:
				line += " " + word
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// Heading is the name of a scenario, or words for one without.
func Heading(scenario string) string {
	if scenario == "" {
		return "unnamed scenario"
	}
	return scenario
}
