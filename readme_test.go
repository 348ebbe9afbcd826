package yuzhi_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestTheChineseREADMEKeepsStep: README.zh.md has the headings, tables, lists, code and links of
// README.md in the same order, and each names the other.
func TestTheChineseREADMEKeepsStep(t *testing.T) {
	shape := func(page string) (all []string) {
		data, err := os.ReadFile(page)
		testkit.NoErr(t, err)
		text := string(data)
		add := func(what, expression string, keep func(string) string) {
			for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
				all = append(all, what+keep(m[1]))
			}
		}
		itself := func(s string) string { return s }
		add("heading ", `(?m)^(#+) `, itself)
		add("item", `(?m)^(- )`, func(string) string { return "" })
		add("command ", `(?m)^    (\S.*)$`, itself)
		add("code ", "(?s)```(go\n.*?)```", itself)
		add("a row of columns: ", `(?m)^(\|.*\|)$`, func(row string) string { return strings.Repeat("|", strings.Count(row, "|")) })
		add("link ", `\]\(([^)]*)\)`, func(link string) string {
			return strings.Replace(link, "README.zh.md", "README.md", 1)
		})
		// What stands in code: the names of methods and settings. Sentences put them in another
		// order, so they are compared as a set.
		names := []string{}
		for _, m := range inlineCode.FindAllStringSubmatch(goBlock.ReplaceAllString(text, ""), -1) {
			names = append(names, strings.Join(strings.Fields(m[1]), " "))
		}
		slices.Sort(names)
		return append(all, slices.Compact(names)...)
	}
	english, chinese := shape("README.md"), shape("README.zh.md")
	for i := range max(len(english), len(chinese)) {
		if i >= len(english) || i >= len(chinese) || english[i] != chinese[i] {
			t.Fatalf("README.md has %q where README.zh.md has %q", rest(english, i), rest(chinese, i))
		}
	}
}

// TestTheREADMEsAreShort: what is detail stands in docs.
func TestTheREADMEsAreShort(t *testing.T) {
	for _, page := range []string{"README.md", "README.zh.md"} {
		data, err := os.ReadFile(page)
		testkit.NoErr(t, err)
		lines := strings.Count(string(data), "\n")
		testkit.Check(t, lines <= 125, "%s has %d lines, must be at most 125: move detail to docs", page, lines)
	}
}

// rest is where two lists part, for a message.
func rest(all []string, from int) []string { return all[min(from, len(all)):min(from+3, len(all))] }
