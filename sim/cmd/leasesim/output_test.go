package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestWhatCannotBeWrittenIsAnError(t *testing.T) {
	folder := t.TempDir()
	for _, path := range []string{folder, filepath.Join(folder, "no", "folder")} {
		pretend(t, report(), nil, "run -o "+path).ends(exitUsage).shows()
	}
	got, err := os.ReadDir(folder)
	testkit.Check(t, err == nil && len(got) == 0, "%v were left behind, %v", got, err)
}

func TestAPipeShowsNoProgress(t *testing.T) {
	read, write, err := os.Pipe()
	testkit.NoErr(t, err)
	defer read.Close()
	for _, w := range []io.Writer{&bytes.Buffer{}, write} {
		show, clear := phases(w)
		clear()
		testkit.Check(t, show == nil, "%T shows progress", w)
	}
	write.Close()
	if got, err := io.ReadAll(read); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
}
