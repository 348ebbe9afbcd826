package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// prose is a call that cuts or searches the text of an error.
var prose = regexp.MustCompile(`\b(strings|bytes|fmt\.Ss?canf?)\.?\w*\(\w*[eE]rr\w*\.Error\(\)`)

// eachSource calls f with the path and the text of every Go file that is no test.
func eachSource(t *testing.T, f func(path string, text []byte)) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			f(path, text)
		}
		return err
	})
	testkit.NoErr(t, err)
}

// A message may be reworded at any time: code reads a lease.Violation, or a sentinel.
func TestNoCodeReadsTheProseOfAnError(t *testing.T) {
	eachSource(t, func(path string, text []byte) {
		if found := prose.Find(text); found != nil {
			t.Errorf("%s: %s", path, found)
		}
	})
}

// avoided is the sentence of CONTRIBUTING.md with the words that no name has, and word is one word of a name.
var (
	avoided = regexp.MustCompile(`No name has one of these words: ([^.]+)\.`)
	word    = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
)

func TestNoNameHasAnAvoidedWord(t *testing.T) {
	page, err := os.ReadFile("../../CONTRIBUTING.md")
	testkit.NoErr(t, err)
	list := avoided.FindSubmatch(page)
	testkit.Must(t, list != nil, "CONTRIBUTING.md has no such list")
	words := strings.FieldsFunc(string(list[1]), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
	names := 0
	eachSource(t, func(path string, text []byte) {
		f, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		testkit.NoErr(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			names++
			for _, w := range word.FindAllString(id.Name, -1) {
				testkit.Check(t, !slices.Contains(words, strings.ToLower(w)), "%s: %s", path, id.Name)
			}
			return true
		})
	})
	testkit.Check(t, len(words) > 10 && names > 10000, "%d words, %d names", len(words), names)
}
