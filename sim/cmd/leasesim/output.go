package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// writeFile writes a file whole or not at all: print writes beside it, under a name of its own, and only what is
// complete and on the disk takes the place of what was there. A device or a pipe is written to as it is.
func writeFile(path string, print func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("leasesim: nothing was written to %s: %w", path, err)
		}
	}()
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	old, err := os.Stat(path)
	replaces := err == nil
	if replaces && !old.Mode().IsRegular() {
		return writeDevice(path, print)
	}
	// Unlike os.CreateTemp, which is for its user alone, this has the mode of any new file.
	f, err := os.OpenFile(filepath.Join(filepath.Dir(path), ".leasesim-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if replaces {
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			return err
		}
	}
	if err := print(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// writeDevice writes to what cannot be replaced, as /dev/stderr.
func writeDevice(path string, print func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(print(f), f.Close())
}

// progressBar shows on a terminal which part of something is done. Elsewhere it shows nothing, and progress is nil.
// The caller calls clear, once, before it prints.
func progressBar(w io.Writer, what string) (progress func(done float64), clear func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	const steps = 1000
	bar := progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(f),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(32),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(),
	)
	// A bar that cannot be drawn is no reason to stop what it is about.
	progress = func(done float64) { _ = bar.Set(int(done * steps)) }
	return progress, func() { _ = bar.Clear() }
}
