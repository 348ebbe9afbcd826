package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// TestANewcomerGetsFromInitToAProof by what the help and the outputs name, and nothing else.
func TestANewcomerGetsFromInitToAProof(t *testing.T) {
	t.Parallel()
	command := func(text, of string) string {
		text = strings.ReplaceAll(text, "\\\n ", "")
		found := regexp.MustCompile(`(?m)^ *leasesim (` + of + ` .*)$`).FindStringSubmatch(text)
		testkit.Must(t, found != nil, "no command %s in\n%s", of, text)
		return found[1]
	}
	// Given the help, when its first commands are typed,
	help := leasesim(t, "--help").ends(0).stdout
	first, second := command(help, "init"), command(help, "plan")
	line, path, _ := strings.Cut(first, " > ")
	folder := t.TempDir()
	scenario := filepath.Join(folder, path)
	testkit.NoErr(t, os.WriteFile(scenario, []byte(leasesim(t, line).ends(0).stdout), 0o644))
	testkit.Must(t, strings.Contains(second, "-f "+path), "%s does not plan %s", second, path)
	second = strings.Replace(second, path, scenario, 1) + " --reps 3 --duration "
	if testkit.Long(t, "a plan of runs of a second", "one of four seconds") {
		second += "4s"
	} else {
		second += "1s"
	}
	plan := leasesim(t, second).ends(0)
	// then the plan names the command that proves it,
	proof := strings.NewReplacer("localhost:6379", redistest.Start(t).Addr).Replace(command(plan.stdout,
		"compare"))
	p := prints[search.Plan](leasesim(t, second+" --out json").ends(0))
	target := strings.Contains(proof, "policy.target="+p.Chosen.Policy.Target)
	ttl := strings.Contains(proof, "policy.ttl="+p.Chosen.Policy.TTL)
	testkit.Check(t, target != p.Chosen.Policy.DefaultTarget && ttl != p.Chosen.Policy.DefaultTTL,
		"%s is not about %+v", proof, p.Chosen.Policy)
	// which runs with as many processes, has some of their requests denied, and finds the bound kept.
	testkit.Eventually(t, "a proof by processes that get the processor", func() bool {
		r := prints[sideBySide](leasesim(t, proof+" --set workload.load=2 --out json --duration 2s")).Real
		testkit.Must(t, len(r.Processes) == 20 && r.Limit == "10000/s burst 2000" && r.BoundExceededBy == 0,
			"%+v", r)
		return r.Admitted < r.Offered
	})
}

func TestAPlanIsProvedByItsOwnRequests(t *testing.T) {
	// Given the plan of a fleet, when something about it is another, then so is the command that proves it.
	for _, c := range []struct {
		sets  string // of a fleet of 20 processes at 250/s, with a limit of 100/s burst 30
		want  string // in the command and in what is said of it
		never string // in the command
	}{
		{"", "compare --live --redis localhost:6379 -f FILE \\\n  --set policy.target=20ms\n", "ttl"},
		{"policy.ttl=300ms", "--set policy.target=20ms", "ttl"}, // that is the scenario's
		{"limits=[1000 each 24h]", "No real processes can prove it: ", "--set"},
		{"limits=[100/s, 1000/m]", "must be one limit", "--set"},
		{"workload={kind: closed}", "whose requests do not depend on answers", "--set"},
	} {
		s := sim.Scenario{Limits: []lease.Limit{lease.PerSecond(100).WithBurst(30)},
			Groups: []sim.Group{{Count: 20}}, Workload: sim.Workload{Rate: 250},
			Policy: lease.Policy{Fallback: lease.FallbackDeny}}
		if c.sets != "" {
			testkit.NoErr(t, scenfile.Set(&s, strings.Split(c.sets, "; ")...))
		}
		chosen := &search.Candidate{Policy: search.PolicyOf(s)}
		chosen.Policy.Target, chosen.Policy.DefaultTarget, chosen.Figures.CallsPerS.Mean = "20ms", false, 101
		f := (&program{}).simulating("plan", nil)
		f.file = "FILE"
		says := func() (text string) {
			var d view.Document
			prove(f, &d, s, chosen)
			for _, v := range d.Verdicts {
				text += v.Text
			}
			for _, section := range d.Sections {
				text += section.Code + strings.Join(section.Text, "")
			}
			return text
		}
		got := says()
		testkit.Check(t, strings.Contains(got, c.want) && (c.never == "" || !strings.Contains(got, c.never)),
			"%s: %s, want %q and no %q", c.sets, got, c.want, c.never)
		chosen.Figures.CallsPerS.Mean = 100
		testkit.Check(t, !strings.Contains(says(), "--redis"), "the embedded Redis serves 100 calls")
	}
}
