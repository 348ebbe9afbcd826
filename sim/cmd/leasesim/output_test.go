package main

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

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
