package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/yuzhi-go/yuzhi/sim/view"
)

// writeFile writes what print makes. It is made whole, and written whole beside the file, before it
// takes the file's place, so that what fails leaves the file as it was. Only where that cannot be,
// as with devices, links and folders in which nothing may be made, is the file written in place.
func writeFile(path string, print func(io.Writer) error) error {
	var b bytes.Buffer
	err := print(&b)
	switch {
	case err != nil:
	case replaceable(path):
		err = replace(path, b.Bytes())
	default:
		err = os.WriteFile(path, b.Bytes(), 0o666)
	}
	if err != nil {
		return fmt.Errorf("leasesim: nothing was written to %s: %w", path, err)
	}
	return nil
}

// replace writes beside path what takes its place, with its permissions.
func replace(path string, data []byte) error {
	err := os.WriteFile(beside(path), data, 0o666)
	if st, old := os.Stat(path); err == nil && old == nil {
		err = os.Chmod(beside(path), st.Mode().Perm())
	}
	if err == nil {
		err = os.Rename(beside(path), path)
	}
	if err != nil {
		_ = os.Remove(beside(path)) // the first error says what is wrong
	}
	return err
}

// beside is what is written before it takes the place of path.
func beside(path string) string { return path + ".part" }

// replaceable reports whether another file may take the place of path, or be the first there.
func replaceable(path string) bool {
	st, err := os.Lstat(path)
	if err == nil && !st.Mode().IsRegular() {
		return false
	}
	f, err := os.OpenFile(beside(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return false
	}
	_ = f.Close()
	return os.Remove(beside(path)) == nil
}

// checkWritable says, before anything runs, why a report cannot be written to path. What only
// writing shows, such as that a disk is full, is not an error here.
func checkWritable(path string) error {
	if path == "" || path == "-" {
		return nil
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return fmt.Errorf("%s is a directory", path)
	}
	folder := filepath.Dir(path)
	if st, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsDir() {
		return fmt.Errorf("there is no directory %s", folder)
	}
	if st, err := os.Stat(path); (err != nil || st.Mode().IsRegular()) && !replaceable(path) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return nil
}

// terminal is w where it is one, else nil.
func terminal(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// phases shows on a terminal, phase by phase, how much of something is done, and how long it takes:
// the phase, or, where left is known, all of it. Elsewhere it shows nothing, and show is nil. The
// caller calls clear before it prints anything else. Both may be called from any goroutine.
func phases(w io.Writer) (show func(phase string, done, of int, left time.Duration), clear func()) {
	f := terminal(w)
	if f == nil {
		return nil, func() {}
	}
	var bar *progressbar.ProgressBar
	var mu sync.Mutex
	current := ""
	wipe := func() {
		if bar != nil {
			_ = bar.Clear() // a bar that cannot be drawn is no reason to stop what it is about
		}
	}
	clear = func() {
		mu.Lock()
		defer mu.Unlock()
		wipe()
	}
	show = func(phase string, done, of int, left time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		text := phase
		if left > 0 {
			text = fmt.Sprintf("%s (about %v left in all)", phase, left.Round(time.Second))
		}
		if bar == nil || phase != current {
			wipe()
			current = phase
			bar = progressbar.NewOptions(of,
				progressbar.OptionSetWriter(f),
				progressbar.OptionSetDescription(text),
				progressbar.OptionSetWidth(20),
				progressbar.OptionThrottle(100*time.Millisecond),
				progressbar.OptionSetPredictTime(left == 0),
				progressbar.OptionClearOnFinish(),
			)
		}
		_ = bar.Set(done)
		bar.Describe(text)
	}
	return show, clear
}

// A run that has more than longRun to go is said to, when it has taken toldAfter.
const toldAfter, longRun = 10 * time.Second, 10 * time.Minute

// outlook is how much longer something takes of which a part was done in a time; "" where that is
// not long, or not known yet.
func outlook(took time.Duration, done float64) string {
	left := took.Hours() * (1 - done) / done
	switch {
	case took < toldAfter || !(left > longRun.Hours()):
		return ""
	case left > 100*365*24:
		return "more than 100 years"
	case left > 48:
		return "about " + view.Number(math.Round(left/24)) + " days"
	}
	return "about " + time.Duration(left*float64(time.Hour)).Round(time.Minute).String()
}

// foretell is for the progress of a run that began then: once in a command it says on standard
// error that the run takes long.
func (f *shared) foretell(began time.Time, clear func()) func(done float64) {
	return func(done float64) {
		if left := outlook(time.Since(began), done); left != "" {
			f.foretold.Do(func() {
				clear()
				fmt.Fprintf(f.ErrOrStderr(), "leasesim: one run takes %s more on this machine; fewer requests, a shorter "+
					"--duration or fewer --reps take less\n", left)
			})
		}
	}
}

// statusLine rewrites one line on a terminal; elsewhere it says nothing, and show is nil.
func statusLine(w io.Writer) (show func(string), clear func()) {
	f := terminal(w)
	if f == nil {
		return nil, func() {}
	}
	return func(s string) { fmt.Fprintf(f, "\r\033[K%s", s) }, func() { fmt.Fprint(f, "\r\033[K") }
}
