package view

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

func TestTheVerdictSaysWhetherTheBoundHolds(t *testing.T) {
	for _, c := range []struct {
		reps  int
		bound sim.Figure
		mood  Mood
		want  string
	}{
		{10, sim.Figure{}, Good, "The bound holds: in no window of 10 replications did the fleet admit more than " +
			"burst + overcommit"},
		{1, sim.Figure{}, Good, "in no window of 1 replication did"},
		// The mean may be small; the worst replication counts. Nothing in the scenario allows it.
		{10, fig(0.1, 0.2, 12, 99), Bad,
			"admitted 12 tokens more than burst + overcommit + rate × window (seed 99)."},
	} {
		r := madeUp()
		r.Report.Reps, r.Report.RepsAsked, r.Report.BoundExceededBy = c.reps, c.reps, c.bound
		v := Run(r).Verdicts[0]
		testkit.Check(t, v.Mood == c.mood && strings.Contains(v.Text, c.want) &&
			!strings.Contains(v.Text, "allows"), "%+v, want %q", v, c.want)
	}
}

// TestTheReportNamesTheBurstThatALargeFleetWants: where the budget of calls wants longer leases
// than the burst allows, and nowhere else.
func TestTheReportNamesTheBurstThatALargeFleetWants(t *testing.T) {
	for _, c := range []struct {
		budget int64
		want   string
	}{
		{0, ""},
		{60, ""}, // 24 calls of weight 1 in 0.4 s: 1,467 tokens are enough
		// 24 calls take 12 s, in which 12,000 tokens refill: of a fleet of 24, 11 thirds as many are wanted.
		{2, "policy.calls_per_second, 2 for a key: a burst of 44,000 would."},
	} {
		r := madeUp()
		r.Scenario.Policy.CallsPerSecond = c.budget
		got := ""
		for _, v := range Run(r).Verdicts {
			if strings.Contains(v.Text, "The burst does not allow") {
				got += v.Text
			}
		}
		testkit.Check(t, strings.HasSuffix(got, c.want) && (c.want != "" || got == ""),
			"budget %d: %q, want %q", c.budget, got, c.want)
	}
}

// TestTheBoundIsThatOfTheKindsOfLimit that a scenario has.
func TestTheBoundIsThatOfTheKindsOfLimit(t *testing.T) {
	for _, c := range []struct {
		limits  []lease.Limit
		bound   string
		central string
	}{
		{[]lease.Limit{lease.PerSecond(5)}, " admit more than burst + overcommit + rate × window",
			"one central bucket"},
		{[]lease.Limit{lease.Sliding(5, time.Minute), lease.Calendar(9, time.Hour, 0)},
			" admit more than the tokens of a sliding window or a period + overcommit", "one central limiter"},
		{[]lease.Limit{lease.Sliding(5, time.Minute), lease.PerSecond(5)},
			" than a bucket's burst + overcommit + rate × window, or the tokens of a sliding", "one central limiter"},
	} {
		r := madeUp()
		r.Scenario.Limits = c.limits
		for _, d := range []Document{Run(r), Comparison(r)} {
			text := strings.Join(strings.Fields(written(t, d, "table")), " ")
			says(t, text, c.bound, "of what "+c.central+" would have", "is what "+c.central+" would")
			testkit.Check(t, strings.Count(text, "one central bucket") == 0 || c.central == "one central bucket",
				"%v: there is one central bucket in\n%s", c.limits, text)
		}
	}
}

func TestTheBoundOfReservationsIsNet(t *testing.T) {
	r := madeUp()
	r.Report.Charged = fig(12, 1, 14, 9)
	got := Run(r).Verdicts[0].Text
	want := "rate × window, net of what was given back and of what is still owed."
	testkit.Check(t, strings.HasSuffix(got, want), "got %q, want %q", got, want)
}

func TestAnExceededBoundComesWithWhatAllowsIt(t *testing.T) {
	fault := func(f sim.RedisFault) func(*sim.Scenario) {
		return func(s *sim.Scenario) { s.Redis.Faults = []sim.RedisFault{f} }
	}
	for i, c := range []struct {
		change func(*sim.Scenario)
		want   string
	}{
		{func(s *sim.Scenario) { s.Policy.Fallback = lease.FallbackLocalShare }, "fallback admits without a lease"},
		{func(s *sim.Scenario) { s.Policy.Fallback = lease.FallbackAllowAll }, "fallback admits without a lease"},
		{func(s *sim.Scenario) { s.Policy.ColdStart = lease.ColdStartAllow }, "before the first reply"},
		{func(s *sim.Scenario) { s.Redis.ClientTime = true }, "by the callers' clocks"},
		{fault(sim.RedisFault{Kind: sim.FaultClockStep, By: time.Second}), "steps forward by 1s"},
		{fault(sim.RedisFault{Kind: sim.FaultClockStep, By: -time.Second}), ""},
		{fault(sim.RedisFault{Kind: sim.FaultFailover, Lost: time.Second}), "loses 1s of writes"},
		{fault(sim.RedisFault{Kind: sim.FaultFailover}), ""},
		{fault(sim.RedisFault{Kind: sim.FaultRestartEmpty}), "restarts empty"},
		{func(s *sim.Scenario) {
			fault(sim.RedisFault{Kind: sim.FaultRestartEmpty})(s)
			s.Policy.StartEmpty = true
		}, ""},
		{func(s *sim.Scenario) { s.Groups[0].Pauses.Every = time.Second }, "without strict_expiry"},
		{func(s *sim.Scenario) { s.Groups[0].Pauses.Every, s.Policy.StrictExpiry = time.Second, true }, ""},
	} {
		r := madeUp()
		r.Report.BoundExceededBy = fig(0, 0, 12, 99)
		c.change(&r.Scenario)
		got := Run(r).Verdicts[0].Text
		testkit.Check(t, strings.Contains(got, c.want) &&
			strings.Contains(got, "The scenario allows that: ") == (c.want != ""),
			"%d: got %q, want %q", i, got, c.want)
	}
}

