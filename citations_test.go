package yuzhi_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// repository is what a text may cite: files and folders by their path from the root, tests by the
// folder of their package, sections of docs/protocol.md, and the headings of every page.
type repository struct {
	files    map[string]bool
	folders  map[string]bool
	names    map[string]bool // of files, without their folders
	tests    map[string][]string
	sections map[string]bool
	anchors  map[string][]string
}

var (
	testDeclaration    = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	sectionDeclaration = regexp.MustCompile(`(?m)^(?:## (\d+)\. |\*\*(\d+\.\d+)\b)`)
	headingDeclaration = regexp.MustCompile(`(?m)^#+ (.+)$`)

	fileCitation    = regexp.MustCompile(`(^|[^\w*./-])((?:\.{0,2}/)?[\w-]+(?:[\w./-]*[\w-])?\.(?:md|go|lua))\b`)
	folderCitation  = regexp.MustCompile(`(^|[^\w./-])(?:\./)?((?:clock|lease|redisbucket|hybrid|sim|internal|docs)(?:/[\w.-]*\w)+)`)
	sectionCitation = regexp.MustCompile(`(?i)\bsections?\s+(\d+(?:\.\d+)*)(?:(?:,| and| to| or) (\d+(?:\.\d+)*))?`)
	ruleCitation    = regexp.MustCompile(`\bprotocol\.md(?:\)|,)? (\d+(?:\.\d+)*)`)
	testCitation    = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
	linkCitation    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	goCommand       = regexp.MustCompile(`\bgo (?:test|run|build|vet) [^` + "`" + `\n]*`)
	runFlag         = regexp.MustCompile(`-(?:run|bench|fuzz)[ =]('[^']*'|\S+)`)
	peersTests      = regexp.MustCompile(`x/time/rate(?:'s|,| \()? ?Test\w+(?: and Test\w+)?`)
	packageArgument = regexp.MustCompile(`(?:^|\s)(\./[\w./-]*|\.)(?:\s|$|\))`)
)

// TestCitationsExist: comments, pages and scripts cite only files, folders, sections, tests and
// headings that are there.
func TestCitationsExist(t *testing.T) {
	r := readRepository(t)
	for file := range r.files {
		for _, text := range citingTexts(t, file) {
			for _, complaint := range r.check(file, text.words) {
				t.Errorf("%s:%d: %s", file, text.line, complaint)
			}
		}
	}
}

// TestCitationsAreChecked: each kind of citation is noticed where it leads nowhere, and only there.
func TestCitationsAreChecked(t *testing.T) {
	r := readRepository(t)
	for text, want := range map[string]string{
		"see docs/protocol.md section 4, step 5":             "",
		"see docs/design.md":                                 "docs/design.md",
		"the rules are in bucket_gone.go, which":             "bucket_gone.go",
		"lease.lua and open.lua":                             "",
		"lease.lua and gone.lua":                             "gone.lua",
		"the tests below internal/gone say":                  "internal/gone",
		"docs/protocol.md section 12":                        "section 12",
		"docs/protocol.md 5.99":                              "section 5.99",
		"sections 4 and 13":                                  "section 13",
		"as TestCitationsAreChecked shows":                   "",
		"as TestNothingOfTheKind shows":                      "TestNothingOfTheKind",
		"`go test -run CitationsExist .`":                    "",
		"`go test -run NothingOfTheKind ./lease`":            "NothingOfTheKind",
		"`go test -run TestCitationsExist ./lease`":          "TestCitationsExist",
		"`go test ./gone`":                                   "./gone",
		"[the licence](LICENSE)":                             "",
		"[gone](docs/gone.html)":                             "docs/gone.html",
		"[words](docs/protocol.md#2-words)":                  "",
		"[words](docs/protocol.md#99-words)":                 "#99-words",
		"[elsewhere](https://example.org/docs/elsewhere.md)": "",
	} {
		complaints := strings.Join(r.check("README.md", text), "; ")
		if (complaints == "") != (want == "") || !strings.Contains(complaints, want) {
			t.Errorf("%q: the complaint is %q, want one about %q", text, complaints, want)
		}
	}
}

