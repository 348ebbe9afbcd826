package main

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

func TestEveryCommandExplainsItselfWithExamplesThatParse(t *testing.T) {
	root := (&program{}).root()
	commands := append([]*cobra.Command{root}, root.Commands()...)
	if len(commands) < 6 {
		t.Fatalf("%d commands", len(commands))
	}
	names := map[string]bool{}
	for _, c := range commands {
		if names[c.Name()] {
			t.Errorf("%s is there twice", c.CommandPath())
		}
		names[c.Name()] = true
	}
	for _, c := range commands {
		if c.Short == "" || len(c.Long) < 100 || c.Example == "" {
			t.Errorf("%s does not explain itself", c.CommandPath())
		}
		for line := range strings.SplitSeq(c.Long+"\n"+c.UsageString(), "\n") {
			if n := utf8.RuneCountInString(line); n > 110 {
				t.Errorf("%s: a line of %d characters: %s", c.CommandPath(), n, line)
			}
		}
		for line := range strings.SplitSeq(c.Example, "\n") {
			words, ok := strings.CutPrefix(line, "  leasesim ")
			if !ok {
				t.Errorf("%s: the example %q is no command line", c.CommandPath(), line)
				continue
			}
			words, _, _ = strings.Cut(words, " >")
			// Each flag that an example uses must be there: a fresh tree parses it.
			found, rest, err := (&program{}).root().Find(splitWords(words))
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err == nil {
				err = found.ValidateArgs(found.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: the example %q: %v", c.CommandPath(), line, err)
			}
		}
	}
}

// splitWords splits a command line as a shell does, where words in single quotes are all that it
// has.
func splitWords(line string) (words []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

func TestTheHelpNamesEveryFigureAndEveryRival(t *testing.T) {
	_, _, help, _ := pretend(t, report(), nil, "compare", "--help")
	for _, name := range append(search.FigureNames(), rival.Names()...) {
		base := strings.TrimSuffix(name, "_client")
		if !strings.Contains(help, "  "+name+" ") && !strings.Contains(help, "  "+base+" ") || base != name && !regexp.MustCompile(`  `+base+` +\* `).MatchString(help) {
			t.Errorf("the help does not name %s", name)
		}
	}
	for _, want := range []string{"--threshold", "Exit status", "bound_exceeded_by", "-f, --file", "--set", "--seed uint", "(default 1)", "--reps", "--parallel", "--duration", "--out", "--output", "table, json, csv, html"} {
		if !strings.Contains(help, want) {
			t.Errorf("the help does not say %q", want)
		}
	}
}
