package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// command is a command line, word by word, for a shell.
type command []string

// MarshalText implements encoding.TextMarshaler.
func (c command) MarshalText() ([]byte, error) { return []byte(strings.Join(c, " ")), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *command) UnmarshalText(text []byte) error {
	*c = command{string(text)}
	return nil
}

// lines is c in lines of at most 116 characters, which a shell takes for one.
func (c command) lines() string {
	const most = 116
	var b strings.Builder
	width := 0
	for _, word := range c {
		n := utf8.RuneCountInString(word)
		switch {
		case width == 0:
		case width+1+n > most:
			b.WriteString(" \\\n    ")
			width = 4
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += n
	}
	return b.String()
}

// realBy is the real run alone.
func realBy(o live.Options) command {
	c := command{"leasesim", "live"}
	flag := func(given bool, name string, value any) {
		if given {
			c = append(c, "--"+name, quoted(fmt.Sprint(value)))
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
		c = append(c, "--strict")
	}
	return c
}

// simulatedBy is the simulation alone. s is what was simulated.
func simulatedBy(f *shared, s sim.Scenario) (command, error) {
	c := command{"leasesim", "run", "-f", quoted(f.file)}
	for _, set := range f.sets {
		c = append(c, "--set", quoted(set))
	}
	for _, measured := range []struct {
		path  string
		value sim.DurationDist
	}{{"network.round_trip", s.Network.RoundTrip}, {"redis.service_time", s.Redis.ServiceTime}} {
		text, err := measured.value.MarshalText()
		if err != nil {
			return nil, err
		}
		c = append(c, "--set", quoted(measured.path+"="+string(text)))
	}
	if f.changed("duration") {
		c = append(c, "--duration", s.Duration.String())
	}
	s = s.Defaults()
	return append(c, "--reps", fmt.Sprint(s.Reps), "--seed", fmt.Sprint(s.Seed)), nil
}

// write writes the comparison in a format of render's.
func (b *sideBySide) write(w io.Writer, format string) error {
	switch format {
	case view.FormatJSON:
		return view.WriteJSON(w, b)
	case view.FormatCSV:
		return b.csv(w)
	}
	return b.table(w)
}

func (b *sideBySide) csv(w io.Writer) error {
	rows := [][]string{{"figure", "simulated", "simulated_least", "simulated_most", "real", "low", "high", "tolerance", "agrees"}}
	for _, r := range b.Rows {
		row := []string{r.Name}
		for _, x := range []float64{r.Simulated, r.Least, r.Most, r.Real, r.Low, r.High} {
			row = append(row, view.Raw(x))
		}
		rows = append(rows, append(row, r.Tolerance, fmt.Sprint(r.Agrees)))
	}
	return view.WriteCSV(w, rows)
}

// rowWords are the names of rows for people, where they differ.
var rowWords = map[string]string{
	live.AdmittedPart: "of burst + rate × duration",
	live.Calls:        "lease calls/s of a process",
	live.Jain:         "Jain's index",
	live.Exceeded:     "bound exceeded by",
}

func (b *sideBySide) table(w io.Writer) error {
	r := b.Real
	service := "the server does not say how much of it is its own"
	if r.ServiceTimeNs > 0 {
		service = fmt.Sprintf("%v of it in the server", time.Duration(r.ServiceTimeNs))
	}
	var text strings.Builder
	fmt.Fprintln(&text, view.Wrap(fmt.Sprintf("%s\nRedis: %s; a round trip took %v, one in a hundred %v or more, %s", b.Fleet, b.Redis,
		time.Duration(r.RoundTripNs.P50), time.Duration(r.RoundTripNs.P99), service)))
	fmt.Fprintf(&text, "\nReal:\n  %s\nSimulated:\n  %s\n\n", b.RealBy.lines(), b.SimBy.lines())
	t := view.Table{Columns: []string{"figure", ">simulated", ">real", ">agrees from", ">to", "tolerance", "agrees"}}
	for _, r := range b.Rows {
		name, number := r.Name, view.Number
		if words := rowWords[name]; words != "" {
			name = words
		}
		if r.Name == live.AdmittedPart {
			number = view.Percent
		}
		agrees := "yes"
		if !r.Agrees {
			agrees = "NO"
		}
		t.Add(name, number(r.Simulated), number(r.Real), number(r.Low), number(r.High), r.Tolerance, agrees)
	}
	fmt.Fprintf(&text, "%s\n%s\n", t.String(), view.Wrap(b.verdict()))
	_, err := io.WriteString(w, text.String())
	return err
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