// TestCommentsAreNarrow: no line of a comment that stands alone is wider than 100 characters.
func TestCommentsAreNarrow(t *testing.T) {
	for file := range readRepository(t).files {
		mark, ok := map[string]string{".go": "//", ".lua": "--"}[path.Ext(file)]
		if !ok || path.Base(file) == "example_test.go" { // where comments are output
			continue
		}
		for i, line := range strings.Split(read(t, file), "\n") {
			if width := utf8.RuneCountInString(line); width > 100 && strings.HasPrefix(strings.TrimSpace(line), mark) {
				t.Errorf("%s:%d is a comment of %d characters", file, i+1, width)
			}
		}
	}
}

// TestProtocolNamesEveryMutation: section 11 has each rule that a test takes out of package lease.
func TestProtocolNamesEveryMutation(t *testing.T) {
	protocol := read(t, "docs/protocol.md")
	mutations := regexp.MustCompile(`(?m)^\t\{name: "(.*)",$`).FindAllStringSubmatch(read(t, "lease/mutation_test.go"), -1)
	if len(mutations) == 0 {
		t.Error("lease/mutation_test.go has no mutation, or names them otherwise")
	}
	for _, m := range mutations {
		if !strings.Contains(protocol, "| "+m[1]+" |") {
			t.Errorf("docs/protocol.md section 11 has no row for %q", m[1])
		}
	}
}

