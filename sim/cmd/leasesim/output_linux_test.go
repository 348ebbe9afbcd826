package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestAFullDiskLeavesTheOldReport runs itself again as a process whose files may have a block each.
func TestAFullDiskLeavesTheOldReport(t *testing.T) {
	const name = "YUZHI_TEST_REPORT"
	if path := os.Getenv(name); path != "" {
		err := writeFile(path, say(strings.Repeat("x", 1<<20), nil))
		testkit.Check(t, err != nil, "a megabyte was written to %s", path)
		return
	}
	// Given a report,
	folder := t.TempDir()
	path := filepath.Join(folder, "report")
	testkit.NoErr(t, os.WriteFile(path, []byte("whole"), 0o644))
	// when a new one has no room,
	again := exec.Command("sh", "-c", `ulimit -f 1; exec "$0" -test.run "^`+t.Name()+`$"`, os.Args[0])
	again.Env = append(os.Environ(), name+"="+path)
	out, err := again.CombinedOutput()
	testkit.Check(t, err == nil, "%v: %s", err, out)
	// then the old one is there as it was, and nothing beside it.
	got := names(t, folder)
	testkit.Check(t, content(t, path) == "whole" && len(got) == 1, "%d bytes of the old report, and %v", len(content(t, path)), got)
}
