package view

import (
	"html"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// words are those of the verdicts of a document, on one line.
func words(d Document) string {
	var all []string
	for _, v := range d.Verdicts {
		all = append(all, v.Mood+": "+v.Text)
	}
	return strings.Join(all, " ")
}

// wording has a text that must be there, and one that must not; "" stands for none.
type wording struct{ want, never string }

func (w wording) check(t *testing.T, text string) {
	t.Helper()
	testkit.Check(t, strings.Contains(text, w.want) && (w.never == "" || !strings.Contains(text, w.never)),
		"want %q and no %q in %s", w.want, w.never, text)
}

func TestARunSaysWhatItMeans(t *testing.T) {
	bound := func(reps int, bound sim.Figure) func(*Result) {
		return func(r *Result) {
			r.Report.Reps, r.Report.RepsAsked, r.Report.BoundExceededBy = reps, reps, bound
		}
	}
	exceeded := func(change func(*sim.Scenario)) func(*Result) {
		return func(r *Result) {
			r.Report.BoundExceededBy = fig(0, 0, 12, 99)
			change(&r.Scenario)
		}
	}
	fault := func(startEmpty bool, f sim.RedisFault) func(*Result) {
		return exceeded(func(s *sim.Scenario) {
			s.Redis.Faults, s.Policy.StartEmpty = []sim.RedisFault{f}, startEmpty
		})
	}
	paused := func(strict bool) func(*Result) {
		return exceeded(func(s *sim.Scenario) {
			s.Groups[0].Pauses.Every, s.Policy.StrictExpiry = time.Second, strict
		})
	}
	stocks := func(start, fault float64) func(*Result) {
		return func(r *Result) {
			r.Report.StartStock, r.Report.FaultStock = fig(start, 1, 0, 0), fig(fault, 1, 0, 0)
		}
	}
	// This fleet takes 12.7 s to settle.
	lasts := func(duration time.Duration, rejects float64) func(*Result) {
		return func(r *Result) {
			r.Scenario.Warmup, r.Scenario.Duration = 0, duration
			r.Report.FalseRejectRatio.Mean = rejects
		}
	}
	const allows = "The scenario allows that: "
	rows := []struct {
		change func(*Result)
		wording
	}{
		{bound(10, sim.Figure{}), wording{"good: The bound holds: in no window of 10 replications did the fleet " +
			"admit more than burst + overcommit", allows}},
		{bound(1, sim.Figure{}), wording{"in no window of 1 replication did", ""}},
		// The mean may be small; the worst replication counts. Nothing in the scenario allows it.
		{bound(10, fig(0.1, 0.2, 12, 99)), wording{"bad: The bound is exceeded: in the worst window the fleet " +
			"admitted 12 tokens more than burst + overcommit + rate × window (seed 99). ", allows}},
		// Where something does, that is named.
		{exceeded(func(s *sim.Scenario) { s.Policy.Fallback = lease.FallbackLocalShare }),
			wording{allows + "the fallback admits while Redis", ""}},
		{exceeded(func(s *sim.Scenario) { s.Policy.Fallback = lease.FallbackAllowAll }),
			wording{allows + "the fallback admits while Redis", ""}},
		{exceeded(func(s *sim.Scenario) { s.Policy.ColdStart = lease.ColdStartAllow }),
			wording{allows + "the policy admits before the first reply", ""}},
		{fault(false, sim.RedisFault{Kind: sim.FaultFailover, Lost: time.Second}),
			wording{"loses 1s of writes", ""}},
		{fault(false, sim.RedisFault{Kind: sim.FaultFailover}), wording{"", allows}},
		{fault(false, sim.RedisFault{Kind: sim.FaultRestartEmpty}), wording{"restarts empty", ""}},
		{fault(true, sim.RedisFault{Kind: sim.FaultRestartEmpty}), wording{"", allows}},
		{paused(false), wording{"without strict_expiry", ""}},
		{paused(true), wording{"", allows}},
		// Reservations may be given back, and cost more.
		{func(r *Result) { r.Report.Charged = fig(12, 1, 14, 9) },
			wording{"rate × window + refunds + tokens still owed.", ""}},
		// A loss that happens once is named where there is one.
		{stocks(0.4, 0), wording{"", "The fleet rejected"}},
		{stocks(7, 0), wording{"The fleet rejected 7.0 tokens wrongly once, while it started or grew.", ""}},
		{stocks(0, 19178), wording{"The fleet rejected 19,178.0 tokens wrongly for each fault.", ""}},
		{stocks(7, 3), wording{"The fleet rejected 7.0 tokens wrongly once, while it started or grew. neutral: " +
			"The fleet rejected 3.0 tokens wrongly for each fault.", ""}},
		// So is a fleet that does not settle, or that may go on to reject.
		{func(*Result) {}, wording{"", "does not settle"}},
		{func(r *Result) { r.Report.Unsettled = 3 }, wording{"This fleet does not settle: in 3 of 10 " +
			"replications its start rejected more tokens than buckets and leases can hold, ", ""}},
		{lasts(30*time.Second, 0.1), wording{"", "too short"}},
		{lasts(5*time.Second, 0.1), wording{"too short for this fleet to settle, so one-time rejects, as " +
			"at the start, count as permanent. Use --duration 26s.", ""}},
		{lasts(5*time.Second, 0), wording{"", "too short"}},
		// A run that shows nothing says so.
		{func(r *Result) { r.Report.Offered = sim.Figure{} }, wording{"bad: No request counts in this run", ""}},
		{func(r *Result) { r.Scenario.Network.RoundTrip = sim.Constantly(95 * time.Millisecond) },
			wording{"bad: Most lease calls fail: a mean round trip of 95ms is above 15/16 of call_timeout", ""}},
		{func(*Result) {}, wording{"", "No request counts"}},
		{func(r *Result) { r.Scenario.Network.RoundTrip = sim.Constantly(90 * time.Millisecond) },
			wording{"", "lease calls fail"}},
	}
	said := ""
	for _, c := range rows {
		r := madeUp()
		c.change(&r)
		text := words(Run(r)) + " "
		c.check(t, text)
		said += text
	}
	for _, c := range rows { // a row that forbids what is worded otherwise by now forbids nothing
		testkit.Check(t, strings.Contains(said, c.never), "no row says %q", c.never)
	}
}

// TestTheBoundIsThatOfTheKindsOfLimit that a scenario has.
func TestTheBoundIsThatOfTheKindsOfLimit(t *testing.T) {
	for _, c := range []struct {
		limits []lease.Limit
		bound  string
	}{
		{[]lease.Limit{lease.PerSecond(5)}, " admit more than burst + overcommit + rate × window"},
		{[]lease.Limit{lease.Sliding(5, time.Minute), lease.Calendar(9, time.Hour, 0)},
			" admit more than the tokens of a sliding window or a period + overcommit"},
		{[]lease.Limit{lease.Sliding(5, time.Minute), lease.PerSecond(5)},
			" than a bucket's burst + overcommit + rate × window, or the tokens of a sliding"},
	} {
		r := madeUp()
		r.Scenario.Limits = c.limits
		for _, d := range []Document{Run(r), Comparison(r)} {
			says(t, strings.Join(strings.Fields(written(t, d, "table")), " "), c.bound)
		}
	}
}

func TestTheSubtitleHasTheLoadsThatGroupsRead(t *testing.T) {
	worst, rate := &sim.Workload{Kind: sim.Adversary}, &sim.Workload{Kind: sim.Poisson, Rate: 90}
	for want, groups := range map[string][]sim.Group{
		"load adversary and poisson at 90/s,":          {{Workload: worst}, {Workload: rate}, {Workload: rate}},
		"load poisson at 2 × the limit and adversary,": {{Name: "a"}, {Name: "b", Workload: worst}},
	} {
		s := sim.Scenario{Groups: groups, Workload: sim.Workload{Kind: sim.Poisson, Load: 2}}
		wording{want, ""}.check(t, Result{}.subtitle(s))
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
		got := v.difference(&r.Points[1], "calls_per_s")
		testkit.Check(t, got == want, "%+v: %q, want %q", d, got, want)
	}
	base := v.difference(&r.Points[0], "calls_per_s")
	testkit.Check(t, base == "", "the base differs by %q", base)
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

// TestEveryReportBeginsWithASentenceAndFiveFigures, before any table or chart; a sweep has no figures.
func TestEveryReportBeginsWithASentenceAndFiveFigures(t *testing.T) {
	for name, d := range reports(t) {
		testkit.Check(t, len(d.Verdicts) > 0 && len(d.Headline) == either(strings.HasPrefix(name, "sweep"), 0, 5),
			"%s: %q", name, d.Headline)
		first := slices.IndexFunc(d.Sections, func(s Section) bool { return s.Table != nil })
		for format, section := range map[string]string{FormatTable: strings.ToUpper(d.Sections[first].Title),
			FormatHTML: "<h2>"} {
			text := html.UnescapeString(strings.ReplaceAll(written(t, d, format), noBreak, " "))
			if format == FormatTable {
				text = strings.ReplaceAll(text, "\n", " ")
			}
			begins := []string{d.Verdicts[0].Text}
			for _, f := range d.Headline {
				begins = append(begins, f.Name, f.Value)
			}
			for _, part := range append(begins, section) {
				_, after, ok := strings.Cut(text, part)
				testkit.Check(t, ok, "%s, %s: no %q after what comes before it", name, format, part)
				text = after
			}
		}
	}
}

func TestTheHeadlineOfARunSaysHowManyRequestsACallServes(t *testing.T) {
	// 560,124 requests in 10 replications of 30 s, at 198.25 calls a second.
	got := Run(madeUp()).Headline[3].Value
	testkit.Check(t, got == "198.2, one for 9.42 requests", "%s", got)
}

// TestEveryColumnIsExplained, but for those whose names are plain words.
func TestEveryColumnIsExplained(t *testing.T) {
	plain := []string{"", "algorithm", "what it does", "figure", "what it is", "mean ± 95 %", "worst",
		"of seed", "groups", "offered", "admitted", "of offered", "target", "ttl", "count", "bound",
		"stress", "margin", "policy"}
	all := reports(t)
	all["three"] = Sweep(swept(t, "policy.target=10ms", "policy.ttl=100ms", "groups.web.count=1,2"), "", "")
	for name, d := range all {
		text := d.Subtitle + words(d)
		for _, s := range d.Sections {
			text += strings.Join(s.Text, " ")
		}
		for _, s := range d.Sections {
			if s.Table == nil {
				continue
			}
			for _, c := range s.Table.Columns {
				c = strings.TrimPrefix(strings.TrimLeft(c, "?>"), "Δ ")
				said := strings.Contains(strings.ToLower(text), strings.ToLower(c))
				testkit.Check(t, said || slices.Contains(plain, c), "%s: %s: nothing explains %q", name,
					s.Title, c)
			}
		}
	}
}
