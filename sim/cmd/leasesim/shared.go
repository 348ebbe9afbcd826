package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// defaultFile is the scenario of a command line without -f.
const defaultFile = "example:steady-fleet"

// shared holds the flags of every command that simulates. A command calls, in this order:
//
//	add      when it is built
//	load     for the scenario; everything that is wrong with the flags is said here, before anything runs
//	runner   for the runner and its progress bar; stop the bar before anything else is printed
//	write    for its report, which goes to standard output or, whole or not at all, to --output
//	judge    for --threshold, once per report
type shared struct {
	file       string
	sets       []string
	seed       uint64
	reps       int
	parallel   int
	duration   time.Duration
	out        string
	output     string
	thresholds []string

	changed func(flag string) bool
	rules   []search.Threshold
}

// add adds the flags to c.
func (f *shared) add(c *cobra.Command) {
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.file, "file", "f", defaultFile, "scenario: a YAML file, or example:NAME (see leasesim init --list)")
	flags.StringArrayVar(&f.sets, "set", nil, "set one field of the scenario, as in policy.target=50ms or groups[0].count=20; repeatable")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of every random stream, 1 to 2^53-1; instead of the scenario's")
	flags.IntVar(&f.reps, "reps", 0, "replications (default: the scenario's, or 10)")
	flags.IntVar(&f.parallel, "parallel", 0, "replications at one time; never changes a figure (default: one per core)")
	flags.DurationVar(&f.duration, "duration", 0, "simulated time of one replication (default: the scenario's, or 30s)")
	flags.StringVar(&f.out, "out", view.FormatTable, strings.Join(view.Formats, ", "))
	flags.StringVarP(&f.output, "output", "o", "", "write the report to this file, whole or not at all, instead of standard output")
	flags.StringArrayVar(&f.thresholds, "threshold", nil, "fail with status 3 unless this FIGURE OP NUMBER holds, as in 'bound_exceeded_by.worst == 0'; repeatable")
	f.changed = flags.Changed
}

// load is the scenario that -f, --set, --seed, --reps and --duration describe together, changed by adjust, in that order.
// It is valid, and no default is filled in. The errors say what is wrong with the command line or with the file, and
// end the command with status 2.
func (f *shared) load(adjust ...func(*sim.Scenario) error) (sim.Scenario, error) {
	var s sim.Scenario
	if err := f.validate(); err != nil {
		return s, err
	}
	s, err := scenfile.Load(f.file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("%w: there is no file %s; see leasesim init", errUsage, f.file)
	}
	if unreadable := (*fs.PathError)(nil); errors.As(err, &unreadable) && unreadable.Path == f.file {
		return s, fmt.Errorf("%w: --file: %w", errUsage, unreadable)
	}
	if err != nil {
		return s, err
	}
	for _, assignment := range f.sets {
		if err := scenfile.Set(&s, assignment); err != nil {
			return s, fmt.Errorf("%w: --set %s: %w", errUsage, assignment, err)
		}
	}
	if f.changed("seed") {
		s.Seed = f.seed
	}
	if f.changed("reps") {
		s.Reps = f.reps
	}
	if f.changed("duration") {
		s.Duration = f.duration
	}
	for _, change := range adjust {
		if err := change(&s); err != nil {
			return s, err
		}
	}
	for _, rule := range f.rules {
		if rule.Rival != "" && !slices.Contains(s.Rivals, rule.Rival) {
			return s, fmt.Errorf("%w: --threshold '%s': the rival %s does not run; name it in the scenario's rivals, or in compare --rivals", errUsage, rule, rule.Rival)
		}
	}
	return s, s.Validate()
}

// validate checks the flags and parses the thresholds.
func (f *shared) validate() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errUsage}, args...)...))
	}
	if f.changed("seed") && (f.seed == 0 || f.seed >= 1<<53) {
		wrong("--seed is %d, must be 1 to 2^53-1", f.seed)
	}
	if f.changed("reps") && f.reps < 1 {
		wrong("--reps is %d, must be at least 1", f.reps)
	}
	if f.parallel < 0 {
		wrong("--parallel is %d, must be 0 (one per core) or more", f.parallel)
	}
	if f.changed("duration") && f.duration <= 0 {
		wrong("--duration is %v, must be above 0", f.duration)
	}
	if !slices.Contains(view.Formats, f.out) {
		wrong("--out is %q, must be one of %s", f.out, strings.Join(view.Formats, ", "))
	}
	if err := writable(f.output); err != nil {
		wrong("--output: %w", err)
	}
	f.rules = nil
	for _, text := range f.thresholds {
		rule, err := search.ParseThreshold(text)
		if err != nil {
			wrong("--threshold: %w", err)
			continue
		}
		f.rules = append(f.rules, rule)
	}
	return errors.Join(errs...)
}

// writable says, before anything runs, why a report cannot be written to path. What only writing shows is not an error
// here.
func writable(path string) error {
	if path == "" {
		return nil
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return fmt.Errorf("%s is a directory", path)
	}
	folder := filepath.Dir(path)
	switch st, err := os.Stat(folder); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no directory %s", folder)
	case err == nil && !st.IsDir():
		return fmt.Errorf("%s is not a directory", folder)
	}
	return nil
}

// runner is a runner with --parallel, and a progress bar on a terminal. The caller calls stop before it prints.
func (f *shared) runner(c *cobra.Command, what string) (r sim.Runner, stop func()) {
	r.Parallel = f.parallel
	r.Progress, stop = progressBar(c.ErrOrStderr(), what)
	return r, stop
}

// write has print write a report in the format f.out, to c's standard output or to --output.
func (f *shared) write(c *cobra.Command, print func(w io.Writer) error) error {
	if f.output == "" {
		if err := print(c.OutOrStdout()); err != nil {
			return fmt.Errorf("leasesim: %w", err)
		}
		return nil
	}
	return writeFile(f.output, print)
}

// show writes a document as --out and --output say.
func (f *shared) show(c *cobra.Command, d view.Document) error {
	return f.write(c, func(w io.Writer) error { return d.Write(w, f.out) })
}

// judge is nil if r meets every --threshold; else its error says which it fails and by how much, and ends the command
// with status 3. Of a report without rivals, as of one point of a sweep, only Figures is needed.
func (f *shared) judge(r sim.Report) error {
	var errs []error
	for _, rule := range f.rules {
		if err := rule.Check(&r); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