func TestADifferenceThatMayBeLuckIsInParentheses(t *testing.T) {
	r := search.SweepReport{Points: make([]search.Point, 2)}
	v := sweepView{SweepReport: &r}
	for want, d := range map[string]sim.Difference{
		"+2.0 ± 1.0":   {Mean: 2, Low: 1, High: 3},
		"-2.0 ± 1.0":   {Mean: -2, Low: -3, High: -1},
		"(+2.0 ± 3.0)": {Mean: 2, Low: -1, High: 5},
		"0":            {},
	} {
		r.Points[1].Differences = map[string]sim.Difference{"calls_per_s": d}
		got := v.difference(&r.Points[1], "calls_per_s", Figure)
		testkit.Check(t, got == want, "%+v: %q, want %q", d, got, want)
	}
	base := v.difference(&r.Points[0], "calls_per_s", Figure)
	testkit.Check(t, base == "", "the base differs by %q", base)
}

func TestAPlanSaysHowItIsBesideTheScenariosOwn(t *testing.T) {
	p := planned(t)
	p.Given.Meets = false
	says(t, written(t, Plan(p, "", ""), FormatTable), "does not meet the targets.")
	p.Given.Policy = p.Chosen.Policy
	says(t, written(t, Plan(p, "", ""), FormatTable), "That is the scenario's own policy.")
}

func TestAPlanThatFoundNothingSaysWhatIsMissing(t *testing.T) {
	p := missed(t)
	p.Miss.RepsNeeded, p.Miss.Stress = 44, search.StressSkew
	says(t, written(t, Plan(p, "", ""), FormatTable), "About --reps 44 would narrow them enough",
		"which fails under stress (skew)")
}

func TestManyProcessesAreThinnedOut(t *testing.T) {
	r := madeUp()
	r.Report.Rivals = nil
	for len(r.Report.Members) < 4000 {
		r.Report.Members = append(r.Report.Members, r.Report.Members[0])
	}
	chart := Run(r).Sections[1].Charts[0]
	dots := 0
	for _, l := range chart.Lines[1:] {
		dots += len(l.X)
	}
	testkit.Check(t, dots == membersMax && strings.Contains(chart.Note, "One process of 8 is drawn."),
		"%d dots, %s", dots, chart.Note)
}

func TestAComparisonSaysWhoPaysForTheNetwork(t *testing.T) {
	const asks, line, spared, tokens, cost = "The rivals with a wait ask Redis", "wait in line",
		"spared network and faults", "wait for tokens from leases only", "never learn the cost"
	waiting, reserving := sim.Workload{Verb: sim.VerbWait}, sim.Workload{Cancelled: 0.1}
	for _, c := range []struct {
		scenario sim.Scenario
		rivals   []sim.RivalReport
		said     []string
	}{
		{rivals: []sim.RivalReport{{Remote: true}}, said: []string{asks}},
		{rivals: []sim.RivalReport{{}}, said: []string{spared}},
		{rivals: []sim.RivalReport{{Remote: true, RedisCPU: sim.Figure{Worst: 1}}, {}},
			said: []string{asks, line, spared}},
		{sim.Scenario{Workload: waiting}, []sim.RivalReport{{}}, []string{spared, tokens}},
		{sim.Scenario{Groups: []sim.Group{{}, {Workload: &waiting}}}, []sim.RivalReport{{}},
			[]string{spared, tokens}},
		{sim.Scenario{Workload: reserving}, []sim.RivalReport{{}}, []string{spared, cost}},
		{sim.Scenario{Groups: []sim.Group{{}, {Workload: &reserving}}}, []sim.RivalReport{{}},
			[]string{spared, cost}},
	} {
		text := Result{Scenario: c.scenario, Report: sim.Report{Rivals: c.rivals}}.subject()
		for _, part := range []string{asks, line, spared, tokens, cost} {
			testkit.Check(t, strings.Contains(text, part) == slices.Contains(c.said, part), "%+v: %s", c.rivals, text)
		}
	}
}

