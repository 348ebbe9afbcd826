package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

const defaultFile = "example:steady-fleet"

// program is one execution of leasesim.
type program struct {
	args     []string
	simulate func(sim.Runner, context.Context, sim.Scenario) (sim.Report, error)
}

// shared is a command about a scenario, with the flags that such commands share.
type shared struct {
	cmd     *cobra.Command
	program *program

	file       string
	sets       []string
	parallel   int
	out        string
	formats    []string // allowed values of out
	thresholds []string

	first func(*sim.Scenario) error // changes the scenario before --set; may be nil
	rules []search.Threshold        // parsed form of thresholds
	text  string                    // YAML of the scenario with the changes by flags
}

// asking returns the command of a help page with the flags of live and of simulations. file is the default of
// -f.
func (p *program) asking(page, file string, formats ...string) *shared {
	f := &shared{program: p, formats: formats}
	f.cmd = command(page, nil)
	flags := f.cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", file,
		"scenario: a YAML file, - for standard input, or example:NAME (see leasesim init --list)")
	flags.StringArrayVar(&f.sets, "set", nil,
		"value of one scenario field, as in policy.target=50ms or groups[0].count=20; repeatable")
	flags.Uint64("seed", 1, "seed of every random stream, 1 to 2^53-1; replaces the scenario's")
	flags.Duration("duration", 0, "length of a run (default: the scenario's, or 30s)")
	flags.StringVar(&f.out, "out", view.FormatTable, strings.Join(formats, ", "))
	return f
}

// simulating returns the command of a help page with the flags of simulations.
func (p *program) simulating(page string, run func(f *shared) error) *shared {
	f := p.asking(page, defaultFile, view.Formats...)
	f.cmd.RunE = func(*cobra.Command, []string) error { return run(f) }
	flags := f.cmd.Flags()
	flags.Int("reps", 0, "replications (default: the scenario's, or 10)")
	flags.IntVar(&f.parallel, "parallel", 0,
		"replications at the same time; does not change figures (default: one per core)")
	flags.StringArrayVar(&f.thresholds, "threshold", nil,
		"required condition FIGURE OP NUMBER (status 3 if it fails), as in 'bound_exceeded_by.worst == "+
			"0' or 'false_reject_ratio < 0.5%'; repeatable")
	return f
}

// load checks the flags and returns the scenario of -f, changed by f.first, --set, --seed, --reps, --duration
// and adjust, in this order. The scenario is valid and has no defaults filled in.
func (f *shared) load(adjust ...func(*sim.Scenario) error) (sim.Scenario, error) {
	if err := f.validate(); err != nil {
		return sim.Scenario{}, err
	}
	s, err := scenfile.Load(f.file)
	if unreadable := (*fs.PathError)(nil); errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: file %s does not exist; leasesim init writes one", errUsage, f.file)
	} else if errors.As(err, &unreadable) && unreadable.Path == f.file {
		err = fmt.Errorf("%w: --file: %w", errUsage, unreadable)
	}
	if err != nil {
		return s, err
	}
	if f.first != nil {
		if err := f.first(&s); err != nil {
			return s, err
		}
	}
	sets := slices.Clone(f.sets)
	for _, name := range []string{"seed", "reps", "duration"} {
		if flag := f.cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			sets = append(sets, name+"="+flag.Value.String())
		}
	}
	if err := scenfile.Set(&s, sets...); err != nil {
		return s, fmt.Errorf("%w: %w", errUsage, err)
	}
	for _, change := range adjust {
		if err := change(&s); err != nil {
			return s, err
		}
	}
	if err := s.Validate(); err != nil {
		return s, err
	}
	if ownLoads(&s) && slices.ContainsFunc(f.sets,
		func(set string) bool { return workloadSet.MatchString(set) }) {
		return s, fmt.Errorf("%w: --set: %s", errUsage, workloadUnread)
	}
	printTraceNotes(f.cmd.ErrOrStderr(), s)
	text, err := scenfile.Marshal(s)
	f.text = string(text)
	return s, err
}

// workloadSet matches a --set or a --vary of the scenario's workload.
var workloadSet = regexp.MustCompile(`^ *workload *[.=]`)

const workloadUnread = "workload has no effect: each group has its own; set groups[0].workload"

// ownLoads reports whether every group has a workload, so that the scenario's workload has no effect.
func ownLoads(s *sim.Scenario) bool {
	return len(s.Groups) > 0 && !slices.ContainsFunc(s.Groups, func(g sim.Group) bool { return !ownLoad(g) })
}

func ownLoad(g sim.Group) bool { return g.Workload != nil }

// withoutRivals is an argument of load for commands that simulate no other algorithms.
func withoutRivals(s *sim.Scenario) error {
	s.Rivals = nil
	return nil
}

