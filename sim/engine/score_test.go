package engine

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/report"
)

func TestTheRejectedShareDoesNotDependOnTheRunsLength(t *testing.T) {
	testkit.OneGoroutine(t)
	durations := []int{10, 30, 100, 300}
	durations = durations[:testkit.ShortOrLong(t, 2, 4/min(testkit.Slowdown, 2), "durations")]
	crowds := []struct {
		text   string
		faults bool
		rate   float64 // of false rejects that go on, about
	}{
		{"limits: [5000/s burst 2000], groups: [{count: 30}], workload: {load: 2}", false, 0},
		{"limits: [5000/s burst 2000], groups: [{count: 60}], workload: {load: 1.5}", false, 0},
		{"limits: [5000/s burst 2000], groups: [{count: 30}], workload: {load: 2}, " +
			"redis: {faults: [{kind: outage, at: 8s, for: 500ms}]}",
			true, 0},
		{"limits: [5000/s burst 5000], groups: [{count: 30}], workload: {load: 2}, " +
			"redis: {faults: [{kind: outage, at: 2s, for: 500ms}]}",
			true, 0}, // before anything has settled
		{"limits: [5000/s burst 2000], groups: [{count: 10, scale: [{at: 4s, count: 60}]}], workload: {load: 1.5}",
			false, 0},
		{"limits: [5000/s burst 2000], groups: [{count: 30, restarts: {every: 2s, for: 50ms}}], " +
			"workload: {load: 2}", false, 0.013},
	}
	for _, c := range crowds[len(crowds)-testkit.ShortOrLong(t, 3, len(crowds), "fleets"):] {
		// Given the same overloaded fleet, for up to 300 seconds,
		var all []report.Figures
		for _, seconds := range durations {
			s := scene(t, "duration: %ds, reps: 2, policy: {fallback: deny}, %s", seconds, c.text)
			all = append(all, reported(t, s, 2).Figures)
		}
		longest := all[len(all)-1]
		for i, f := range all {
			// then permanent rejections are the same part of one bucket's admissions, and the start and a
			// fault cost the same number of tokens.
			rate := f.FalseRejectRatio.Mean - longest.FalseRejectRatio.Mean
			testkit.Check(t, math.Abs(rate) <= 0.001+c.rate/3, "%s\n%d s: %v is rejected, in %d s %v", c.text,
				durations[i], f.FalseRejectRatio.Mean, durations[len(all)-1], longest.FalseRejectRatio.Mean)
			if c.rate > 0 {
				testkit.Check(t, f.FalseRejectRatio.Mean > c.rate/2, "%s\n%v is rejected", c.text,
					f.FalseRejectRatio.Mean)
				continue
			}
			start, fault := f.StartStock.Mean/longest.StartStock.Mean, f.FaultStock.Mean/longest.FaultStock.Mean
			testkit.Check(t, start > 0.8 && start < 1.25, "%s\n%d s: the start costs %v tokens, in %d s %v", c.text,
				durations[i], f.StartStock.Mean, durations[len(all)-1], longest.StartStock.Mean)
			testkit.Check(t, !c.faults || fault > 0.8 && fault < 1.25,
				"%s\n%d s: the fault costs %v tokens, in %d s %v", c.text,
				durations[i], f.FaultStock.Mean, durations[len(all)-1], longest.FaultStock.Mean)
			testkit.Check(t, c.faults == (longest.FaultStock.Mean > 0), "a fault costs %v tokens",
				longest.FaultStock.Mean)
		}
	}
}

func TestAWarmUpIsNoCredit(t *testing.T) {
	warmups := []string{"500ms", "4s", "1s", "2s"}
	warmups = warmups[:testkit.ShortOrLong(t, 1, 4, "lengths of the warm-up")]
	for _, crowd := range []string{
		"limits: [10000/s burst 4000], groups: [{count: 60}]",
		"limits: [10000/s burst 20000], groups: [{count: 1000}], policy: {fallback: deny, calls_per_second: 500}",
	} {
		for _, warm := range warmups {
			// Given a fleet that has spent less than one central bucket when the warm-up ends,
			s := scene(t, "duration: 10s, warmup: %s, reps: 2, workload: {load: 2}, rivals: [local_batches], %s", warm,
				crowd)
			r := reported(t, s, 2)
			// then its later spending of tokens that the bucket had admitted before does not improve its
			// result.
			testkit.Check(t, r.AdmittedVsCentral.Worst > 0.9 && slices.Max(r.AdmittedVsCentral.Values) <= 1,
				"%s, %s of warm-up: %v of one central bucket", crowd, warm, r.AdmittedVsCentral.Values)
		}
	}
}

