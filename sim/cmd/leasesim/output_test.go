package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
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
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(path, say("new", nil)); err != nil || content(t, path) != "new" {
		t.Error(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if got := names(t, folder); len(got) != 1 {
		t.Errorf("%v were left behind", got)
	}
}

func TestALinkStaysALink(t *testing.T) {
	folder := t.TempDir()
	target, link := filepath.Join(folder, "target"), filepath.Join(folder, "link")
	if err := os.WriteFile(target, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(link, say("new", nil)); err != nil || content(t, target) != "new" {
		t.Errorf("%v, %q", err, content(t, target))
	}
	if st, err := os.Lstat(link); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

func TestADeviceIsWrittenToAndNotReplaced(t *testing.T) {
	before, err := os.Stat(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFile(os.DevNull, say("new", nil)); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(os.DevNull); err != nil || after.Mode() != before.Mode() {
		t.Fatalf("%s was %v and is %v", os.DevNull, before.Mode(), after.Mode())
	}
}

func TestWhatCannotBeWrittenIsAnError(t *testing.T) {
	folder := t.TempDir()
	for _, path := range []string{folder, filepath.Join(folder, "no", "folder")} {
		if err := writeFile(path, say("new", nil)); err == nil {
			t.Errorf("%s was written", path)
		}
		if _, status, stdout, stderr := pretend(t, report(), nil, "run", "-o", path); status != exitUsage || stdout != "" || stderr == "" {
			t.Errorf("-o %s: status %d, %q, %q", path, status, stdout, stderr)
		}
	}
	if got := names(t, folder); len(got) != 0 {
		t.Errorf("%v were left behind", got)
	}
}

func TestAReportThatCannotBeMadeLeavesTheOldOne(t *testing.T) {
	// Given a report that JSON cannot say, as it has an infinite figure,
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := report()
	r.Burnt.Mean = 1
	for r.Burnt.Mean*2 != r.Burnt.Mean {
		r.Burnt.Mean *= 2
	}
	// when it is written, then the old one stays.
	if _, status, _, stderr := pretend(t, r, nil, "run", "--out", "json", "-o", path); status != exitFailed || content(t, path) != "old" {
		t.Errorf("status %d, %s, %q", status, stderr, content(t, path))
	}
}

func TestAPipeShowsNoProgress(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	for _, w := range []io.Writer{&bytes.Buffer{}, write} {
		show, clear := phases(w)
		clear()
		if show != nil {
			t.Errorf("%T shows progress", w)
		}
	}
	write.Close()
	if got, err := io.ReadAll(read); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
}

func TestInitWritesAScenarioThatRuns(t *testing.T) {
	_, status, template, _ := pretend(t, report(), nil, "init")
	if a, ran, _, stderr := pretend(t, report(), nil, "run", "-f", scenarioFile(t, template)); status != 0 || ran != 0 || a.times != 1 {
		t.Errorf("status %d and %d, %s", status, ran, stderr)
	}
	_, status, sale, _ := pretend(t, report(), nil, "init", "--example", "flash-sale")
	if status != 0 || sale == template || !strings.Contains(sale, "flash-sale") {
		t.Errorf("status %d, %s", status, sale)
	}
	if _, status, list, _ := pretend(t, report(), nil, "init", "--list"); status != 0 || !strings.Contains(list, "flash-sale ") {
		t.Errorf("status %d, %s", status, list)
	}
}
