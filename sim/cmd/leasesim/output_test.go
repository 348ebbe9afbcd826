package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// say prints text and returns err.
func say(text string, err error) func(io.Writer) error {
	return func(w io.Writer) error {
		_, writeErr := io.WriteString(w, text)
		return errors.Join(writeErr, err)
	}
}

// names are the files in a folder.
func names(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	testkit.NoErr(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAFileIsWrittenWholeOrNotAtAll(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "report")
	broken := errors.New("broken")
	// Given nothing, a report that fails halfway leaves nothing;
	if err := writeFile(path, say("half", broken)); !errors.Is(err, broken) || len(names(t, folder)) != 0 {
		t.Errorf("%v, %v", err, names(t, folder))
	}
	// a whole one is there;
	if err := writeFile(path, say("whole", nil)); err != nil || content(t, path) != "whole" {
		t.Error(err)
	}
	// given that, one that fails halfway leaves what was there;
	if err := writeFile(path, say("half", broken)); !errors.Is(err, broken) || content(t, path) != "whole" {
		t.Errorf("%v, %q", err, content(t, path))
	}
	// and a whole one takes its place, and its permissions.
	testkit.NoErr(t, os.Chmod(path, 0o600))
	if err := writeFile(path, say("new", nil)); err != nil || content(t, path) != "new" {
		t.Error(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	got := names(t, folder)
	testkit.Check(t, len(got) == 1, "%v were left behind", got)
}

func TestALinkStaysALink(t *testing.T) {
	folder := t.TempDir()
	target, link := filepath.Join(folder, "target"), filepath.Join(folder, "link")
	testkit.NoErr(t, os.WriteFile(target, nil, 0o644))
	testkit.NoErr(t, os.Symlink(target, link))
	if err := writeFile(link, say("new", nil)); err != nil || content(t, target) != "new" {
		t.Errorf("%v, %q", err, content(t, target))
	}
	if st, err := os.Lstat(link); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

func TestADeviceIsWrittenToAndNotReplaced(t *testing.T) {
	before, err := os.Stat(os.DevNull)
	testkit.NoErr(t, err)
	testkit.NoErr(t, writeFile(os.DevNull, say("new", nil)))
	if after, err := os.Stat(os.DevNull); err != nil || after.Mode() != before.Mode() {
		t.Fatalf("%s was %v and is %v", os.DevNull, before.Mode(), after.Mode())
	}
}

func TestWhatCannotBeWrittenIsAnError(t *testing.T) {
	folder := t.TempDir()
	for _, path := range []string{folder, filepath.Join(folder, "no", "folder")} {
		err := writeFile(path, say("new", nil))
		testkit.Check(t, err != nil, "%s was written", path)
		pretend(t, report(), nil, "run -o "+path).ends(exitUsage).shows()
	}
	got := names(t, folder)
	testkit.Check(t, len(got) == 0, "%v were left behind", got)
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

func TestARunThatTakesLongIsSaidTo(t *testing.T) {
	for _, c := range []struct {
		took time.Duration
		done float64
		want string
	}{
		{9 * time.Second, 1e-9, ""}, {10 * time.Second, 0.5, ""}, {time.Hour, 0.9, ""},
		{10 * time.Second, 0.01, "about 17m0s"}, {10 * time.Second, 0.0001, "about 27h47m0s"},
		{time.Minute, 1e-6, "about 694 days"}, {time.Minute, 1e-9, "more than 100 years"}, {time.Minute, 0, "more than 100 years"},
	} {
		got := outlook(c.took, c.done)
		testkit.Check(t, got == c.want, "%v for %v: %q, want %q", c.took, c.done, got, c.want)
	}
	// Given a command whose runs began a minute ago, when they report progress, then it is said once.
	var said strings.Builder
	f := &shared{Command: &cobra.Command{}}
	f.SetErr(&said)
	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			f.foretell(time.Now().Add(-time.Minute), func() {})(1e-6)
		}
	})
	testkit.Check(t, strings.Count(said.String(), "leasesim: one run takes about 694 days more") == 1, "%s", said.String())
}
