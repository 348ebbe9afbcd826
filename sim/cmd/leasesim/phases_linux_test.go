package main

import (
	"bytes"
	"io"
	"testing"
)

func TestATerminalShowsThePhasesOfAPlan(t *testing.T) {
	screen, tty := terminal(t)
	// Given a plan that goes through two phases on a terminal,
	show, stop := phases(tty)
	if show == nil {
		t.Fatal("a terminal shows no phases")
	}
	show("probe", 1, 2)
	show("screen", 1, 4)
	stop()
	tty.Close()
	shown, err := io.ReadAll(screen)
	if err != nil && len(shown) == 0 { // Linux says EIO where the other end is closed
		t.Fatal(err)
	}
	// then each had its bar, and the line ends empty.
	for _, want := range []string{"probe  50%", "screen  25%"} {
		if !bytes.Contains(shown, []byte(want)) {
			t.Errorf("no %q in %q", want, shown)
		}
	}
	rest := shown[bytes.LastIndexByte(bytes.TrimRight(shown, "\r"), '\r')+1:]
	if len(bytes.Trim(rest, " \r")) > 0 {
		t.Errorf("%q is left", rest)
	}
}

func TestAPipeShowsNoPhases(t *testing.T) {
	show, stop := phases(&bytes.Buffer{})
	stop()
	if show != nil {
		t.Error("what is no terminal shows phases")
	}
}
