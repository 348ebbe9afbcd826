package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
	"github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// randomScenarios returns some of TestChaos's, with rivals. One in a hundred takes as long as all
// others together; a short run leaves these out.
func randomScenarios(t *testing.T, short, long int) (all []scenario.Scenario) {
	n := testkit.ShortOrLong(t, short, long, "random scenarios")
	for seed := testkit.Seed(t); len(all) < max(n/testkit.Slowdown, 2); seed++ {
		s := newChaos(seed).Scenario
		if n < long && !endsWithin(newRun(t, s), 100_000) {
			continue
		}
		s.Rivals = []string{"central", "central_client", "local_batches"}
		if !slices.ContainsFunc(s.Limits, func(l lease.Limit) bool { return l.Kind != lease.KindBucket }) {
			s.Rivals = append(s.Rivals, "settle_afterwards") // knows token buckets only
		}
		all = append(all, s)
	}
	return all
}

func endsWithin(run *replication, events int) bool {
	for ; events > 0 && run.goesOn(); events-- {
		run.step()
	}
	return !run.goesOn()
}

// every lists all figures of a report, including the rivals'.
func every(r *report.Report) []report.Named {
	all := r.All()
	for i := range r.Rivals {
		all = append(all, r.Rivals[i].All()...)
	}
	return all
}

func TestParallelDoesNotChangeTheReport(t *testing.T) {
	same := func(s scenario.Scenario, parallels ...int) {
		want := asJSON(t, reported(t, s, 1))
		for _, parallel := range parallels {
			if got := asJSON(t, reported(t, s, parallel)); got != want {
				t.Errorf("%s, parallel %d: the report is\n%s\nwant\n%s\n%+v", s.Name, parallel, got, want, s)
			}
		}
	}
	for _, s := range randomScenarios(t, 3, 20) {
		s.Reps = 4
		same(s, 2, 8)
	}
	// And an example, with all features of one.
	s, err := file.Load("example:redis-failover")
	testkit.NoErr(t, err)
	s.Reps = 2
	same(s, 2)
}

func TestTheWorstSeedGivesTheWorstValueAgain(t *testing.T) {
	for _, s := range randomScenarios(t, 2, 5) {
		s.Reps = 4
		r := reported(t, s, 2)
		s.Reps = 1
		alone := map[uint64]*report.Report{}
		for i, f := range every(r) {
			if s.Seed = f.WorstSeed; alone[s.Seed] == nil {
				alone[s.Seed] = reported(t, s, 1)
			}
			if got := every(alone[s.Seed])[i]; got.Mean != f.Worst {
				t.Errorf("%s: seed %d gave %v and alone gives %v\n%+v", f.Name, s.Seed, f.Worst, got.Mean, s)
			}
		}
	}
}

func TestARivalMoreChangesNothingElse(t *testing.T) {
	for _, s := range randomScenarios(t, 2, 5) {
		// Given a report with some rivals,
		s.Reps = 2
		more := reported(t, s, 2)
		for _, rivals := range [][]string{nil, {"local_batches"}} {
			// when there are fewer,
			s.Rivals = rivals
			fewer := reported(t, s, 2)
			// then all else is the same, and so is each of them.
			other := *more
			other.ScenarioHash, other.Rivals = fewer.ScenarioHash, nil
			for _, name := range rivals {
				k := slices.IndexFunc(more.Rivals, func(o report.RivalReport) bool { return o.Name == name })
				other.Rivals = append(other.Rivals, more.Rivals[k])
			}
			got, want := asJSON(t, fewer), asJSON(t, &other)
			testkit.Check(t, got == want && fmt.Sprint(fewer.Rivals) == fmt.Sprint(other.Rivals),
				"with rivals %v:\n%s\nwith all\n%s", rivals, got, want)
		}
	}
}

