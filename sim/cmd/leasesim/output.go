package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// writeFile writes what print makes, once all of it is made: a report that cannot be made leaves the
// file as it was.
func writeFile(path string, print func(io.Writer) error) error {
	var b bytes.Buffer
	err := print(&b)
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o666)
	}
	if err != nil {
		return fmt.Errorf("leasesim: nothing was written to %s: %w", path, err)
	}
	return nil
}

// checkWritable returns, before anything runs, why a report cannot be written to path. It opens no
// device and no pipe: opening a pipe waits for its reader.
func checkWritable(path string) error {
	if path == "" || path == "-" {
		return nil
	}
	st, missing := os.Stat(path)
	if missing == nil && !st.Mode().IsRegular() && !st.IsDir() {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil || missing == nil {
		return err
	}
	return os.Remove(path)
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

// statusLine rewrites one line on a terminal; elsewhere it says nothing, and show is nil.
func statusLine(w io.Writer) (show func(string), clear func()) {
	f := terminal(w)
	if f == nil {
		return nil, func() {}
	}
	return func(s string) { fmt.Fprintf(f, "\r\033[K%s", s) }, func() { fmt.Fprint(f, "\r\033[K") }
}
