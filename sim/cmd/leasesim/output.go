package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// phases shows the progress of each phase on a terminal. Without a terminal phases returns a nil show. Calls
// of show must not overlap. The caller calls clear before it prints anything else.
func phases(w io.Writer) (show func(phase string, done, of int), clear func()) {
	line, clear := statusLine(w)
	if line == nil {
		return nil, clear
	}
	var current string
	var shown time.Time
	return func(phase string, done, of int) {
		if now := time.Now(); phase != current || now.Sub(shown) >= 100*time.Millisecond {
			current, shown = phase, now
			line(fmt.Sprintf("%s %d %%", phase, 100*done/max(of, 1)))
		}
	}, clear
}

// statusLine returns a show that rewrites one line on a terminal, or a nil show without a terminal.
func statusLine(w io.Writer) (show func(string), clear func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	return func(s string) { fmt.Fprintf(f, "\r\033[K%s", s) }, func() { fmt.Fprint(f, "\r\033[K") }
}
