package docs

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// root is the root of the repository.
const root = "../.."

// exe ends the names of programs, which Windows does not run without it.
var exe = map[bool]string{true: ".exe"}[runtime.GOOS == "windows"]

// repository has the files, tests and sections that a text may cite.
type repository struct {
	texts    map[string]string   // of the pages, sources and scripts, by their paths from the root
	folders  map[string]bool     // and files, by their paths and by their bare names
	tests    map[string][]string // by the folder of their package
	sections map[string]bool     // of docs/protocol.md
}

var (
	testDeclaration    = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	sectionDeclaration = regexp.MustCompile(`(?m)^(?:## (\d+)\. |\*\*(\d+\.\d+)\b)`)
	codeSpan           = regexp.MustCompile("`([^`]+)`")
	fencedBlock        = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")
)

// read returns the repository, which it reads once for all tests.
func read(t *testing.T) *repository {
	t.Helper()
	r, err := readOnce()
	testkit.NoErr(t, err)
	return r
}

var readOnce = sync.OnceValues(func() (*repository, error) {
	r := &repository{map[string]string{}, map[string]bool{}, map[string][]string{}, map[string]bool{}}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, file)
		name = filepath.ToSlash(name)
		if entry.IsDir() && (name == ".git" || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		r.folders[name], r.folders[entry.Name()] = true, true
		if !slices.Contains([]string{".go", ".lua", ".md"}, path.Ext(name)) && path.Dir(name) != ".ci" {
			return nil
		}
		text, err := os.ReadFile(file)
		r.texts[name] = string(text)
		if strings.HasSuffix(name, "_test.go") {
			for _, m := range testDeclaration.FindAllSubmatch(text, -1) {
				r.tests[path.Dir(name)] = append(r.tests[path.Dir(name)], string(m[1]))
			}
		}
		return err
	})
	for _, m := range sectionDeclaration.FindAllStringSubmatch(r.texts["docs/protocol.md"], -1) {
		r.sections[m[1]+m[2]] = true
	}
	return r, err
})

// pages are the paths of the pages in order.
func (r *repository) pages() (all []string) {
	for _, file := range slices.Sorted(maps.Keys(r.texts)) {
		if path.Ext(file) == ".md" {
			all = append(all, file)
		}
	}
	return all
}

// block is a fenced block of a page, and the line where its text begins.
type block struct {
	line int
	text string
}

// blocks are the blocks of a page that are fenced as language.
func (r *repository) blocks(page, language string) (all []block) {
	text := r.texts[page]
	for _, m := range fencedBlock.FindAllStringSubmatchIndex(text, -1) {
		if text[m[2]:m[3]] == language {
			all = append(all, block{strings.Count(text[:m[4]], "\n") + 1, text[m[4]:m[5]]})
		}
	}
	return all
}
