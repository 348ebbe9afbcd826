package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// prose is a call that cuts or searches the text of an error.
var prose = regexp.MustCompile(`\b(strings|bytes|fmt\.Ss?canf?)\.?\w*\(\w*[eE]rr\w*\.Error\(\)`)

// A message may be reworded at any time: code reads a lease.Violation, or a sentinel.
func TestNoCodeReadsTheProseOfAnError(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if found := prose.Find(text); found != nil {
			t.Errorf("%s: %s", path, found)
		}
		return err
	})
	testkit.NoErr(t, err)
}
