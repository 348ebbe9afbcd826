package docs

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

var (
	fileCitation = regexp.MustCompile(
		`(?:^|[^\w*./-])(?:\.{0,2}/)?([\w-]+(?:[\w./-]*[\w-])?\.(?:md|go|lua))\b`)
	folderCitation = regexp.MustCompile(
		`(?:^|[^\w./-])(?:\./)?((?:clock|lease|redisbucket|hybrid|sim|internal|docs)(?:/[\w.-]*\w)+)`)
	sectionCitation = regexp.MustCompile(
		`(?i)(?:\bsections?\s+|\bprotocol\.md\)? )(\d+(?:\.\d+)*)(?:(?:,| and| to| or) (\d+(?:\.\d+)*))?`)
	testCitation    = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
	linkCitation    = regexp.MustCompile(`\]\(([^)\s#]*)(#[^)\s]*)?\)`)
	goCommand       = regexp.MustCompile("\\bgo (?:test|run|build|vet) [^`\n]*")
	runFlag         = regexp.MustCompile(`-(?:run|bench|fuzz)[ =]('[^']*'|\S+)`)
	packageArgument = regexp.MustCompile(`(?:^|\s)(\./[\w./-]*|\.)(?:\s|$|\))`)
	peersTests      = regexp.MustCompile(`x/time/rate(?:'s|,| \()? ?Test\w+(?: and Test\w+)?`)
)

// TestCitationsExist: comments, pages and scripts cite only files, folders, sections, tests and
// headings that are there.
func TestCitationsExist(t *testing.T) {
	r := read(t)
	for file, text := range r.texts {
		mark := map[string]string{".go": "//", ".lua": "--"}[path.Ext(file)]
		var words strings.Builder
		for line := range strings.SplitSeq(text, "\n") {
			_, comment, _ := strings.Cut(line, mark) // without a mark all of it
			fmt.Fprintln(&words, comment)
		}
		for _, complaint := range r.check(file, words.String()) {
			t.Errorf("%s: %s", file, complaint)
		}
	}
}

// TestCitationsAreChecked: each kind of citation is noticed where it leads nowhere, and only there.
func TestCitationsAreChecked(t *testing.T) {
	const absent = "nowhere" + ".md" // in parts, so that a search for citations does not find one here
	r := read(t)
	for text, want := range map[string]string{
		"see docs/protocol.md section 4, step 5":        "",
		"see docs/" + absent:                            "docs/" + absent,
		"lease.lua and open.lua":                        "",
		"lease.lua and gone.lua":                        "gone.lua",
		"the tests below internal/gone say":             "internal/gone",
		"docs/protocol.md section 12":                   "section 12",
		"docs/protocol.md 5.99":                         "section 5.99",
		"sections 4 and 13":                             "section 13",
		"as TestCitationsAreChecked shows":              "",
		"as TestNothingOfTheKind shows":                 "TestNothingOfTheKind",
		"`go test -run CitationsExist ./internal/docs`": "",
		"`go test -run TestCitationsExist ./lease`":     "TestCitationsExist",
		"`go test ./gone`":                              "./gone",
		"[the licence](LICENSE)":                        "",
		"[gone](docs/gone.html)":                        "docs/gone.html",
		"[words](docs/protocol.md#2-words)":             "",
		"[words](docs/protocol.md#99-words)":            "#99-words",
		"[elsewhere](https://example.org/elsewhere)":    "",
	} {
		complaints := strings.Join(r.check("README.md", text), "; ")
		testkit.Check(t, (complaints == "") == (want == "") && strings.Contains(complaints, want),
			"%q: the complaint is %q, want one about %q", text, complaints, want)
	}
}

