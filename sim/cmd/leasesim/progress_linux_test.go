package main

import (
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// pseudoTerminal is a terminal, and what is shown on it.
func pseudoTerminal(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	testkit.NoErr(t, err)
	t.Cleanup(func() { screen.Close() })
	testkit.NoErr(t, unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	testkit.NoErr(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	testkit.NoErr(t, err)
	return screen, tty
}

func TestATerminalShowsThePhasesAndIsCleared(t *testing.T) {
	screen, tty := pseudoTerminal(t)
	// Given two phases on a terminal,
	show, clear := phases(tty)
	testkit.Must(t, show != nil, "a terminal shows nothing")
	// when they are half and a quarter done, and the line is cleared,
	show("probe", 1, 2)
	show("screen", 3, 12)
	clear()
	tty.Close()
	shown, err := io.ReadAll(screen)
	if err != nil && len(shown) == 0 { // Linux says EIO where the other end is closed
		t.Fatal(err)
	}
	// then each was shown, and the line ends empty.
	const want = "\r\033[Kprobe 50 %\r\033[Kscreen 25 %\r\033[K"
	testkit.Check(t, string(shown) == want, "%q, want %q", shown, want)
}
