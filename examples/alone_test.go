package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestEachExampleBuildsAlone copies the folders of the programs, without their tests, into another module, in
// which neither the packages of this one nor the internal ones of the library can be imported.
func TestEachExampleBuildsAlone(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	testkit.NoErr(t, err)
	modules := strings.NewReplacer("module github.com/yuzhi-go/yuzhi/examples", "module alone", "=> ..", "=> "+root)
	put := func(from, to string) {
		text, err := os.ReadFile(from)
		testkit.NoErr(t, err)
		testkit.NoErr(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o700))
		testkit.NoErr(t, os.WriteFile(filepath.Join(dir, to), []byte(modules.Replace(string(text))), 0o600))
	}
	put("go.mod", "go.mod")
	put("go.sum", "go.sum")
	mains, err := filepath.Glob("*/main.go")
	testkit.Must(t, err == nil && len(mains) > 10, "%v, %v", mains, err)
	for _, main := range mains {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(main), "*"))
		testkit.NoErr(t, err)
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && !info.IsDir() && !strings.HasSuffix(file, "_test.go") {
				put(file, file)
			}
		}
	}
	build := exec.Command("go", "vet", "-mod=mod", "./...") // go build would link all of them
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off")
	out, err := build.CombinedOutput()
	testkit.Check(t, err == nil, "%v\n%s", err, out)
}
