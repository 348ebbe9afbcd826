package sim_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// foreignToReports are the folders on whose floating-point arithmetic no simulated figure depends.
var foreignToReports = []string{
	"audit", // judges in integers; doubles are for messages
	"cmd",   // shows figures
	"view",  // draws pictures
}

// deciding lists the packages whose arithmetic decides what a simulation shows.
func deciding(t *testing.T) []string {
	packages := []string{"../clock", "../lease", "../internal/exact", "../internal/protocol", "."}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == "." {
			return err
		}
		if slices.Contains(foreignToReports, path) {
			return fs.SkipDir
		}
		if files, _ := filepath.Glob(filepath.Join(path, "*.go")); len(files) > 0 {
			packages = append(packages, "./"+filepath.ToSlash(path))
		}
		return nil
	})
	testkit.NoErr(t, err)
	return packages
}

// A processor that multiplies and adds in one instruction rounds once where others round twice, and
// the compiler uses it for x*y + z wherever there is one. A report that is the same on every
// machine allows none: float64(x*y) + z forbids it. A product that is handed to a function, or
// returned, needs the same, because calls are inlined.
func TestNoProductIsFusedWithASum(t *testing.T) {
	packages := []string{"./random"}
	if all := deciding(t); testkit.Long(t, "package random", fmt.Sprint(len(all), " packages")) {
		packages = all
	}
	build := exec.Command("go", append([]string{"build", "-gcflags=-S"}, packages...)...)
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	listing, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("go build %v for arm64: %v\n%s", packages, err, listing[:min(len(listing), 2000)])
	}
	testkit.Must(t, bytes.Contains(listing, []byte("FMULD")), "the assembly listing has no product at all")
	fused := regexp.MustCompile(`\(([^()]*/)?([^/()]+/[^/()]+:\d+)\)\s(FN?M(?:ADD|SUB)[SD])\b`)
	seen := map[string]bool{}
	for _, m := range fused.FindAllSubmatch(listing, -1) {
		if place := string(m[2]); !seen[place] {
			seen[place] = true
			t.Errorf("%s: a product and a sum become %s on arm64; write float64(x*y)", place, m[3])
		}
	}
}
