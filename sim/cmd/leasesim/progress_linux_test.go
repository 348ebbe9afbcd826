package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a terminal, and what is shown on it.
func terminal(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, tty
}

func TestATerminalShowsProgressAndIsCleared(t *testing.T) {
	screen, tty := terminal(t)
	// Given a bar on a terminal,
	progress, clear := progressBar(tty, "run")
	if progress == nil {
		t.Fatal("a terminal shows no progress")
	}
	// when half is done and the bar is cleared,
	progress(0.5)
	clear()
	tty.Close()
	shown, err := io.ReadAll(screen)
	if err != nil && len(shown) == 0 { // Linux says EIO where the other end is closed
		t.Fatal(err)
	}
	// then it was there, and the line ends empty.
	if !bytes.Contains(shown, []byte("run  50%")) {
		t.Errorf("shown was %q", shown)
	}
	rest := shown[bytes.LastIndexByte(bytes.TrimRight(shown, "\r"), '\r')+1:]
	if len(bytes.Trim(rest, " \r")) > 0 {
		t.Errorf("%q is left", rest)
	}
}
