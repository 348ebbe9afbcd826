package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// embeddedCalls is how many lease calls a second the embedded Redis serves, which interprets the script.
const embeddedCalls = 100.0

// prove adds to the page of a plan the command that has real processes play the scenario under the chosen
// policy, or says why there is none.
func prove(f *shared, d *view.Document, s sim.Scenario, c *search.Candidate) {
	sets, err := f.sets, error(nil)
	own := search.PolicyOf(s)
	for _, x := range []struct {
		field string
		is    any
		same  bool // as the scenario's; a length that is not set is none that is set to as much
	}{
		{"target", c.Policy.Target, c.Policy.DefaultTarget == own.DefaultTarget && c.Policy.Target == own.Target},
		{"ttl", c.Policy.TTL, c.Policy.DefaultTTL && own.DefaultTTL || !own.DefaultTTL && c.Policy.TTL == own.TTL},
		{"overcommit", c.Policy.Overcommit, c.Policy.Overcommit == own.Overcommit},
		{"calls_per_second", c.Policy.CallsPerSecond, c.Policy.CallsPerSecond == own.CallsPerSecond},
	} {
		if set := fmt.Sprintf("policy.%s=%v", x.field, x.is); !x.same {
			sets = append(slices.Clip(sets), set)
			err = cmp.Or(err, scenfile.Set(&s, set))
		}
	}
	if err == nil {
		_, _, err = live.FromScenario(s)
	}
	if err != nil {
		why := cmp.Or(violation.Line(err), err.Error())
		d.Verdicts = append(d.Verdicts, view.Verdict{Mood: view.Neutral,
			Text: "No real processes can prove it: " + why + "."})
		return
	}
	words := []string{"leasesim", "compare", "--live"}
	text := "Real processes play the requests under the chosen policy. Every admission is audited and compared " +
		"with the simulation. Where the load is below the limit, --set workload.load=2 shows denials."
	if c.Figures.CallsPerS.Mean > embeddedCalls {
		words = append(words, "--redis", "localhost:6379")
		text += fmt.Sprintf(" It needs a Redis: the embedded one serves %v lease calls a second.", embeddedCalls)
	}
	words = append(words, "-f", quoted(f.file))
	for _, set := range sets {
		words = append(words, "\\\n  --set", quoted(set))
	}
	d.Sections = append(d.Sections, view.Section{
		Title: "Proof by real processes", Code: strings.Join(words, " ") + "\n", Text: []string{text},
	})
}
