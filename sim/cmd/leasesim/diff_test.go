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
		leasesim(t, "compare --rivals central -f "+fileOf(t, few)+" --reps 8 --set workload.kind=poisson --out "+
			"json -o "+path(name)+" "+args).ends(0)
	}
	// Given reports of a fleet, of the same with shorter leases, and of the same on other seeds,
	run("before", "")
	run("shorter", "--set policy.target=20ms")
	run("luck", "--seed 99")
	// then shorter leases are more calls for certain, and nothing is said of what did not change;
	shorter := prints[difference](leasesim(t,
		"diff --out json "+path("before")+" "+path("shorter")).ends(0).says())
	testkit.Check(t, shorter.Paired && slices.Contains(shorter.Changed, "calls_per_s") &&
		!slices.Contains(shorter.Changed, "offered") &&
		!slices.ContainsFunc(shorter.Changed, func(s string) bool { return strings.HasPrefix(s, "rival.") }), "%+v",
		shorter)
	e := leasesim(t, "diff "+path("before")+" "+path("shorter")).ends(0).says().shows("The seeds are the same",
		"calls_per_s", "rival.central", "*\n")
	for line := range strings.SplitSeq(e.stdout, "\n") {
		testkit.Check(t, utf8.RuneCountInString(line) <= 80, "%d characters: %s", utf8.RuneCountInString(line),
			line)
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
	leasesim(t, "diff "+fileOf(t, "{}")+" "+fileOf(t, "{}")).ends(2).says("is not a report of run, compare or " +
		"replay")
	path := filepath.Join(t.TempDir(), "report.json")
	leasesim(t, "run -f "+fileOf(t, few)+" --reps 1 --out json -o "+path).ends(0)
	old := fileOf(t, strings.Replace(content(t, path), `"schema_version": 1`, `"schema_version": 0`, 1))
	leasesim(t, "diff "+old+" "+path).ends(2).says("has schema_version 0, this leasesim 1")
	leasesim(t, "diff "+fileOf(t, content(t, path)[:300])+" "+path).ends(2).
		says("fleet.yaml is not JSON, as --out json writes it: unexpected end of JSON")
	// nor a sweep, nor what live wrote
	for _, line := range []string{
		"sweep -f " + fileOf(t, few) + " --reps 1 --vary policy.target=50ms", "live --processes 1 --duration 100ms",
	} {
		other := fileOf(t, leasesim(t, line+" --out json").stdout)
		leasesim(t, "diff "+path+" "+other).ends(2).says("is not a report of run, compare or replay")
	}
}