// nature describes all random parts of a process, except its holders' jitter.
func nature(run *replication, p *process) string {
	src := &run.demand.sources[p.index]
	var moments []int64
	for now := src.at; len(moments) < 200; now = src.stream.Next(now) {
		moments = append(moments, now)
	}
	keys := []any{}
	for range 50 {
		key, n := run.demand.draw(p)
		keys = append(keys, key, n)
	}
	return fmt.Sprint(p.offset, p.drift, moments, keys, p.pauses, p.restarts)
}

func TestAGroupMoreChangesNothingForTheOthers(t *testing.T) {
	for _, kind := range []string{scenario.Constant, scenario.Poisson, scenario.OnOff, scenario.Flash, scenario.Sync,
		scenario.Boundary} {
		// Given two groups with loads of their own,
		load := fmt.Sprintf(`workload: {kind: %s, rate: 907/s, cost: "uniform(1,9)"}`, kind)
		second := func(first int, more string) (all []string) {
			run := newRun(t, scene(t, `limits: [1000/s], keys: {count: 5, zipf: 1}, clock: {offset: 1s, drift: 50ppm},
				groups: [{name: a, count: %d, %s},
				{name: b, count: 3, %s, pauses: {every: 1s}, restarts: {every: 1s}}, %s]`, first, load, load, more))
			for _, p := range run.fleet.groups[1].members {
				all = append(all, nature(run, p))
			}
			return all
		}
		before := second(2, "")
		// when there is another, or more processes in the first,
		for what, after := range map[string][]string{
			"a third group":  second(2, "{name: c, count: 7, "+load+"}"),
			"a larger first": second(9, ""),
		} {
			// then the second's requests and faults come as before.
			testkit.Check(t, slices.Equal(before, after),
				"%s, %s: the processes were\n%s\nand are\n%s", kind, what, before, after)
		}
	}
}

func TestAPolicyDoesNotChangeWhatHappens(t *testing.T) {
	// Given a fleet with many keys, and processes that are stopped and killed,
	fates := func(target time.Duration) (all []random.Stream, running []float64) {
		run := simulate(t, scene(t, `duration: 5s, limits: [100/s], policy: {target: %v}, keys: {count: 20},
			groups: [{count: 10, pauses: {every: 500ms, for: 100ms}, restarts: {every: 1s, for: 50ms}}]`, target))
		for _, p := range run.fleet.processes {
			all = append(all, p.pauses, p.restarts)
		}
		return all, run.recorder.Series.Running
	}
	// when its leases are longer,
	a, up := fates(10 * time.Millisecond)
	b, still := fates(time.Second)
	// then the same happens at the same moments.
	testkit.Check(t, slices.Equal(a, b) && slices.Equal(up, still),
		"with other leases the processes run\n%v\nand not\n%v", up, still)
}

func TestEveryEndOfTheContextIsAnInterruption(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := Runner{}.Run(ctx, scene(t, "limits: [1/s]"))
	testkit.Check(t, errors.Is(err, ErrInterrupted) && errors.Is(err, cause),
		"the error is %v, want one that wraps %v and the cause", err, ErrInterrupted)
}

func TestTinyRuns(t *testing.T) {
	for _, kind := range scenario.WorkloadKinds {
		for _, warmup := range []time.Duration{0, time.Millisecond - 1} {
			// Given the shortest run that there can be,
			s := scene(t, `duration: 1ms, warmup: %v, reps: 1, limits: [100000/s], groups: [{count: 3}], rivals: [%s],
				redis: {faults: [{kind: failover, at: 1ms, for: 1h, lost: 1h}, {kind: outage, at: 500us, for: 1ns}]}`,
				warmup, strings.Join(rival.Names(), ", "))
			s.Workload = regularly(100*time.Microsecond, 2*time.Millisecond)
			s.Workload.Kind = kind
			// then its report is of numbers.
			text := asJSON(t, reported(t, s, 1))
			testkit.Check(t, len(text) >= 1000, "%s: %s", kind, text)
		}
	}
}
