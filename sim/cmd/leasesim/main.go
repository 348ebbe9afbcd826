// Command leasesim shows the effect of yuzhi, before and after a rollout. "leasesim run" simulates a fleet,
// "ui" serves a page with knobs for simulations, "compare" simulates other algorithms too, "sweep" and "plan"
// search for a policy, "replay" simulates a recorded load, and "init" writes a first scenario. "live" runs
// real processes against one Redis and audits every admission. "inspect" and "top" read buckets of a Redis in
// production.
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
	"github.com/spf13/pflag"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

func main() {
	live.Child()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the command
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run executes one command line and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return (&program{args: args, simulate: sim.Runner.Run}).run(ctx, stdout, stderr)
}

func (p *program) root() *cobra.Command {
	root := command("leasesim", (*cobra.Command).Help)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.AddCommand(initCommand(), runCommand(p), compareCommand(p), sweepCommand(p), planCommand(p),
		replayCommand(p), uiCommand(), liveCommand(p), inspectCommand(), topCommand(), scriptsCommand())
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages",
		fmt.Sprintf(".FlagUsagesWrapped %d", helpMax-flagSlop)))
	return root
}

func (p *program) run(ctx context.Context, stdout, stderr io.Writer) int {
	root := p.root()
	root.SetArgs(p.args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	started := false
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := noneEmpty(c.Flags()); err != nil {
			return err
		}
		started = true
		return nil
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	status := statusOf(err)
	if !started {
		status = exitUsage
	}
	fmt.Fprintln(stderr, prefixed(err))
	if status == exitUsage && !errors.Is(err, scenfile.ErrInvalid) {
		fmt.Fprintln(stderr, "See 'leasesim --help'.")
	}
	return status
}

// noneEmpty refuses a flag with an empty value, which would act like a missing flag: --redis "$REDIS" with
// REDIS unset. Only --name may be empty, for a limiter without a name.
func noneEmpty(flags *pflag.FlagSet) error {
	var all faults
	flags.Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		all.addf((value == "" || value == "[]") && f.Name != "name",
			"--%s is empty; leave it out, or give it a value", f.Name)
	})
	return errors.Join(all...)
}
