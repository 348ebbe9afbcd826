package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/scenario/trace"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func replayCommand(p *program) *cobra.Command {
	var file, columns string
	var repeat bool
	f := p.simulating("replay", func(f *shared) error {
		if file == "" {
			return fmt.Errorf("%w: replay needs a --trace", errUsage)
		}
		if i := slices.IndexFunc(f.sets, replaced); i >= 0 {
			return fmt.Errorf("%w: --set %s: the trace replaces it; of workload only verb, deadline, "+
				"patience, actual, hold and cancelled have an effect, and a group's own has "+
				"none", errUsage, f.sets[i])
		}
		return f.report(view.Run, func(s *sim.Scenario) error {
			names, err := trace.ParseColumns(columns)
			if err != nil {
				return fmt.Errorf("%w: --columns: %w", errUsage, err)
			}
			t, err := trace.ReadFile(file, names)
			if err != nil {
				return fmt.Errorf("%w: --trace: %w", errUsage, err)
			}
			if repeat && !f.cmd.Flags().Changed("duration") && !f.says(durationSet) {
				return fmt.Errorf("%w: --repeat needs --duration: without it the run ends with the "+
					"trace", errUsage)
			}
			if !f.cmd.Flags().Changed("file") { // the built-in scenario's words are not about the trace
				s.Name, s.Description = filepath.Base(file), ""
			}
			for i := range s.Groups {
				s.Groups[i].Workload = nil
			}
			w := s.Workload
			s.Workload = sim.Workload{
				Kind: sim.Replay, Verb: w.Verb, Deadline: w.Deadline, Patience: w.Patience,
				Actual: w.Actual, Hold: w.Hold, Cancelled: w.Cancelled,
				File: file, Columns: columns, Trace: t, TraceSum: trace.Digest(t), Repeated: repeat,
			}
			f.fit(s, t)
			return nil
		})
	})
	f.cmd.Flags().StringVar(&file, "trace", "", "file of recorded requests, CSV or an access log")
	f.cmd.Flags().StringVar(&columns, "columns", "",
		"names of the fields in the file, as in time_ms=ts,key=user,process=host,tokens=cost")
	f.cmd.Flags().BoolVar(&repeat, "repeat", false, "repetition of the trace until the end of --duration")
	return f.cmd
}

// Settings by --set that a trace would set.
var (
	durationSet = regexp.MustCompile(`^ *duration *=`)
	keysSet     = regexp.MustCompile(`^ *keys(\.count *=| *=.*count)`)
	groupsSet   = regexp.MustCompile(`^ *groups(\.[^.=]+|\[[^]]*\])?(\.count *=| *=.*count)`)
)

// ofWorkload is a --set of a workload, a group's too, and staying of what is left of one.
var (
	ofWorkload = regexp.MustCompile(
		`^ *((groups(\.[^.=]+|\[[^]]*\])\.)?workload *(\.|=)|groups[^=]*=.*\bworkload["']? *:)`)
	staying = regexp.MustCompile(`^ *workload\.(verb|deadline|patience|actual|hold|cancelled) *=`)
)

// replaced reports whether a --set is of what a trace takes the place of.
func replaced(set string) bool { return ofWorkload.MatchString(set) && !staying.MatchString(set) }

// says reports whether a --set says what is asked for.
func (f *shared) says(what *regexp.Regexp) bool { return slices.ContainsFunc(f.sets, what.MatchString) }

// fit makes the run as long as t and the answer to its last request, with as many keys and processes, but
// where the command line says how many or how long. The processes of several groups are the scenario's own.
func (f *shared) fit(s *sim.Scenario, t *sim.Trace) {
	if n := len(t.Requests); n > 0 && !f.cmd.Flags().Changed("duration") && !f.says(durationSet) {
		warmup := s.Warmup
		s.Duration, s.Warmup = 0, 0
		if f.cmd.Flags().Changed("file") || warmup < s.Defaults().Duration/2 {
			s.Warmup = warmup // which the built-in scenario has, that knows nothing of the trace
		}
	}
	if !f.says(keysSet) {
		s.Keys.Count = t.Keys
	}
	if len(s.Groups) <= 1 && t.Processes > 0 && !f.says(groupsSet) {
		s.Groups = slices.Clone(s.Defaults().Groups)
		s.Groups[0].Count, s.Groups[0].Share = t.Processes, 0
	}
}
