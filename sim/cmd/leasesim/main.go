// Command leasesim simulates, plans and checks a rate limit of this library. "leasesim --help" lists its
// subcommands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/ui"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func main() {
	live.Child()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the command
	p := program{args: os.Args[1:], simulate: sim.Runner.Run}
	status := p.run(ctx, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

func (p *program) root() *cobra.Command {
	root := command("leasesim", (*cobra.Command).Help)
	root.Args = nil // instead of cobra.NoArgs: the error for an unknown command suggests known ones
	root.SilenceErrors, root.SilenceUsage = true, true
	root.AddCommand(initCommand(), runCommand(p), compareCommand(p), sweepCommand(p), planCommand(p),
		replayCommand(p), uiCommand(), liveCommand(p), inspectCommand(), topCommand(), scriptsCommand())
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages",
		fmt.Sprintf(".FlagUsagesWrapped %d", helpMax-flagSlop)))
	return root
}

// run executes the command line and returns the exit status.
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
// REDIS unset.
func noneEmpty(flags *pflag.FlagSet) error {
	var all faults
	flags.Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		all.addf(value == "" || value == "[]", "--%s is empty; leave it out, or give it a value", f.Name)
	})
	return errors.Join(all...)
}

func initCommand() *cobra.Command {
	var list bool
	c := command("init", nil)
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		text := string(scenfile.Template())
		t := view.Table{Columns: []string{"example", "description"}}
		for _, e := range scenfile.Examples() {
			t.Add(e.Name, e.Description)
			if len(args) == 1 && args[0] == e.Name {
				text, args = string(e.Text), nil
			}
		}
		if len(args) > 0 {
			return fmt.Errorf("%w: init takes the name of one example, not %q; see init --list", errUsage, args)
		}
		if list {
			text = t.String()
		}
		_, err := io.WriteString(c.OutOrStdout(), text)
		return err
	}
	c.Flags().BoolVar(&list, "list", false, "list of the built-in examples")
	return c
}

func scriptsCommand() *cobra.Command {
	sources := redisbucket.Scripts()
	c := command("scripts", nil)
	c.ValidArgs = slices.Sorted(maps.Keys(sources))
	c.Args = cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)
	c.RunE = func(c *cobra.Command, args []string) error {
		_, err := io.WriteString(c.OutOrStdout(), sources[args[0]])
		return err
	}
	return c
}

func uiCommand() *cobra.Command {
	var port uint16
	var window bool
	c := command("ui", func(c *cobra.Command) error {
		err := ui.Serve(c.Context(), int(port), func(url string) {
			fmt.Fprintln(c.OutOrStdout(), url)
			fmt.Fprintln(c.ErrOrStderr(), "Ctrl-C stops the server.")
			if window {
				browse(url)
			}
		})
		if err != nil {
			return fmt.Errorf("leasesim: %w", err)
		}
		return nil
	})
	c.Flags().Uint16Var(&port, "port", 0, "port of 127.0.0.1 (default: any free one)")
	c.Flags().BoolVar(&window, "open", true, "browser window with the page")
	return c
}

// browse opens url in the user's browser, if there is one. The command also prints url.
func browse(url string) {
	name, args := "xdg-open", []string{url}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	}
	if c := exec.Command(name, args...); c.Start() == nil {
		go c.Wait() //nolint:errcheck // a browser shows its own errors
	}
}