// TestFaultsPageNamesEveryTest: a test that is named after a row stands in that row of
// docs/faults.md.
func TestFaultsPageNamesEveryTest(t *testing.T) {
	rows := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|.*$`).FindAllStringSubmatch(read(t, "docs/faults.md"), -1) {
		rows[fmt.Sprintf("%02s", m[1])] = m[0]
	}
	for _, test := range readRepository(t).tests["internal/faults"] {
		if m := regexp.MustCompile(`^TestRow(\d\d)`).FindStringSubmatch(test); m != nil && !strings.Contains(rows[m[1]], "`"+test+"`") {
			t.Errorf("row %s of docs/faults.md does not name %s", m[1], test)
		}
	}
}

func readRepository(t *testing.T) repository {
	t.Helper()
	r := repository{
		files: map[string]bool{}, folders: map[string]bool{}, names: map[string]bool{},
		tests: map[string][]string{}, sections: map[string]bool{}, anchors: map[string][]string{},
	}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir():
			r.folders[name] = true
			return nil
		}
		r.files[name], r.names[entry.Name()] = true, true
		switch path.Ext(name) {
		case ".go":
			if strings.HasSuffix(name, "_test.go") {
				for _, m := range testDeclaration.FindAllStringSubmatch(read(t, name), -1) {
					r.tests[path.Dir(name)] = append(r.tests[path.Dir(name)], m[1])
				}
			}
		case ".md":
			for _, m := range headingDeclaration.FindAllStringSubmatch(read(t, name), -1) {
				r.anchors[name] = append(r.anchors[name], anchor(m[1]))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range sectionDeclaration.FindAllStringSubmatch(read(t, "docs/protocol.md"), -1) {
		r.sections[m[1]+m[2]] = true
	}
	return r
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// anchor is the name that a link gives a heading.
func anchor(heading string) string {
	keep := func(c rune) rune {
		switch {
		case unicode.IsLetter(c) || unicode.IsDigit(c) || c == '-' || c == '_':
			return unicode.ToLower(c)
		case c == ' ':
			return '-'
		}
		return -1
	}
	return strings.Map(keep, heading)
}

// passage is a piece of text that may cite something.
type passage struct {
	line  int
	words string
}

// citingTexts are the passages of a file that are for people: all of a page or a script, and the
// comments of a program.
func citingTexts(t *testing.T, file string) []passage {
	t.Helper()
	switch {
	case strings.HasSuffix(file, ".go"):
		return goComments(t, file)
	case strings.HasSuffix(file, ".md"), strings.HasPrefix(file, ".ci/"):
		return lines(read(t, file), "")
	case strings.HasSuffix(file, ".lua"):
		return lines(read(t, file), "--")
	}
	return nil
}

func goComments(t *testing.T, file string) (texts []passage) {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range parsed.Comments {
		texts = append(texts, passage{set.Position(group.Pos()).Line, group.Text()})
	}
	return texts
}

// lines are the paragraphs of a text, or of its comments where they begin with a mark.
func lines(text, mark string) (texts []passage) {
	fresh := true
	for i, line := range strings.Split(text, "\n") {
		_, comment, found := strings.Cut(line, mark)
		if !found || strings.TrimSpace(comment) == "" {
			fresh = true
			continue
		}
		if fresh {
			texts = append(texts, passage{line: i + 1})
		}
		fresh = strings.HasPrefix(line, "|") // a row of a table stands alone
		texts[len(texts)-1].words += comment + "\n"
	}
	return texts
}

// check says what a text in a file cites that is not there.
func (r *repository) check(file, text string) (complaints []string) {
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	for _, m := range linkCitation.FindAllStringSubmatch(text, -1) {
		target, fragment, _ := strings.Cut(m[1], "#")
		page := path.Join(path.Dir(file), target)
		switch {
		case strings.Contains(target, "://"):
		case target == "":
			page = file
			fallthrough
		case r.files[page] || r.folders[page]:
			if fragment != "" && !slices.Contains(r.anchors[page], fragment) {
				complain("the link %s#%s leads to no heading", target, fragment)
			}
		default:
			complain("the link %s leads nowhere", target)
		}
	}
	text = linkCitation.ReplaceAllString(text, "]")
	for _, m := range fileCitation.FindAllStringSubmatch(text, -1) {
		if name := strings.TrimPrefix(m[2], "./"); !r.hasFile(file, name) {
			complain("there is no file %s", name)
		}
	}
	for _, m := range folderCitation.FindAllStringSubmatch(text, -1) {
		if !r.files[m[2]] && !r.folders[m[2]] && !r.folders[strings.TrimSuffix(m[2], path.Ext(m[2]))] {
			complain("there is no folder or file %s", m[2])
		}
	}
	for _, m := range slices.Concat(sectionCitation.FindAllStringSubmatch(text, -1), ruleCitation.FindAllStringSubmatch(text, -1)) {
		for _, section := range m[1:] {
			if section != "" && !r.sections[section] {
				complain("docs/protocol.md has no section %s", section)
			}
		}
	}
	commands := goCommand.FindAllString(text, -1)
	for _, command := range commands {
		complaints = append(complaints, r.checkCommand(command)...)
	}
	text = peersTests.ReplaceAllString(goCommand.ReplaceAllString(text, ""), "")
	for _, m := range testCitation.FindAllString(text, -1) {
		if !r.hasTest(m, strings.HasPrefix(file, ".ci/")) {
			complain("there is no test %s", m)
		}
	}
	return complaints
}

// hasFile reports whether a file is cited from the root, from the citing file's folder, or by its
// bare name.
func (r *repository) hasFile(from, name string) bool {
	return r.files[name] || r.files[path.Join(path.Dir(from), name)] || !strings.Contains(name, "/") && r.names[name]
}

// hasTest reports whether there is a test of that name; a script may give the beginning of it.
func (r *repository) hasTest(name string, prefix bool) bool {
	for _, tests := range r.tests {
		if slices.ContainsFunc(tests, func(have string) bool {
			return have == name || prefix && strings.HasPrefix(have, name)
		}) {
			return true
		}
	}
	return false
}

// checkCommand says which package of a go command is not there, and which of the
// alternatives that it selects match no test of those packages.
func (r *repository) checkCommand(command string) (complaints []string) {
	var tests []string
	for _, m := range packageArgument.FindAllStringSubmatch(command, -1) {
		folder, below := strings.CutSuffix(path.Clean(m[1]), "/...")
		if folder == "..." {
			folder, below = ".", true
		}
		if !r.folders[folder] {
			complaints = append(complaints, "there is no package "+m[1])
		}
		for have, names := range r.tests {
			if have == folder || below && (folder == "." || strings.HasPrefix(have, folder+"/")) {
				tests = append(tests, names...)
			}
		}
	}
	for _, m := range runFlag.FindAllStringSubmatch(command, -1) {
		for alternative := range strings.SplitSeq(strings.Trim(m[1], "'"), "|") {
			pattern, err := regexp.Compile(strings.Split(alternative, "/")[0])
			switch {
			case err != nil:
				complaints = append(complaints, err.Error())
			case alternative == "^$" || strings.Contains(alternative, `"`): // none on purpose; a script's variable
			case !slices.ContainsFunc(tests, pattern.MatchString):
				complaints = append(complaints, fmt.Sprintf("%s: no test matches %s", command, alternative))
			}
		}
	}
	return complaints
}
