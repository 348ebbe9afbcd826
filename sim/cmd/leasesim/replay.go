package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/scenario/trace"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func (p *program) replayCommand() *cobra.Command {
	var file, columns string
	var repeat bool
	f := p.simulating("replay", func(f *shared) error {
		if file == "" {
			return fmt.Errorf("%w: replay needs a --trace", errUsage)
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
			f.fit(s, t)
			for i := range s.Groups {
				s.Groups[i].Workload = nil
			}
			s.Workload = sim.Workload{
				Kind: sim.Replay, Verb: s.Workload.Verb, Deadline: s.Workload.Deadline,
				File: file, Columns: columns, Trace: t, TraceSum: trace.Digest(t), Repeated: repeat,
			}
			return nil
		})
	})
	f.Flags().StringVar(&file, "trace", "", "the recorded requests: CSV, an access log, or JSON lines")
	f.Flags().StringVar(&columns, "columns", "",
		"what the file calls its fields, as in time_ms=ts,key=user,process=host,tokens=cost")
	f.Flags().BoolVar(&repeat, "repeat", false, "start again at the end of the trace, until --duration is over")
	return f.Command
}

// fit makes the run as long as t and the answer to its last request, with as many keys and
// processes, but where the command line says how many or how long. The processes of several groups
// are the scenario's own.
func (f *shared) fit(s *sim.Scenario, t *sim.Trace) {
	sets := func(field string) bool {
		return slices.ContainsFunc(f.sets, func(set string) bool { return strings.HasPrefix(set, field) })
	}
	if n := len(t.Requests); n > 0 && !f.Flags().Changed("duration") && !sets("duration=") {
		answer := s.Defaults().CallTimeout
		if s.Workload.Verb == sim.VerbWait {
			answer = s.Defaults().Workload.Deadline
		}
		s.Duration = t.Requests[n-1].At.Truncate(time.Millisecond) + time.Millisecond + answer
		if !f.Flags().Changed("file") && s.Warmup >= s.Duration/2 {
			s.Warmup = 0 // of the built-in scenario, which knows nothing of the trace
		}
	}
	if !sets("keys") {
		s.Keys.Count = t.Keys
	}
	if len(s.Groups) <= 1 && t.Processes > 0 && !sets("groups") {
		s.Groups = slices.Clone(s.Defaults().Groups)
		s.Groups[0].Count, s.Groups[0].Share = t.Processes, 0
	}
}

// tellTraces says what was done to the traces that s replays, and what of them it does not show as
// it was.
func (f *shared) tellTraces(s sim.Scenario) {
	s = s.Defaults()
	shared := 0
	for _, g := range s.Groups {
		if g.Workload == nil {
			shared += g.Count
		} else {
			f.tellTrace(&s, g.Workload, g.Count)
		}
	}
	f.tellTrace(&s, &s.Workload, shared)
}

func (f *shared) tellTrace(s *sim.Scenario, w *sim.Workload, processes int) {
	t := w.Trace
	if w.Kind != sim.Replay || processes == 0 {
		return
	}
	notes := slices.Clone(t.Notes)
	if t.Keys > s.Keys.Count {
		notes = append(notes, fmt.Sprintf("it has %d keys and keys.count is %d: key n is played as key n mod %[2]d",
			t.Keys, s.Keys.Count))
	}
	if t.Processes > processes {
		notes = append(notes, fmt.Sprintf("it has %d processes and the fleet %d: process n is played as process "+
			"n mod %[2]d", t.Processes, processes))
	}
	late := len(t.Requests) - slices.IndexFunc(t.Requests, func(r sim.TraceRequest) bool { return r.At >= s.Duration })
	if late <= len(t.Requests) {
		notes = append(notes, fmt.Sprintf("%d of its %d requests come after the end of the run (%v)", late,
			len(t.Requests), s.Duration))
	}
	for _, note := range notes {
		fmt.Fprintf(f.ErrOrStderr(), "leasesim: %s: %s\n", w.File, note)
	}
}
