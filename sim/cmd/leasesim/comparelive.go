package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/render"
	"github.com/yuzhi-go/yuzhi/sim/scenfile"
)

// liveFile is the scenario of compare --live without -f: what live does without flags.
const liveFile = "example:real-processes"

// realFleet holds the flags of compare --live.
type realFleet struct {
	live  bool
	redis string
}

func (r *realFleet) add(c *cobra.Command) {
	c.Flags().BoolVar(&r.live, "live", false, "set the simulation beside real processes that share a Redis, instead of other algorithms")
	c.Flags().StringVar(&r.redis, "redis", "", "with --live: host:port of a real Redis; without it an embedded one is started")
}

// validate checks the flags that do not go together, and chooses the scenario.
func (r *realFleet) validate(f *shared) error {
	switch {
	case !r.live && f.changed("redis"):
		return fmt.Errorf("%w: --redis is for compare --live", errUsage)
	case r.live && f.changed("rivals"):
		return fmt.Errorf("%w: --rivals are not run by --live", errUsage)
	case r.live && f.out == render.FormatHTML:
		return fmt.Errorf("%w: --out is html, must be table, json or csv with --live", errUsage)
	case r.live && !f.changed("file"):
		f.file = liveFile
	}
	return nil
}

// errDisagree: compare --live worked and found a difference.
var errDisagree = errors.New("leasesim: the simulation and the real fleet disagree")

// liveHelp says what --live does, and how near is near enough.
func liveHelp() string {
	return `--live takes the place of the other algorithms with reality: the scenario is run by as many processes, as leasesim live
does it, on the Redis at --redis or an embedded one, and by the simulator, with the round trips and the service time
of that run. ` + live.ToleranceHelp() + `
Scenarios that live cannot run are refused, and what is wrong with them is named. Without -f it is ` + liveFile + `.`
}

// sideBySide is what compare --live shows. Its JSON keys are part of the command's interface.
type sideBySide struct {
	Agrees    bool        `json:"agrees"`
	Rows      []live.Row  `json:"rows"`
	Fleet     string      `json:"fleet"`
	Redis     string      `json:"redis"`
	RealBy    string      `json:"real_by"`      // the command that repeats the real run
	SimBy     string      `json:"simulated_by"` // and the simulated one
	Real      live.Report `json:"real"`
	Simulated sim.Report  `json:"simulated"`
}

// compareLive runs a scenario with real processes and in the simulator.
func (p *program) compareLive(c *cobra.Command, f *shared, fleet realFleet) error {
	var o live.Options
	s, err := f.load(func(s *sim.Scenario) (err error) {
		s.Rivals = nil
		o, err = live.FromScenario(*s)
		return err
	})
	if err != nil {
		return err
	}
	var shown sideBySide
	progress, clear := progressLine(c.ErrOrStderr())
	o.Redis = fleet.redis
	shown.Real, err = live.Run(c.Context(), o, progress)
	clear()
	if c.Context().Err() != nil {
		err = sim.ErrInterrupted
	}
	if err != nil {
		return fmt.Errorf("leasesim: nothing is compared: %w", err)
	}
	s = live.Simulated(s, shown.Real)

	runner, stop := f.runner(c, c.Name())
	shown.Simulated, err = p.simulate(runner, c.Context(), s)
	stop()
	if err != nil {
		return fmt.Errorf("leasesim: nothing is compared: %w", err)
	}
	shown.Rows = live.Compare(o, shown.Simulated, shown.Real)
	var disagree []string
	for _, row := range shown.Rows {
		if !row.Agrees {
			disagree = append(disagree, row.Name)
		}
	}
	shown.Agrees = len(disagree) == 0
	shown.Redis, shown.Fleet = shown.Real.Redis, fleetText(o)
	shown.RealBy = liveCommandLine(o)
	if shown.SimBy, err = simulatedBy(f, s); err != nil {
		return err
	}
	if err := f.write(c, func(w io.Writer) error { return shown.write(w, f.out) }); err != nil {
		return err
	}
	if !shown.Agrees {
		return fmt.Errorf("%w: %s", errDisagree, strings.Join(disagree, ", "))
	}
	return f.judge(shown.Simulated)
}

// fleetText says in a line what is run.
func fleetText(o live.Options) string {
	return fmt.Sprintf("%d processes share %d/s burst %d; load %s at %s × the limit, %v",
		o.Processes, o.Rate, o.Burst, o.Shape, render.Number(o.Offered), o.Duration)
}

