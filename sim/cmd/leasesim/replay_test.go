package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

func TestReplayPutsTheTraceInThePlaceOfTheWorkloads(t *testing.T) {
	// Given a trace of 1.5 s and a fleet with workloads of its own,
	file := fileOf(t, "limits: [100/s]\nworkload: {kind: constant, verb: wait, deadline: 2s, "+
		"actual: 5}\ngroups: [{name: a, workload: {kind: poisson, rate: 5/s}}]\n")
	recorded := fileOf(t, "time_s,process,tokens\n0,0,1\n0.5,1,2\n1.5,0,3\n")
	line := "replay -f " + file + " --trace " + recorded
	// when it is replayed,
	s := pretend(t, report(), nil, line).ends(0).shows("pretended").ran[0]
	w := s.Workload
	// then the trace is the load, and the run as long as it and the deadline of its last request,
	replayed := w.Kind == sim.Replay && w.File == recorded && len(w.Trace.Requests) == 3
	testkit.Check(t, replayed && s.Groups[0].Workload == nil &&
		s.Defaults().Duration == 3501*time.Millisecond, "%+v", s)
	// asked for as before;
	testkit.Check(t, w.Verb == sim.VerbWait && w.Deadline == 2*time.Second &&
		w.Actual == sim.TokenDist{Dist: sim.Dist{P: 5}}, "%+v", w)
	// and with a duration, that counts.
	for _, duration := range []string{" --duration 5s", " --set duration=5s"} {
		s := pretend(t, report(), nil, line+duration).ends(0).ran[0]
		testkit.Check(t, s.Duration == 5*time.Second, "%s: %+v", duration, s)
	}
}

func TestReplayHasTheKeysAndTheProcessesOfTheTrace(t *testing.T) {
	// Given a trace with 2,000 keys, each asked once, of 40 processes, and one token a key,
	file := fileOf(t, "limits: [1/h burst 1]\nreps: 1\ngroups: [{name: web, count: 3}]\npolicy: {fallback: "+
		"deny}\n")
	var text strings.Builder
	text.WriteString("time_ms,key,process\n")
	for i := range 2000 {
		fmt.Fprintf(&text, "%d,user-%d,web-%d\n", i, i, i%40)
	}
	line := "replay -f " + file + " --trace " + fileOf(t, text.String()) + " --out json"
	// when it is replayed, then all are admitted, each by its own bucket, and there is nothing to say.
	e := leasesim(t, line).ends(0)
	r := prints[sim.Report](e)
	testkit.Check(t, r.Offered.Mean == 2000 && r.Admitted.Mean == 2000 && e.stderr == "",
		"%v of %v are admitted, %s", r.Admitted.Mean, r.Offered.Mean, e.stderr)
	// When there are to be fewer keys, processes or seconds, so there are.
	e = pretend(t, report(), nil, line+" --set keys.count=10 --set groups[0].count=7 --duration 1s").ends(0)
	s := e.ran[0]
	testkit.Check(t, s.Keys.Count == 10 && s.Groups[0].Count == 7 && s.Duration == time.Second, "%+v", s)
	testkit.Check(t, strings.Contains(e.stderr, ": 1000 of its 2000 requests come after the end of the run (1s)\n"), "%s",
		e.stderr)
	// Other settings of a group or of keys do not change their number.
	for _, set := range []string{"groups[0].weight=3", "groups.web.skew=0", "keys.zipf=0",
		"'groups[0].scale=[{at: 100ms, count: 1}]'"} {
		s := pretend(t, report(), nil, line+" --set "+set).ends(0).ran[0]
		testkit.Check(t, s.Keys.Count == 2000 && s.Groups[0].Count == 40, "%s: %d keys, %d processes", set,
			s.Keys.Count, s.Groups[0].Count)
	}
	for _, set := range []string{"groups.web.count=7", "'groups=[{count: 7}]'",
		"'groups[0]={name: a, count: 7}'"} {
		s := pretend(t, report(), nil, line+" --set "+set).ends(0).ran[0]
		testkit.Check(t, s.Groups[0].Count == 7, "%s: %d processes", set, s.Groups[0].Count)
	}
}

func TestAnAccessLogIsReplayed(t *testing.T) {
	log := fileOf(t, `203.0.113.9 - - [23/Nov/2026:09:16:00 +0000] "GET /a HTTP/1.1" 200 512
203.0.113.9 - - [23/Nov/2026:09:16:00 +0000] "GET /a HTTP/1.1" 200 512
that is no line of it
198.51.100.7 - - [23/Nov/2026:09:16:02 +0000] "GET /b HTTP/1.1" 200 9
`)
	file := fileOf(t, "limits: [1/h burst 1]\nreps: 1\npolicy: {fallback: deny}\n")
	// There are two addresses, and so two keys.
	e := leasesim(t, "replay -f "+file+" --trace "+log+" --out json").ends(0)
	r := prints[sim.Report](e)
	testkit.Check(t, r.Offered.Mean == 3 && r.Admitted.Mean == 2, "%v of %v", r.Admitted.Mean, r.Offered.Mean)
	testkit.Check(t, strings.Contains(e.stderr, "1 of 4 lines left out"), "%s", e.stderr)
	// One that is shorter than the warm-up of the built-in scenario has none.
	short := fileOf(t, "time_ms\n0\n100\n400\n")
	r = prints[sim.Report](leasesim(t, "replay --reps 1 --trace "+short+" --out json").ends(0))
	testkit.Check(t, r.Offered.Mean == 3 && r.WarmupS == 0, "%v of 3 after %v s", r.Offered.Mean, r.WarmupS)
}

func TestAReplayWithoutAScenarioIsNamedAfterItsTrace(t *testing.T) {
	recorded := fileOf(t, "time_s\n0\n1\n")
	s := pretend(t, report(), nil, "replay --trace "+recorded).ends(0).ran[0]
	testkit.Check(t, s.Name == "fleet.yaml" && s.Description == "", "%q: %q", s.Name, s.Description)
	s = pretend(t, report(), nil, "replay -f example:steady-fleet --trace "+recorded).ends(0).ran[0]
	testkit.Check(t, s.Name == "steady-fleet", "%q", s.Name)
}

func TestARivalThatIsLeftOutIsNamedInWordsOfReaders(t *testing.T) {
	e := pretend(t, report(), nil, "compare -f "+fileOf(t, few)+" --set rivals=[central,settle_afterwards] "+
		"--set 'limits=[10 in 1s]'").ends(0)
	testkit.Check(t, e.stderr == "leasesim: without settle_afterwards: settle_afterwards supports only "+
		"token buckets\n", "%s", e.stderr)
}

func TestOnlyWhatATraceTakesThePlaceOfIsReplaced(t *testing.T) {
	line := "replay --trace " + fileOf(t, "time_s\n0\n1\n")
	for set, want := range map[string]string{
		"workload.load=2": "which a workload of kind replay does not read", "workload={load: 2}": "the trace replaces it",
		"workload.kind=sync": "kind sync does not read", "groups[0].workload.verb=wait": "the trace replaces it",
		"groups=[{count: 4, workload: {load: 2}}]": "the trace replaces it", "workload.verb=wait": "",
		"workload.actual=5": "", "groups=[{name: workload, count: 2}]": "", "name=workload: a": "",
	} {
		e := pretend(t, report(), nil, line+" --set '"+set+"'")
		if want == "" {
			e.ends(0)
		} else {
			e.ends(exitUsage).says(want).shows()
		}
	}
}
