package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// terminal is w where it is one, else nil.
func terminal(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// phases shows on a terminal, phase by phase, how much of something is done, and how long the phase
// takes. Elsewhere it shows nothing, and show is nil. The caller calls show once at a time, and clear
// before it prints anything else.
func phases(w io.Writer) (show func(phase string, done, of int), clear func()) {
	line, clear := statusLine(w)
	if line == nil {
		return nil, clear
	}
	var current string
	var begun, shown time.Time
	return func(phase string, done, of int) {
		now := time.Now()
		if phase != current {
			current, begun, shown = phase, now, time.Time{}
		}
		if now.Sub(shown) < 100*time.Millisecond {
			return
		}
		shown = now
		of, rest := max(of, 1), ""
		left := time.Duration(float64(now.Sub(begun)) * (float64(of)/float64(max(done, 1)) - 1))
		if done > 0 && left >= time.Second {
			rest = fmt.Sprintf(", about %v left", left.Round(time.Second))
		}
		line(fmt.Sprintf("%s %d %%%s", phase, 100*done/of, rest))
	}, clear
}

// statusLine rewrites one line on a terminal; elsewhere it says nothing, and show is nil.
func statusLine(w io.Writer) (show func(string), clear func()) {
	f := terminal(w)
	if f == nil {
		return nil, func() {}
	}
	return func(s string) { fmt.Fprintf(f, "\r\033[K%s", s) }, func() { fmt.Fprint(f, "\r\033[K") }
}
