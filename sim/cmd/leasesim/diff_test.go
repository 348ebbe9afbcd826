package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestDiffSaysWhichDifferencesAreBeyondNoise(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	run := func(name, args string) {
		t.Helper()
		leasesim(t, "compare --rivals central -f "+fileOf(t, few)+" --reps 8 --set workload.kind=poisson --out json -o "+path(name)+" "+args).ends(0)
	}
	// Given reports of a fleet, of the same with shorter leases, and of the same on other seeds,
	run("before", "")
	run("shorter", "--set policy.target=20ms")
	run("luck", "--seed 99")
	// then shorter leases are more calls for certain, and nothing is said of what did not change;
	shorter := prints[difference](leasesim(t, "diff --out json "+path("before")+" "+path("shorter")).ends(0).says())
	testkit.Check(t, shorter.Paired && slices.Contains(shorter.Changed, "calls_per_s") && !slices.Contains(shorter.Changed, "offered") &&
		!slices.ContainsFunc(shorter.Changed, func(s string) bool { return strings.HasPrefix(s, "rival.") }), "%+v", shorter)
	e := leasesim(t, "diff "+path("before")+" "+path("shorter")).ends(0).says().shows("The seeds are the same", "calls_per_s", "rival.central", "*\n")
	for line := range strings.SplitSeq(e.stdout, "\n") {
		testkit.Check(t, utf8.RuneCountInString(line) <= 80, "%d characters: %s", utf8.RuneCountInString(line), line)
	}
	// another seed is noise, but for one in twenty,
	luck := prints[difference](leasesim(t, "diff --out json "+path("before")+" "+path("luck")).ends(0).says())
	testkit.Check(t, !luck.Paired && len(luck.Changed) <= 3, "%+v", luck)
	// and a report does not differ from itself.
	leasesim(t, "diff "+path("before")+" "+path("before")).ends(0).shows("No figure differs beyond noise")
}

func TestDiffTakesTwoReportsOnly(t *testing.T) {
	leasesim(t, "diff a.json").ends(2).says("two reports, not 1")
	leasesim(t, "diff nowhere.json nowhere.json").ends(2).says("nowhere.json")
	leasesim(t, "diff --out html a b").ends(2).says("must be table or json")
	leasesim(t, "diff "+fileOf(t, "{}")+" "+fileOf(t, "{}")).ends(2).says("is not a report of run, compare, replay, sweep or plan")
	old := fileOf(t, `{"schema_version": 0, "scenario_hash": "00", "reps": 1}`)
	leasesim(t, "diff "+old+" "+old).ends(2).says("has schema_version 0, this leasesim 1")
	leasesim(t, "diff "+fileOf(t, "name: no report")+" "+old).ends(2).says("fleet.yaml is not JSON, as --out json writes it: ")
}

func TestDiffComparesSweepsAndPlans(t *testing.T) {
	dir, fleet := t.TempDir(), fileOf(t, few)
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, line string) { leasesim(t, line+" -f "+fleet+" --out json -o "+path(name)).ends(0) }
	// Given two sweeps of which each has a point of its own, on the same seeds,
	write("s1", "sweep --reps 6 --vary policy.target=20ms,50ms")
	write("s2", "sweep --reps 6 --set network.round_trip=5ms --vary policy.target=50ms,60ms")
	// then the point that both have is compared, and the others are named;
	d := prints[difference](leasesim(t, "diff --out json "+path("s1")+" "+path("s2")).ends(0).says())
	testkit.Check(t, slices.Equal(d.Alone, []string{"before: policy.target=20ms", "after: policy.target=60ms"}) && d.Paired, "%+v", d)
	testkit.Check(t, slices.Contains(d.Changed, "policy.target=50ms.wait_ms_p99"), "%+v", d.Changed)
	// of plans the policies;
	write("p1", "plan --duration 300ms --reps 2 --false-rejects 50%")
	leasesim(t, "diff "+path("p1")+" "+path("p1")).ends(0).says().shows("chosen policy ", "given policy ",
		"So few replications", "No figure differs beyond noise.")
	// and a sweep is not compared with a plan, nor with what live wrote.
	leasesim(t, "diff "+path("s1")+" "+path("p1")).ends(2).says("s1 is a report of sweep, and ", "p1 of plan")
	lives := fileOf(t, leasesim(t, "live --processes 1 --duration 100ms --out json").stdout)
	leasesim(t, "diff "+lives+" "+lives).ends(2).says("is not a report of run, compare, replay, sweep or plan")
	old := fileOf(t, strings.Replace(content(t, path("s1")), `"schema_version": `, `"schema_version": 9`, 1))
	leasesim(t, "diff "+old+" "+old).ends(2).says("of sweep, has schema_version 92, this leasesim 2")
	leasesim(t, "diff "+fileOf(t, content(t, path("s1"))[:300])+" "+old).ends(2).says("is not JSON, as --out json writes it: unexpected end of JSON")
}
