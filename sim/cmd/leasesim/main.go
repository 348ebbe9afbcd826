// Command leasesim shows what yuzhi promises: "leasesim live" runs a fleet of real processes against one
// Redis and audits every admission.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
)

// Exit statuses, as the README lists them.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitExceeded = 3
)

// errExceeded: the run worked and found the bound exceeded.
var errExceeded = errors.New("leasesim: the bound was exceeded")

func main() {
	live.Child()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it whatever it does
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run executes one command line and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "leasesim",
		Short:         "Check a leased rate limit against one central token bucket",
		Long:          "leasesim shows what yuzhi's rate limiter does: how many requests a fleet admits, in which\nwindows, and what that costs in Redis calls.",
		Example:       "  leasesim live\n  leasesim live --redis localhost:6379 --processes 8 --rate 50000 --burst 10000",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.AddCommand(liveCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errExceeded):
		fmt.Fprintln(stderr, err)
		return exitExceeded
	case !started, errors.Is(err, live.ErrUsage):
		fmt.Fprintf(stderr, "%s\nSee 'leasesim --help'.\n", prefixed(err))
		return exitUsage
	}
	fmt.Fprintln(stderr, err)
	return exitFailed
}

// prefixed names the program in errors that come from the parsing of flags.
func prefixed(err error) string {
	if s := err.Error(); strings.HasPrefix(s, "leasesim: ") {
		return s
	}
	return "leasesim: " + err.Error()
}