func TestAFleetHasSettledSomeTimeAfterTheStartAndEachFault(t *testing.T) {
	// A bucket fills in 400 ms, and twelve leases of 400 ms make it 5.2 s.
	const limit = "limits: [1000/s burst 400], "
	type turns = []turn
	for text, want := range map[string]struct {
		turns  turns
		faults int
	}{
		"duration: 20s":                    {turns{{5200 * time.Millisecond, report.Settled}}, 0},
		"duration: 20s, warmup: 6s":        {turns{{5200 * time.Millisecond, report.Settled}}, 0},
		"duration: 4s, warmup: 2s":         {turns{{3 * time.Second, report.Settled}}, 0},
		"duration: 10h, policy: {ttl: 1m}": {turns{{720400 * time.Millisecond, report.Settled}}, 0},
		"duration: 30s, redis: {faults: [{kind: outage, at: 8s, for: 2s}, " +
			"{kind: hang, at: 9s, for: 3s}]}": {
			turns{{5200 * time.Millisecond, report.Settled}, {8 * time.Second, report.Recovering},
				{9 * time.Second, report.Recovering}, {17200 * time.Millisecond, report.Settled}}, 2},
		"duration: 20s, groups: [{pauses: {at: 10s, for: 1s}}]": {
			turns{{5 * time.Second, report.Settled}, {10 * time.Second, report.Recovering},
				{16200 * time.Millisecond, report.Settled}}, 1},
		"duration: 20s, groups: [{pauses: {at: 3s, for: 1s}}]": {
			turns{{3 * time.Second, report.Recovering}, {9200 * time.Millisecond, report.Settled}}, 1},
		"duration: 30s, groups: [{count: 4, scale: [{at: 10s, count: 6}, {at: 20s, count: 5}]}]": {
			turns{{5200 * time.Millisecond, report.Settled}, {10 * time.Second, report.Starting},
				{15200 * time.Millisecond, report.Settled}}, 0},
		// The whole stretch before the first fault is settled, so half of the longest one is not needed.
		"duration: 60s, warmup: 28s, redis: {faults: [{kind: outage, at: 36s, for: 6s}, " +
			"{kind: outage, at: 50s, for: 10s}]}": {
			turns{{5200 * time.Millisecond, report.Settled}, {36 * time.Second, report.Recovering},
				{47200 * time.Millisecond, report.Settled}, {50 * time.Second, report.Recovering}}, 2},
		"duration: 10s, warmup: 4s, network: {partitions: [{at: 1s, for: 1s}]}, " +
			"groups: [{count: 4, scale: [{at: 8s, count: 2, kill: true}]}]": {
			turns{{time.Second, report.Starting}, {6 * time.Second, report.Settled},
				{8 * time.Second, report.Recovering}, {9 * time.Second, report.Settled}}, 1},
	} {
		s := scene(t, limit+text)
		s = s.Defaults()
		got, faults := phasesOf(&s)
		testkit.Check(t, slices.Equal(got, want.turns) && faults == want.faults, "%s: %v, %d faults; want %v, %d",
			text, got, faults, want.turns, want.faults)
	}
}

func TestARunIsLongEnoughWhenHalfOfWhatCountsIsSettled(t *testing.T) {
	// A bucket fills in 400 ms, and twelve leases of 400 ms make it 5.2 s.
	const limit = "limits: [1000/s burst 400], "
	for text, want := range map[string]time.Duration{
		"duration: 10s":                 11 * time.Second,
		"duration: 10s, warmup: 9500ms": 11 * time.Second, // a second of what counts, at least
		"duration: 10s, redis: {faults: [{kind: outage, at: 3s, for: 1s}]}": 15 * time.Second,
		"duration: 15s, redis: {faults: [{kind: outage, at: 3s, for: 1s}]}": 0,
		// longer runs have the fault
		"duration: 10s, redis: {faults: [{kind: outage, at: 10s, for: 1s}]}": 22 * time.Second,
		"duration: 20s, redis: {faults: [{kind: outage, at: 3s, for: 8s}, " +
			"{kind: hang, at: 5s, for: 1s}]}": 22 * time.Second,
		"duration: 30s, groups: [{pauses: {at: 9s, for: 1s}}, " +
			"{count: 2, scale: [{at: 19s, count: 3}, {at: 28s, count: 1}]}]": 0,
		"duration: 20s, groups: [{pauses: {at: 9s, for: 1s}}, " +
			"{count: 2, scale: [{at: 19s, count: 3}]}]": 30 * time.Second,
		"duration: 10s, workload: {kind: flash, at: 5s, for: 1s, factor: 2}": 0, // is as good as it gets
	} {
		// Given a run, then it is long enough, or is so where it lasts as long as it says.
		s := scene(t, limit+text).Defaults()
		testkit.Check(t, s.Enough() == want, "%s: %v", text, s.Enough())
		if want == 0 {
			continue
		}
		s.Duration = want
		turns, _ := phasesOf(&s)
		last, end := turns[len(turns)-1], time.Duration(0)
		for _, d := range s.Disturbances() {
			end = max(end, d.Until)
		}
		testkit.Check(t, s.Enough() == 0 && last == turn{end + s.Settles(), report.Settled} &&
			last.at <= end+(want-end)/2,
			"%s: in %v it settles at %v", text, want, last.at)
	}
}

func TestNoPhaseHidesWhatIsAdmittedBeyondOneBucket(t *testing.T) {
	// Given a rival that has each process admit its part of the first four's limit, and forty
	// processes, that come while the load is high,
	s := scene(t, `duration: 12s, reps: 2, limits: [1000/s burst 200], rivals: [static_split],
		groups: [{count: 4, scale: [{at: 4s, count: 40}]}],
		workload: {kind: flash, load: 0.3, factor: 20, at: 3s, for: 3s}`)
	r := reported(t, s, 2)
	// when all of it comes before the grown fleet has settled, then it is seen all the same.
	all := r.Rivals[0].Admitted.Mean / r.CentralAdmitted.Mean
	testkit.Check(t, all > 1.5 && r.Rivals[0].AdmittedVsCentral.Mean > all-0.01,
		"%v of one central bucket in all, and said %v", all,
		r.Rivals[0].AdmittedVsCentral.Mean)
}
