package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
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
	proof := command(plan.stdout, "live")
	p := prints[search.Plan](leasesim(t, second+" --out json").ends(0))
	target := strings.Contains(proof, "--target "+p.Chosen.Policy.Target)
	ttl := strings.Contains(proof, "--ttl "+p.Chosen.Policy.TTL)
	testkit.Check(t, target != p.Chosen.Policy.DefaultTarget && ttl != p.Chosen.Policy.DefaultTTL,
		"%s is not about %+v", proof, p.Chosen.Policy)
	// which runs, and finds the bound kept.
	r := checkFleet(t, strings.TrimPrefix(proof, "live ")+" --duration 1s")
	testkit.Check(t, len(r.Processes) > 1 && len(r.Processes) <= 20 && r.Limit == "10000/s burst 2000",
		"%d processes share %s", len(r.Processes), r.Limit)
}

func TestAPlanIsProvedByWhatLiveCanDo(t *testing.T) {
	limits := []lease.Limit{lease.PerSecond(100).WithBurst(30)}
	base := sim.Scenario{Limits: limits, Groups: []sim.Group{{Count: 20}, {Count: 900}},
		Workload: sim.Workload{Rate: 250}}
	policy := search.Policy{Target: "20ms", TTL: "200ms", Overcommit: 3, CallsPerSecond: 70}
	chosen := func(p search.Policy, calls float64) *search.Candidate {
		c := &search.Candidate{Policy: p}
		c.Figures.CallsPerS.Mean = calls
		return c
	}
	got := proof(base, chosen(policy, 100))
	testkit.Must(t, len(got) == 1, "%+v", got)
	testkit.Check(t, got[0].Code == "leasesim live --processes 32 --limit '100/s burst 30' \\\n  --target "+
		"20ms --ttl 200ms --offered 2.5 "+"--overcommit 3 --calls-per-second 70\n", "%s", got[0].Code)
	testkit.Check(t, strings.Contains(fmt.Sprint(got[0].Text), "32 real processes in the place of 920"), "%v",
		got[0].Text)
	// Of many keys it plays one, with its part of the requests and of the calls, and requests of one
	// token that take as many together.
	users := base
	users.Keys.Count, users.Workload = 5000, sim.Workload{Rate: 200_000, Cost: sim.Cost{Min: 1, Max: 4}}
	got = proof(users, chosen(policy, 20_000))
	testkit.Check(t, strings.Contains(got[0].Code, "--processes 32 ") &&
		strings.Contains(got[0].Code, "--offered 1 ") &&
		strings.Contains(got[0].Text[0], "one key, with the mean load of the 5,000. Their requests take one "+
			"token each"), "%+v", got)
	users.Workload.Rate *= 1e6 // live refuses more than a thousand times the limit
	testkit.Check(t, strings.Contains(proof(users, chosen(policy, 1))[0].Code, "--offered 1000 "),
		"more than live takes")
	users.Workload.Rate = 50 // of all keys: one would not ask for a hundred tokens in five minutes
	got = proof(users, chosen(policy, 1))
	testkit.Check(t, len(got) == 1 && !strings.Contains(got[0].Code, "--offered") &&
		strings.Contains(got[0].Text[0], "ask for 2 times its limit"), "%+v", got)
	// Reservations count with their final cost, and loads without a rate as they were offered.
	asked := chosen(policy, 1)
	asked.Figures.Offered.Mean = 30_000
	group := sim.Group{Count: 20, Workload: &sim.Workload{Rate: 300}}
	for want, change := range map[string]func(*sim.Scenario){
		"1.25": func(s *sim.Scenario) {
			s.Workload.Cost, s.Workload.Actual = sim.Cost{Min: 9, Max: 9}, sim.TokenDist{Dist: sim.Dist{P: 0.5}}
		},
		"10": func(s *sim.Scenario) { s.Workload = sim.Workload{Kind: sim.Closed} },
		"15": func(s *sim.Scenario) { s.Groups, s.Warmup = []sim.Group{group}, 10*time.Second },
	} {
		s := base
		change(&s)
		got := proof(s, asked)
		testkit.Check(t, strings.Contains(got[0].Code, "--offered "+want+" "), "want %s: %s", want, got[0].Code)
	}
	// A TTL that is not set is named only where it would be another one.
	unset, slow := policy, base
	unset.DefaultTTL, slow.CallTimeout = true, 250*time.Millisecond
	for _, c := range []struct {
		s    sim.Scenario
		want bool
	}{{base, false}, {slow, true}} {
		code := proof(c.s, chosen(unset, 100))[0].Code
		testkit.Check(t, strings.Contains(code, "--ttl 200ms") == c.want, "after %v: %s", c.s.CallTimeout, code)
	}
	// There is no command for a scenario that live cannot run.
	two := base
	two.Limits = append(two.Limits, lease.Every(time.Second))
	testkit.Check(t, proof(two, chosen(policy, 1)) == nil, "a command for two limits")
	// A run asks for enough to show something, and none takes hours.
	for _, c := range []struct {
		limit lease.Limit
		load  float64
		want  string // part of the command, "none" without one
		says  string
	}{
		{lease.PerSecond(100), 2, " --offered 2", "for 5s,"},
		{lease.PerMinute(120), 0.5, " --offered 0.5 --duration 1m40s", "for 1m40s,"},
		{lease.PerHour(100), 2, "none", ""},
		{lease.Sliding(100, time.Minute), 1, " --offered 1", "for 3m0s,"},
		{lease.Sliding(1000, 2*time.Minute), 1, "none", ""},
		{lease.Calendar(1000, 24*time.Hour, 0), 9, "none", ""},
	} {
		s := sim.Scenario{Limits: []lease.Limit{c.limit}, Workload: sim.Workload{Load: c.load}}
		got := proof(s, chosen(search.Policy{Target: "20ms", DefaultTTL: true}, 1))
		testkit.Must(t, len(got) == 0 == (c.want == "none"), "%v: %+v", c.limit, got)
		testkit.Check(t, len(got) == 0 || strings.HasSuffix(got[0].Code, c.want+"\n") &&
			strings.Contains(got[0].Text[0], c.says), "%v: %+v", c.limit, got)
	}
	// There are no more processes than the embedded Redis has calls for, and two at least.
	for calls, want := range map[float64]string{100: "--processes 32 ", 9200: "--processes 10 ",
		1e6: "--processes 2 "} {
		got := proof(base, chosen(policy, calls))[0].Code
		testkit.Check(t, strings.Contains(got, want), "%v calls a second: %s", calls, got)
	}
}
