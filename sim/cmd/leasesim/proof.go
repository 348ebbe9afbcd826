package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

const (
	// proofLoad is the load of the most popular key, as a multiple of its limit, where the scenario's is
	// below proofLeast, or so near to it that a run would be long.
	proofLoad, proofLeast = 2.0, 1.05
	// The lengths of a proof: the burst must be gone before a limit shows.
	proofShort, proofUsual, proofLong = 10 * time.Second, time.Minute, 5 * time.Minute
	// The bounds of a proof on two cores, beside a Redis: processes, requests a second played one by one, or
	// made evenly, lease calls a second; and those beside the embedded Redis, which interprets the script.
	processesMost, playedMost, evenMost, callsMost, embeddedCalls = 32, 8000.0, 400_000.0, 3000.0, 100.0
)

// prove adds to the page of a plan the command that has real processes play the scenario's requests under the
// chosen policy, or says why there is none.
func prove(f *shared, d *view.Document, s sim.Scenario, c *search.Candidate) {
	p, err := proved(s, c)
	if err != nil {
		why := cmp.Or(violation.Line(err), err.Error())
		d.Verdicts = append(d.Verdicts, view.Verdict{Mood: view.Neutral,
			Text: "No real processes can prove it: " +
				why + "."})
		return
	}
	words := []string{"leasesim", "compare", "--live"}
	text := "Real processes play the requests under the chosen policy. Every admission is audited and " +
		"compared with the simulation. "
	if c.Figures.CallsPerS.Mean > embeddedCalls {
		words = append(words, "--redis", "localhost:6379")
		text += fmt.Sprintf("It needs a Redis: the embedded one serves %v lease calls a second. ",
			embeddedCalls)
	}
	words = append(words, "-f", quoted(f.file))
	for _, set := range slices.Concat(f.sets, p.sets) {
		words = append(words, "\\\n  --set", quoted(set))
	}
	d.Sections = append(d.Sections, view.Section{
		Title: "Proof by real processes", Code: strings.Join(words, " ") + "\n",
		Text: []string{text + strings.Join(p.notes, " ")},
	})
}

// proving collects the fields of a scenario to set for a proof, and what to say of them.
type proving struct {
	s           sim.Scenario
	sets, notes []string
}

// set sets a field. An error of an earlier one stays.
func (p *proving) set(err *error, path string, value any) {
	assignment := fmt.Sprintf("%s=%v", path, value)
	p.sets = append(p.sets, assignment)
	*err = cmp.Or(*err, scenfile.Set(&p.s, assignment))
}

func (p *proving) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// proved returns what a proof of s under the chosen policy sets, or why there is none.
func proved(s sim.Scenario, c *search.Candidate) (p proving, err error) {
	p.s = s
	chosen, own := c.Policy, search.PolicyOf(s)
	for _, x := range []struct {
		field string
		is    any
		same  bool // as the scenario's; a length that is not set is none that is set to as much
	}{
		{"target", chosen.Target, chosen.DefaultTarget == own.DefaultTarget && chosen.Target == own.Target},
		{"ttl", chosen.TTL, chosen.DefaultTTL && own.DefaultTTL || !own.DefaultTTL && chosen.TTL == own.TTL},
		{"overcommit", chosen.Overcommit, chosen.Overcommit == own.Overcommit},
		{"calls_per_second", chosen.CallsPerSecond, chosen.CallsPerSecond == own.CallsPerSecond},
	} {
		if !x.same {
			p.set(&err, "policy."+x.field, x.is)
		}
	}
	if len(s.Groups) == 1 && s.Groups[0].Count > processesMost {
		p.set(&err, "groups[0].count", processesMost)
		p.note("It runs %d processes instead of %d.", processesMost, s.Groups[0].Count)
	}
	if err = cmp.Or(err, p.load(&c.Figures)); err != nil {
		return p, err
	}
	played, err := live.Played(p.s)
	if err != nil {
		return p, err
	}
	var differ []string
	for _, d := range live.Differences(played) {
		if d.Path == "groups" { // FromScenario says it better
			continue
		}
		p.set(&err, d.Path, d.Second)
		differ = append(differ, d.Path)
	}
	if len(differ) > 0 {
		p.note("Set to the values of real processes: %s.", strings.Join(differ, ", "))
	}
	if err = cmp.Or(err, p.s.Validate()); err == nil {
		if played, err = live.Played(p.s); err == nil {
			_, err = live.FromScenario(played)
		}
	}
	return p, err
}