func TestNobodyWhoIsDeniedHasAWait(t *testing.T) {
	// Given a rival that admitted nothing, and one that admitted at once,
	d := Comparison(Result{Report: sim.Report{Rivals: []sim.RivalReport{
		{Name: "denies", Remote: true}, {Name: "admits", Remote: true, Admitted: sim.Figure{Mean: 1}},
	}}})
	// then the one has no wait, and the other none to speak of.
	table := d.Sections[0].Table
	at := slices.Index(table.Columns, ">wait p99")
	testkit.Check(t, table.Rows[1][at] == "none" && table.Rows[2][at] == "0 ms", "%v", table.Rows)
}

func TestAPlanOfOneReplicationClaimsNoInterval(t *testing.T) {
	p := search.Plan{Asked: search.Asked{Reps: 1}}
	one := Plan(p, "", "").Subtitle
	p.Reps = 2
	two := Plan(p, "", "").Subtitle
	testkit.Check(t, strings.Contains(one, "has no interval") && strings.Contains(two, "pessimistic end"),
		"%s\n%s", one, two)
}

// TestTheFiguresThatDecideExplainThemselves, and nothing that is not there.
func TestTheFiguresThatDecideExplainThemselves(t *testing.T) {
	for _, ranged := range []bool{false, true} {
		r := madeUp()
		r.Report.Rivals, r.Report.WaitMsP99.Range = nil, ranged
		text := written(t, Run(r), FormatTable)
		testkit.Check(t, strings.Contains(text, "In parentheses") == ranged, "ranges %v:\n%s", ranged, text)
		testkit.Check(t, !strings.Contains(text, "the same") && !strings.Contains(text, "Fair shares"),
			"it speaks of rows that are not there:\n%s", text)
		says(t, written(t, Run(r), FormatHTML), Bases) // as all figures are there
	}
}

func TestWhatIsRejectedOnceIsSaidWhereThereIsAny(t *testing.T) {
	for _, c := range []struct {
		start, fault float64
		want         string
	}{
		{0, 0, ""}, {0.4, 0, ""}, {7, 0, "It rejected 7.0 tokens wrongly once, while it started or grew."},
		{0, 19178, "It rejected 19,178.0 tokens wrongly for each fault."},
		{7, 3, "It rejected 7.0 tokens wrongly once, while it started or grew, and 3.0 tokens wrongly for each " +
			"fault."},
	} {
		r := madeUp()
		r.Report.StartStock, r.Report.FaultStock = fig(c.start, 1, 0, 0), fig(c.fault, 1, 0, 0)
		got := ""
		for _, v := range Run(r).Verdicts {
			if strings.HasPrefix(v.Text, "It rejected") {
				got = v.Text
			}
		}
		testkit.Check(t, got == c.want, "%v, %v: %q, want %q", c.start, c.fault, got, c.want)
	}
}

// TestADifferenceIsExplainedWhereItIsShown: a brief text may have no room for it.
func TestADifferenceIsExplainedWhereItIsShown(t *testing.T) {
	d := Sweep(swept(t, "policy.target=10ms,20ms", "policy.ttl=100ms", "groups.web.count=1,2"), "", "")
	for _, d.All = range []bool{false, true} {
		text := written(t, d, FormatTable)
		_, table, _ := strings.Cut(text, "ALL POINTS")
		testkit.Check(t, strings.Contains(table, "Δ is the difference") == d.All &&
			strings.Contains(table, " Δ ") == d.All, "all %v:\n%s", d.All, text)
	}
}

func TestAFleetThatDoesNotSettleIsToldOf(t *testing.T) {
	r := madeUp()
	says := func() string {
		var b strings.Builder
		for _, v := range Run(r).Verdicts {
			b.WriteString(v.Text + "\n")
		}
		return b.String()
	}
	testkit.Check(t, strings.Contains(says(), "In the steady state the fleet") &&
		!strings.Contains(says(), "does not settle"), "%s", says())
	r.Report.Unsettled = 3
	testkit.Check(t, !strings.Contains(says(), "In the steady state") &&
		strings.Contains(says(), "This fleet does not settle: in 3 of 10 "+
			"replications it rejected more while it started than buckets and leases can hold, "), "%s", says())
}

func TestARunThatIsTooShortToSettleSaysSo(t *testing.T) {
	for _, c := range []struct {
		duration time.Duration
		rejects  float64
		short    bool
	}{{30 * time.Second, 0.1, false}, {5 * time.Second, 0.1, true}, {5 * time.Second, 0, false}} {
		// Given a fleet that takes 12.7 s to settle,
		r := madeUp()
		r.Scenario.Warmup, r.Scenario.Duration = 0, c.duration
		r.Report.FalseRejectRatio.Mean = c.rejects
		// when it was looked at for less, and rejected something, then that may not go on.
		var b strings.Builder
		for _, v := range Run(r).Verdicts {
			b.WriteString(v.Text + "\n")
		}
		said := strings.Contains(b.String(), "too short for this fleet to settle") &&
			strings.Contains(b.String(), "--duration 26s would do")
		testkit.Check(t, said == c.short, "%v, %v: %s", c.duration, c.rejects, b.String())
		settled := strings.Contains(b.String(), "In the steady state")
		testkit.Check(t, settled == (c.duration > 13*time.Second), "%v: %s", c.duration, b.String())
	}
}
