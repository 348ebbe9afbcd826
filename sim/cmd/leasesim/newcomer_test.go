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
	four := sim.Workload{Rate: 200_000, Cost: sim.Cost{Min: 1, Max: 4}}
	// Given the plan of a fleet, when something about it is another, then so is the command that proves it.
	for _, c := range []struct {
		change func(s *sim.Scenario, c *search.Candidate)
		want   string // in the command and in what is said of it; "" for no command
		never  string
	}{
		{func(*sim.Scenario, *search.Candidate) {}, "leasesim live --processes 32 --limit '100/s burst 30' \\\n  " +
			"--target 20ms --ttl 200ms --offered 2.5 --overcommit 3 --calls-per-second 70\n", ""},
		{func(*sim.Scenario, *search.Candidate) {}, "32 real processes in the place of 920", ""},
		// Of many keys it plays one, with its part of the requests and of the calls, and requests of one
		// token that take as many together.
		{users(four), "--processes 32 ", ""},
		{users(four), "--offered 1 ", ""},
		{users(four), "one key, with the mean load of the 5,000. Their requests take one token each", ""},
		{users(sim.Workload{Rate: 200_000 * 1e6}), "--offered 1000 ", ""}, // live refuses more
		// One key would not ask for a hundred tokens in five minutes.
		{users(sim.Workload{Rate: 50}), "ask for 2 times its limit", "--offered"},
		// Reservations count with their final cost, and loads without a rate as they were offered.
		{func(s *sim.Scenario, _ *search.Candidate) {
			s.Workload.Cost, s.Workload.Actual = sim.Cost{Min: 9, Max: 9}, sim.TokenDist{Dist: sim.Dist{P: 0.5}}
		}, "--offered 1.25 ", ""},
		{func(s *sim.Scenario, c *search.Candidate) {
			s.Workload, c.Figures.Offered.Mean = sim.Workload{Kind: sim.Closed}, 30_000
		}, "--offered 10 ", ""},
		{func(s *sim.Scenario, c *search.Candidate) {
			s.Groups[0].Workload, s.Warmup, c.Figures.Offered.Mean = &sim.Workload{Rate: 300}, 10*time.Second, 30_000
		}, "--offered 15 ", ""},
		// A TTL that is not set is named only where it would be another one.
		{func(_ *sim.Scenario, c *search.Candidate) { c.Policy.DefaultTTL = true }, "--target 20ms", "--ttl"},
		{func(s *sim.Scenario, c *search.Candidate) {
			s.CallTimeout, c.Policy.DefaultTTL = 250*time.Millisecond, true
		}, "--ttl 200ms", ""},
		// There are no more processes than the embedded Redis has calls for, and two at least.
		{calls(9200), "--processes 10 ", ""},
		{calls(1e6), "--processes 2 ", ""},
		// A run asks for enough to show something, and none takes hours.
		{limited(2, lease.PerSecond(100)), " --offered 2 ", "--duration"},
		{limited(2, lease.PerSecond(100)), "for 5s,", ""},
		{limited(0.5, lease.PerMinute(120)), "--duration 1m40s\n", ""},
		{limited(2, lease.PerHour(100)), "", ""},
		{limited(1, lease.Sliding(100, time.Minute)), "for 3m0s,", "--duration"},
		{limited(1, lease.Sliding(1000, 2*time.Minute)), "", ""},
		{limited(9, lease.Calendar(1000, 24*time.Hour, 0)), "", ""},
		// live has one limit.
		{limited(1, lease.PerSecond(100), lease.Every(time.Second)), "", ""},
	} {
		s := sim.Scenario{Limits: []lease.Limit{lease.PerSecond(100).WithBurst(30)},
			Groups: []sim.Group{{Count: 20}, {Count: 900}}, Workload: sim.Workload{Rate: 250}}
		chosen := &search.Candidate{
			Policy: search.Policy{Target: "20ms", TTL: "200ms", Overcommit: 3, CallsPerSecond: 70}}
		c.change(&s, chosen)
		got := ""
		for _, section := range proof(s, chosen) {
			got = section.Code + fmt.Sprint(section.Text)
		}
		testkit.Check(t, strings.Contains(got, c.want) && (got == "") == (c.want == "") &&
			(c.never == "" || !strings.Contains(got, c.never)), "%q, want %q and no %q", got, c.want, c.never)
	}
}

func users(w sim.Workload) func(*sim.Scenario, *search.Candidate) {
	return func(s *sim.Scenario, _ *search.Candidate) { s.Keys.Count, s.Workload = 5000, w }
}

func calls(perSecond float64) func(*sim.Scenario, *search.Candidate) {
	return func(_ *sim.Scenario, c *search.Candidate) { c.Figures.CallsPerS.Mean = perSecond }
}

func limited(load float64, limits ...lease.Limit) func(*sim.Scenario, *search.Candidate) {
	return func(s *sim.Scenario, _ *search.Candidate) {
		s.Limits, s.Groups, s.Workload = limits, nil, sim.Workload{Load: load}
	}
}
