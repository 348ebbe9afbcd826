// Command leasesim shows what yuzhi promises, before it is rolled out and after. "leasesim run"
// simulates a fleet, "compare" sets it beside other algorithms, "sweep" and "plan" look for a
// policy, "replay" asks what a recorded load would have seen, "init" writes a scenario to start
// from, and "live" runs real processes against one Redis and audits every admission. "inspect" and
// "top" look at the buckets of a Redis in production.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// Exit statuses, as docs/simulator.md lists them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitExceeded    = 3
	exitInfeasible  = 4
	exitInterrupted = 130 // as a shell says of a program that Ctrl-C ended
)

var (
	// errExceeded: the run worked and found the bound exceeded.
	errExceeded = errors.New("leasesim: the bound was exceeded")
	// errDisagree: compare --live worked and found a difference.
	errDisagree = errors.New("leasesim: the simulation and the real fleet disagree")
	// errUsage is wrapped by what is wrong with a command line.
	errUsage = errors.New("leasesim")
)

// statuses says which error ends the command with which status; the first that fits counts.
var statuses = []struct {
	err    error
	status int
}{
	{errUsage, exitUsage},
	{live.ErrUsage, exitUsage},
	{scenfile.ErrInvalid, exitUsage},
	{sim.ErrInvalidScenario, exitUsage},
	{search.ErrStress, exitUsage},
	{sim.ErrInterrupted, exitInterrupted},
	{search.ErrInfeasible, exitInfeasible},
	{errExceeded, exitExceeded},
	{errDisagree, exitExceeded},
	{search.ErrNotMet, exitExceeded},
}

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
	return (&program{args: args, simulate: sim.Runner.Run}).run(ctx, stdout, stderr)
}

// program is one execution of the command.
type program struct {
	args     []string
	measured []string // what --calibrate found, as --set takes it
	simulate func(sim.Runner, context.Context, sim.Scenario) (sim.Report, error)
}

// root is the command with all its subcommands.
func (p *program) root() *cobra.Command {
	root := command("leasesim", (*cobra.Command).Help)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.AddCommand(initCommand(), p.runCommand(), p.compareCommand(), p.sweepCommand(), p.planCommand(),
		p.replayCommand(), liveCommand(), inspectCommand(), topCommand(), scriptsCommand())
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

// noneEmpty refuses a flag with an empty value, as --redis "$REDIS" has where that is not set: it
// would mean the same as no flag. Only an empty --name says something: a limiter without one.
func noneEmpty(flags *pflag.FlagSet) error {
	var all faults
	flags.Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		all.addf((value == "" || value == "[]") && f.Name != "name",
			"--%s is empty; leave it out, or give it a value", f.Name)
	})
	return errors.Join(all...)
}

// statusOf is the exit status of an error.
func statusOf(err error) int {
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	return exitFailed
}

// ourNames are the names of our packages in front of an error, with what the error is in general,
// where something particular follows.
var ourNames = regexp.MustCompile(`(^|[ (:;\n])(?:sim|search|rival|trace|file|lease|hybrid|redisbucket): ` +
	`(?:invalid (?:scenario|limit|quantity|trace|policy|config|configuration): )?`)

// moved is the answer of a node of a cluster for a key that another node has.
var moved = regexp.MustCompile(`\bMOVED \d+ `)

// prefixed writes an error for readers that do not know our packages. It begins with the name of the
// program, or with the file that is wrong.
func prefixed(err error) string {
	s := err.Error()
	for ourNames.MatchString(s) {
		s = ourNames.ReplaceAllString(s, "$1")
	}
	if moved.MatchString(s) {
		s += "; the server is a node of a Redis Cluster: use a URL with redis+cluster://, or " +
			"rediss+cluster:// for TLS"
	}
	s = shownText(s)
	if strings.HasPrefix(s, "leasesim: ") || errors.Is(err, scenfile.ErrInvalid) && !errors.Is(err, errUsage) {
		return s
	}
	return "leasesim: " + s
}

// commandLine returns the shell command that repeats the figures: as this program was called, with the
// seed, and with what was measured in the place of --calibrate.
func (p *program) commandLine(seed uint64) string {
	words := []string{"leasesim"}
	seeded := false
	for i, arg := range p.args {
		if arg == "--calibrate" || strings.HasPrefix(arg, "--calibrate=") {
			for _, set := range p.measured {
				words = append(words, "--set", quoted(set))
			}
			continue
		}
		if i > 0 && p.args[i-1] == "--calibrate" {
			continue
		}
		seeded = seeded || arg == "--seed" || strings.HasPrefix(arg, "--seed=")
		words = append(words, quoted(arg))
	}
	if !seeded {
		words = append(words, fmt.Sprintf("--seed %d", seed))
	}
	return strings.Join(words, " ")
}

// plain are words that no shell reads anything into.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:=,%+@-]+$`)

// quoted is a word as a POSIX shell takes it back.
func quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