func (f *shared) validate() error {
	var all faults
	all.addf(f.parallel < 0, "--parallel is %d, must be 0 (one per core) or more", f.parallel)
	formats := strings.Join(f.formats, ", ")
	all.addf(!slices.Contains(f.formats, f.out), "--out is %q, must be one of %s", f.out, formats)
	for _, text := range f.thresholds {
		rule, err := search.ParseThreshold(text)
		all.addf(err != nil, "--threshold: %w", err)
		f.rules = append(f.rules, rule)
	}
	return errors.Join(all...)
}

// finish writes d in the format of --out. finish returns the error of writing, else early, the error that
// ended the run, else wrong, an error about the results in d.
func (f *shared) finish(d view.Document, early, wrong error) error {
	if err := d.Write(f.cmd.OutOrStdout(), f.out); err != nil {
		return fmt.Errorf("leasesim: %w", err)
	}
	if early != nil {
		return fmt.Errorf("leasesim: %w", early)
	}
	return wrong
}

// judge returns an error for each --threshold that does not hold for r.
func (f *shared) judge(r sim.Report) error {
	var errs []error
	for _, rule := range f.rules {
		errs = append(errs, rule.Check(&r))
	}
	return errors.Join(errs...)
}

func (f *shared) report(show func(view.Result) view.Document, adjust ...func(*sim.Scenario) error) error {
	s, err := f.load(adjust...)
	if err != nil {
		return err
	}
	r, err := f.simulate(s)
	if errors.Is(err, sim.ErrInterrupted) && r.Reps > 0 {
		err = fmt.Errorf("the report covers the finished replications: %w", err)
	} else if err != nil {
		return err
	}
	result := view.Result{
		Scenario: s, Text: f.text, Report: r, Command: f.program.commandLine(r.Seed),
		Thresholds: f.rules,
	}
	return f.finish(show(result), err, f.judge(r))
}

func (f *shared) simulate(s sim.Scenario) (sim.Report, error) {
	runner := sim.Runner{Parallel: f.parallel}
	show, clear := phases(f.cmd.ErrOrStderr())
	defer clear()
	if show != nil {
		runner.Progress = func(done float64) { show(f.cmd.Name(), int(1000*done), 1000) }
	}
	return f.program.simulate(runner, f.cmd.Context(), s)
}

// lab returns a search.Lab that simulates by the flags of f. The caller calls clear before it prints.
func (f *shared) lab(confidence float64) (lab search.Lab, clear func()) {
	show, clear := phases(f.cmd.ErrOrStderr())
	lab.Run = func(ctx context.Context, s sim.Scenario) (sim.Report, error) {
		return f.program.simulate(sim.Runner{Parallel: f.parallel, Confidence: confidence}, ctx, s)
	}
	lab.Parallel, lab.Progress = f.parallel, show
	return lab, clear
}

// commandLine returns a shell command with the same figures: the arguments of p and the seed.
func (p *program) commandLine(seed uint64) string {
	words := []string{"leasesim"}
	seeded := false
	for _, arg := range p.args {
		seeded = seeded || arg == "--seed" || strings.HasPrefix(arg, "--seed=")
		words = append(words, quoted(arg))
	}
	if !seeded {
		words = append(words, fmt.Sprintf("--seed %d", seed))
	}
	return strings.Join(words, " ")
}

// plain matches a word that needs no quotes in a shell.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:=,%+@-]+$`)

// quoted quotes a word for a POSIX shell.
func quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// printTraceNotes prints what reading the traces of s left out, and how many requests come after the run.
func printTraceNotes(out io.Writer, s sim.Scenario) {
	s = s.Defaults()
	for _, w := range s.Workloads() {
		if w.Trace == nil {
			continue
		}
		notes, n := slices.Clone(w.Trace.Notes), len(w.Trace.Requests)
		played := sort.Search(n, func(i int) bool { return w.Trace.Requests[i].At >= s.Duration })
		if played < n {
			notes = append(notes, fmt.Sprintf("%d of its %d requests come after the end of the run (%v)",
				n-played, n, s.Duration))
		}
		for _, note := range notes {
			fmt.Fprintf(out, "leasesim: %s: %s\n", w.File, note)
		}
	}
}

// phases returns show, which shows the progress of a phase if w is a terminal, and is nil if not. Calls of
// show must not overlap. The caller calls clear before it prints anything else.
func phases(w io.Writer) (show func(phase string, done, of int), clear func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	var current string
	var shown time.Time
	show = func(phase string, done, of int) {
		if now := time.Now(); phase != current || now.Sub(shown) >= 100*time.Millisecond {
			current, shown = phase, now
			fmt.Fprintf(f, "\r\033[K%s %d %%", phase, 100*done/max(of, 1))
		}
	}
	return show, func() { fmt.Fprint(f, "\r\033[K") }
}