// load has the most popular key asked for more than its limit, for long enough that the limit shows, by as
// many requests as one machine makes. A load that is recorded, or of each group its own, stays as it is, if
// some of it was denied in the plan, as figures say.
func (p *proving) load(figures *sim.Figures) (err error) {
	full := p.s.Defaults()
	w, limit := &full.Workload, full.Limits[0]
	all := 0.0 // the popularity of all keys, as multiples of the first one's
	for k := range full.Keys.Count {
		all += math.Pow(float64(k+1), -full.Keys.Zipf)
	}
	w.Actual = sim.TokenDist{} // real processes take what a request reserves, and settle nothing
	was := full.RateOf(w)
	ofGroup := slices.ContainsFunc(full.Groups, func(g sim.Group) bool { return g.Workload != nil })
	if ofGroup || slices.Contains([]string{sim.Closed, sim.Adversary, sim.Replay}, w.Kind) {
		if figures.Admitted.Mean >= figures.Offered.Mean {
			return errors.New("the plan admitted all requests, so nothing would be denied")
		}
		p.set(&err, "duration", min(full.Duration, proofLong))
		return err
	}
	most, evenly := min(playedMost, was*callsMost/max(figures.CallsPerS.Mean, 1)), ""
	second := !limit.Windowed() && limit.Per == time.Second
	if was*proofLeast > most && full.Keys.Count == 1 && w.Cost.Max == 1 && len(full.Groups) == 1 && second {
		most, evenly = evenMost, ", evenly, because they are too many to be played one by one"
	}
	loadAt := func(rate float64) float64 { return rate * w.Cost.Mean() / all / limit.Rate() }
	waits := time.Duration(0) // a line outlasts the burst, and no request comes when the run ends
	if w.Verb == sim.VerbWait {
		waits = w.Deadline
	}
	shows := func(load float64) time.Duration { // half as much as the burst again is denied then
		gone := 1.5*float64(limit.Capacity())/limit.Rate() + load*waits.Seconds()
		return time.Duration(gone / (load - 1) * float64(time.Second))
	}
	rate := min(was, most)
	if own := loadAt(rate); own < proofLeast || !limit.Windowed() && shows(own) > proofUsual {
		rate = min(was*proofLoad/loadAt(was), most)
	}
	load := loadAt(rate)
	if load < proofLeast {
		return fmt.Errorf("at %s requests a second, the most that one machine makes, the load of the "+
			"most popular "+
			"key is %s times its limit, so nothing would be denied", view.Number(rate), view.Number(load))
	}
	switch {
	case evenly != "":
		p.set(&err, "workload", fmt.Sprintf("{kind: constant, load: %.4g}", load))
	case rate != was && w.Rate > 0:
		p.set(&err, "workload.rate", fmt.Sprintf("%.4g/s", rate))
	case rate != was:
		p.set(&err, "workload.load", fmt.Sprintf("%.4g", w.Load*rate/was))
	}
	if rate != was || evenly != "" {
		p.note("The load is %s times the limit of the most popular key: %s requests a second instead of "+
			"%s%s.", view.Number(load), view.Number(rate), view.Number(was), evenly)
	}
	lasts := shows(load)
	if limit.Windowed() {
		lasts = 3*limit.Per + waits
	}
	if lasts = max(lasts, proofShort).Round(time.Second); w.Kind == sim.Flash {
		lasts = max(lasts, full.Duration)
	}
	if lasts > proofLong {
		return fmt.Errorf("the limit shows only in a run of %v, and a proof lasts at most "+
			"%v", lasts, proofLong)
	}
	p.set(&err, "duration", lasts)
	return err
}