// TestPagesNameTheirTests: section 11 of the protocol has each rule that a test takes out of
// package lease, and each row of docs/faults.md the tests that are named after it.
func TestPagesNameTheirTests(t *testing.T) {
	r := read(t)
	mutation := regexp.MustCompile(`(?m)^\t\{name: +"([^"]*)",`)
	mutations := mutation.FindAllStringSubmatch(r.texts["internal/protocol/mutation_test.go"], -1)
	all := strings.Count(r.texts["internal/protocol/mutation_test.go"], "\t{name:")
	testkit.Check(t, len(mutations) == all && all > 50, "%d names of %d mutations", len(mutations), all)
	for _, m := range mutations {
		testkit.Check(t, strings.Contains(r.texts["docs/protocol.md"], "| "+m[1]+" |"),
			"docs/protocol.md section 11 has no row for %q", m[1])
	}
	for _, test := range r.tests["internal/faults"] {
		m := regexp.MustCompile(`^TestRow0?(\d+)`).FindStringSubmatch(test)
		if m != nil {
			row := regexp.MustCompile(`(?m)^\| ` + m[1] + " .*`" + test + "`")
			testkit.Check(t, row.MatchString(r.texts["docs/faults.md"]),
				"row %s of docs/faults.md does not name %s", m[1], test)
		}
	}
}

// check says what a text in a file cites that is not there.
func (r *repository) check(file, text string) (complaints []string) {
	complain := func(is bool, format string, args ...any) {
		if !is {
			complaints = append(complaints, fmt.Sprintf(format, args...))
		}
	}
	here := path.Dir(file)
	for _, m := range linkCitation.FindAllStringSubmatch(text, -1) {
		page := path.Join(here, m[1])
		complain(strings.Contains(m[1], "://") || r.folders[page], "the link %s leads nowhere", m[1])
		if m[1] == "" {
			page = file
		}
		complain(m[2] == "" || r.hasHeading(page, m[2]), "there is no heading %s", m[2])
	}
	text = linkCitation.ReplaceAllString(text, "]")
	for _, m := range fileCitation.FindAllStringSubmatch(text, -1) {
		complain(r.folders[m[1]] || r.folders[path.Join(here, m[1])], "there is no file %s", m[1])
	}
	for _, m := range folderCitation.FindAllStringSubmatch(text, -1) {
		whole := strings.TrimSuffix(m[1], path.Ext(m[1])) // of hybrid/xtime.New the folder
		complain(r.folders[m[1]] || r.folders[whole], "there is no folder %s", m[1])
	}
	for _, m := range sectionCitation.FindAllStringSubmatch(text, -1) {
		complain(r.sections[m[1]], "docs/protocol.md has no section %s", m[1])
		complain(m[2] == "" || r.sections[m[2]], "docs/protocol.md has no section %s", m[2])
	}
	for _, command := range goCommand.FindAllString(text, -1) {
		var tests []string
		for _, m := range packageArgument.FindAllStringSubmatch(strings.ReplaceAll(command, " ", "  "), -1) {
			argument, below := strings.CutSuffix(m[1], "...")
			folder := path.Clean(argument)
			complain(r.folders[folder], "there is no package %s", m[1])
			for have, names := range r.tests {
				if have == folder || below && (folder == "." || strings.HasPrefix(have, folder+"/")) {
					tests = append(tests, names...)
				}
			}
		}
		for _, m := range runFlag.FindAllStringSubmatch(command, -1) {
			for pattern := range strings.SplitSeq(strings.Trim(m[1], "'"), "|") {
				if pattern == "^$" || strings.Contains(pattern, `"`) { // none on purpose; a script's variable
					continue
				}
				matches := slices.ContainsFunc(tests, regexp.MustCompile(pattern).MatchString)
				complain(matches, "%s: no test matches %s", command, pattern)
			}
		}
	}
	text = peersTests.ReplaceAllString(goCommand.ReplaceAllString(text, ""), "")
	for _, name := range testCitation.FindAllString(text, -1) {
		found := false
		for _, tests := range r.tests {
			found = found || slices.ContainsFunc(tests, func(have string) bool {
				return have == name || here == ".ci" && strings.HasPrefix(have, name)
			})
		}
		complain(found, "there is no test %s", name)
	}
	return complaints
}

// hasHeading reports whether a page has the heading that #anchor leads to.
func (r *repository) hasHeading(page, anchor string) bool {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(r.texts[page], -1) {
		plain := regexp.MustCompile(`[^\pL\pN_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		if "#"+strings.ReplaceAll(plain, " ", "-") == anchor {
			return true
		}
	}
	return false
}
