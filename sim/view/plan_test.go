package view

import (
	"bytes"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

func TestAPlanOverTooShortATimeSaysWhatWouldDo(t *testing.T) {
	p := planned(t)
	for enough, want := range map[float64]bool{0: false, 95: true} {
		p.EnoughS = enough
		var b bytes.Buffer
		testkit.NoErr(t, Plan(p, "", "leasesim plan").Write(&b, "table"))
		said := strings.Contains(strings.Join(strings.Fields(b.String()), " "), "Plan again with --duration 1m35s.")
		testkit.Check(t, said == want, "%v s: said %v\n%s", enough, said, b.String())
	}
}

func TestAPlanSaysWhatItAdmitsAboveTheBoundWhereThatIsNoTarget(t *testing.T) {
	for _, promised := range []bool{false, true} {
		// Given a policy that exceeds its bound by 40 tokens, and in an outage by 473,
		p := planned(t)
		p.Targets = []search.Threshold{search.AtMost("false_reject_ratio", 0.005)}
		if promised {
			p.Targets = append(p.Targets, search.AtMost(search.BoundFigure, 0))
		}
		p.Chosen.Figures.BoundExceededBy = sim.Figure{Worst: 40}
		p.Stress[1].Figures.BoundExceededBy = sim.Figure{Worst: 473}
		p.Stress[2].Figures.BoundExceededBy = sim.Figure{Worst: 41}
		text := strings.Join(strings.Fields(written(t, Plan(p, "", ""), FormatTable)), " ")
		// then it says so, unless the bound is a target, which the tables show.
		const says = "in the worst window by 40, and by 473 under stress (Redis away for 1s, once an hour)."
		testkit.Check(t, strings.Contains(text, says) != promised, "promised: %v: %s", promised, text)
	}
}

func TestAPlanThatFewReplicationsMissByTheirRangeSaysSo(t *testing.T) {
	// Given means that meet the target, and a range that does not,
	p := missed(t)
	p.Targets, p.Miss.RepsNeeded, p.Miss.Stress = []search.Threshold{search.AtMost("false_reject_ratio", 0.02)},
		0, ""
	p.Miss.Closest.Figures.FalseRejectRatio = sim.Figure{Mean: 0.019, Low: 0.017, High: 0.0203, Range: true}
	for reps, want := range map[int]string{
		4: "Its means meet the targets, but not each of its 4 replications. Fewer than ten have no interval: " +
			"--reps 10.",
		12: "Its means meet the targets, but not each of its 12 replications.",
	} {
		p.Miss.Closest.Reps = reps
		text := strings.Join(strings.Fields(written(t, Plan(p, "", ""), FormatTable)), " ")
		testkit.Check(t, strings.Contains(text, want) && !strings.Contains(text, "--overcommit-max"), "%d: %s",
			reps, text)
	}
	// and where they do not, then what else may help.
	p.Miss.Closest.Figures.FalseRejectRatio.Mean = 0.021
	says(t, written(t, Plan(p, "", ""), FormatTable), "--overcommit-max")
}

func TestAPlanSaysThatItsMarginIsNarrow(t *testing.T) {
	for _, c := range []struct {
		target search.Threshold
		value  float64
		want   string
	}{
		{search.AtMost("false_reject_ratio", 0.01), 0.00999, "per second, by a narrow margin (0.999 % for " +
			"false_reject_ratio at most 1 %)."},
		{search.AtLeast("jain", 0.99), 0.9901, "by a narrow margin (0.9901 for jain at least 0.99)."},
		{search.AtMost("false_reject_ratio", 0.01), 0.009, ""}, // a tenth is left
		{search.AtMost("false_reject_ratio", 0), 0, ""},        // which is all that it can be
	} {
		// Given a policy that is so far within its target,
		p := planned(t)
		margin := (c.target.Bound - c.value) / c.target.Bound
		if c.target.Op == ">=" {
			margin = (c.value - c.target.Bound) / (1 - c.target.Bound)
		}
		if c.target.Bound == 0 {
			margin = 0
		}
		p.Chosen.Margins = []search.Margin{{Threshold: c.target, Value: c.value, Meets: true, Margin: margin},
			{Threshold: search.AtMost(search.BoundFigure, 0), Meets: true}}
		// then the headline says so where that is little.
		text := Plan(p, "", "").Verdicts[0].Text
		testkit.Check(t, strings.Contains(text, "Take ") && strings.HasSuffix(text, c.want) &&
			strings.Contains(text, "narrow") == (c.want != ""), "%v: %s", c.target, text)
	}
}

func TestAPlanSaysThatLeasesSaveLittle(t *testing.T) {
	for requests, want := range map[float64]bool{0: false, 87.9: true, 170: true, 180: false, 20000: false} {
		// Given a policy that makes 88.4 calls for this number of requests,
		p := planned(t)
		p.Chosen.Figures.CallsPerS, p.RequestsPerS = fig(88.4, 88.4, 88.4, 1), requests
		// then a plan says so where a call for each request would hardly be more.
		text := strings.Join(strings.Fields(written(t, Plan(p, "", ""), FormatTable)), " ")
		said := strings.Contains(text, "Leases save little here: a limiter that asks Redis for each request makes "+
			Number(requests)+" calls per second.")
		testkit.Check(t, said == want, "%v: %s", requests, text)
	}
}

func TestATargetThatToleratesNothingHasNoMargin(t *testing.T) {
	// Given targets that tolerate a part, and that tolerate nothing,
	p := planned(t)
	some, none := search.AtMost("false_reject_ratio", 0.01), search.AtMost("false_reject_ratio", 0)
	p.Chosen.Margins = []search.Margin{{Threshold: some, Value: 0.005, Meets: true, Margin: 0.5},
		{Threshold: none, Value: 0.0001, Margin: -0.0001},
		{Threshold: search.AtLeast("jain", 1), Value: 1, Meets: true}}
	// then only what is left of a part is a margin.
	text := written(t, Plan(p, "", ""), FormatTable)
	for target, want := range map[string]string{"false_reject_ratio at most 1 %": "0.5 % 50 % holds",
		"false_reject_ratio at most 0 %": "0.01 % missed", "jain at least 1": "1 holds"} {
		_, row, _ := strings.Cut(text, "\n"+target+" ")
		row, _, _ = strings.Cut(row, "\n")
		row = strings.Join(strings.Fields(row), " ")
		testkit.Check(t, row == want, "%s: %s", target, row)
	}
}

func TestTheAdviceOfMoreShardsSaysWhatTheyCost(t *testing.T) {
	for _, busy := range []float64{0.8, 0.999} {
		// Given one key for which one Redis is too busy,
		p := planned(t)
		p.Chosen.Figures.CallsPerS, p.Chosen.Figures.RedisCPU = fig(378, 378, 378, 1), fig(busy, busy, busy, 1)
		p.Needs = &search.Needs{CPU: busy, Nodes: 1, Least: 32}
		p.Relief = &sim.Relief{Shards: 32, RedisCPU: 0.6, CallsPerS: 9205}
		// then what helps stands beside the calls that it makes.
		text := strings.Join(strings.Fields(written(t, Plan(p, "", ""), FormatTable)), " ")
		says(t, text, "with 9,205 lease calls per second in place of 378.")
	}
}

func TestATradeOffSaysAllThatItSets(t *testing.T) {
	// Given trade-offs of a large fleet, of which one sets the TTL and two the budget of calls,
	p := planned(t)
	c := *p.Chosen
	c.Policy.Overcommit = 0
	p.TradeOffs = []search.Candidate{c, c, c}
	p.TradeOffs[0].Policy.CallsPerSecond = 250
	p.TradeOffs[1].Policy.CallsPerSecond, p.TradeOffs[1].Policy.DefaultTTL = 1000, false
	// then a row can be simulated again by what it says, and what none sets is left out.
	_, text, _ := strings.Cut(written(t, Plan(p, "", ""), FormatTable), "TRADE-OFFS")
	text, _, _ = strings.Cut(text, "Policies that")
	words := strings.Join(strings.Fields(text), " ")
	for _, says := range []string{"120ms 480ms (default) 250", "120ms 480ms 1,000",
		"120ms 480ms (default) default"} {
		testkit.Check(t, strings.Contains(words, says), "%q is not in %s", says, words)
	}
	testkit.Check(t, !strings.Contains(text, "overcommit") && !strings.Contains(text, "shards"), "%s", text)
}