// liveCommandLine is the real run alone.
func liveCommandLine(o live.Options) string {
	words := []string{"leasesim", "live"}
	flag := func(given bool, name string, value any) {
		if given {
			words = append(words, "--"+name, quoted(fmt.Sprint(value)))
		}
	}
	flag(o.Redis != "", "redis", o.Redis)
	flag(true, "processes", o.Processes)
	flag(true, "rate", o.Rate)
	flag(true, "burst", o.Burst)
	flag(o.Overcommit > 0, "overcommit", o.Overcommit)
	flag(true, "offered", o.Offered)
	flag(true, "shape", o.Shape)
	flag(o.Within > 0, "within", o.Within)
	flag(true, "duration", o.Duration)
	flag(o.Target > 0, "target", o.Target)
	flag(o.TTL > 0, "ttl", o.TTL)
	if o.Strict {
		words = append(words, "--strict")
	}
	return strings.Join(words, " ")
}

// simulatedBy is the simulation alone. s is what was simulated.
func simulatedBy(f *shared, s sim.Scenario) (string, error) {
	words := []string{"leasesim", "run", "-f", quoted(f.file)}
	for _, set := range f.sets {
		words = append(words, "--set", quoted(set))
	}
	for _, path := range []string{"network.round_trip", "redis.service_time"} {
		value, err := scenfile.Get(s, path)
		if err != nil {
			return "", err
		}
		words = append(words, "--set", quoted(path+"="+value))
	}
	if f.changed("duration") {
		words = append(words, "--duration", s.Duration.String())
	}
	s = s.Defaults()
	words = append(words, "--reps", fmt.Sprint(s.Reps), "--seed", fmt.Sprint(s.Seed))
	return strings.Join(words, " "), nil
}

// write writes the comparison in a format of render's.
func (b *sideBySide) write(w io.Writer, format string) error {
	switch format {
	case render.FormatJSON:
		return render.WriteJSON(w, b)
	case render.FormatCSV:
		return b.csv(w)
	}
	return b.table(w)
}

// verdict says in words whether the two agree, and if not, what may be the reason.
func (b *sideBySide) verdict() string {
	if b.Agrees {
		return "The simulation and the real fleet agree."
	}
	text := "The simulation and the real fleet DISAGREE."
	for _, r := range b.Rows {
		if r.Name == live.Offered && r.Real < r.Low {
			text += " The real processes asked less than they should, as they did not get the processor in time: run it again on an idle machine, or with less load."
		}
	}
	return text
}

func (b *sideBySide) csv(w io.Writer) error {
	var rows [][]string
	for _, r := range b.Rows {
		row := []string{r.Name}
		for _, x := range []float64{r.Simulated, r.Least, r.Most, r.Real, r.Low, r.High} {
			row = append(row, render.Raw(x))
		}
		rows = append(rows, append(row, r.Tolerance, fmt.Sprint(r.Agrees)))
	}
	return render.WriteCSV(w, []string{"figure", "simulated", "simulated_least", "simulated_most", "real", "low", "high", "tolerance", "agrees"}, rows)
}

// rowWords are the names of rows for people, where they differ.
var rowWords = map[string]string{
	live.AdmittedPart: "admitted / (burst + rate × duration)",
	live.Calls:        "lease calls/s of a process",
	live.Jain:         "Jain's index",
	live.Exceeded:     "bound exceeded by",
}

func (b *sideBySide) table(w io.Writer) error {
	var text strings.Builder
	r := b.Real
	service := "of which the server does not say how much is its own"
	if r.ServiceTimeNs > 0 {
		service = fmt.Sprintf("of which %v are the server's", time.Duration(r.ServiceTimeNs))
	}
	fmt.Fprintf(&text, "%s\nReal:      %s on %s\nSimulated: %s\nMeasured:  a round trip took %v, one in a hundred %v or more, %s", b.Fleet, b.RealBy, b.Redis, b.SimBy,
		time.Duration(r.RoundTripNs.P50), time.Duration(r.RoundTripNs.P99), service)
	text.WriteString("\n\n")
	t := render.Table{Columns: []render.Column{
		render.Left("figure"), render.Right("simulated"), render.Right("from"), render.Right("to"), render.Right("real"),
		render.Right("agrees from"), render.Right("to"), render.Left("tolerance"), render.Left("agrees"),
	}}
	for _, r := range b.Rows {
		name, number := r.Name, render.Number
		if words := rowWords[name]; words != "" {
			name = words
		}
		if r.Name == live.AdmittedPart {
			number = render.Percent
		}
		agrees := "yes"
		if !r.Agrees {
			agrees = "NO"
		}
		t.Add(name, number(r.Simulated), number(r.Least), number(r.Most), number(r.Real), number(r.Low), number(r.High), r.Tolerance, agrees)
	}
	if err := t.Write(&text); err != nil {
		return err
	}
	text.WriteString("\n" + b.verdict() + "\n")
	_, err := io.WriteString(w, text.String())
	return err
}
