package view

import (
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

func TestAPlanSaysWhatItMeans(t *testing.T) {
	// A policy that exceeds its bound by 40 tokens, and in an outage by 473 at most.
	exceeds := func(targets ...search.Threshold) func(*search.Plan) {
		return func(p *search.Plan) {
			p.Targets = targets
			p.Chosen.Figures.BoundExceededBy = sim.Figure{Worst: 40}
			p.Stress[1].Figures.BoundExceededBy = sim.Figure{Worst: 473}
			p.Stress[2].Figures.BoundExceededBy = sim.Figure{Worst: 41}
		}
	}
	requests := func(perSecond float64) func(*search.Plan) {
		return func(p *search.Plan) {
			p.Chosen.Figures.CallsPerS, p.RequestsPerS = fig(88.4, 88.4, 88.4, 1), perSecond
		}
	}
	undecided := func(settles float64) func(*search.Plan) {
		return func(p *search.Plan) { p.Verdict, p.Miss.Stress, p.SettlesS = search.Undecided, "", settles }
	}
	rejects := search.AtMost("false_reject_ratio", 0.01)
	for _, c := range []struct {
		of     func(*testing.T) search.Plan
		change func(*search.Plan)
		wording
	}{
		{planned, func(*search.Plan) {}, wording{"", "Undecided:"}},
		{missed, undecided(5000), wording{"Undecided: at this load the fleet takes 1h23m20s to settle", "No tried policy"}},
		{missed, undecided(0), wording{"More --reps narrow the intervals.", "No tried policy"}},
		{planned, func(p *search.Plan) { p.Stress[0].Undecided = true },
			wording{"it is undecided whether the targets hold", ""}},
		{planned, func(p *search.Plan) {
			p.Chosen.Figures.Offered, p.Chosen.Figures.CentralAdmitted = fig(9, 0, 9, 1), fig(9, 0, 9, 1)
		}, wording{"One central bucket denies nothing at this load", ""}},
		// An excess is a verdict unless the bound is a target, which the tables show.
		{planned, exceeds(rejects),
			wording{"in the worst window by 473 (stress: Redis away for 30s, once a day).", ""}},
		{planned, exceeds(rejects, search.AtMost(search.BoundFigure, 0)), wording{"", "in the worst window"}},
		{planned, requests(87.9), wording{"Leases cost 1 % more calls than they save: a limiter with a call per", ""}},
		{planned, requests(170), wording{"Leases save little here: a limiter with a call", ""}},
		{planned, requests(0), wording{"", "Leases save little"}},
		{planned, requests(180), wording{"", "Leases save little"}},
		{planned, func(p *search.Plan) { p.BurstWanted = 1200 }, wording{"which takes a burst of 1,200.", ""}},
		{planned, func(*search.Plan) {}, wording{"", "The limiter will log"}},
		{planned, func(p *search.Plan) { p.Given.Meets = false }, wording{"does not meet the targets.", ""}},
		{planned, func(p *search.Plan) { p.Given.Policy = p.Chosen.Policy },
			wording{"That is the scenario's own policy.", ""}},
		{missed, func(p *search.Plan) { p.Miss.Stress = search.StressClocks },
			wording{"which fails under stress (clocks). neutral: The trade-offs show", ""}},
	} {
		p := c.of(t)
		c.change(&p)
		c.check(t, words(Plan(p, "", "")))
	}
	// There is no empty table of stresses.
	p := planned(t)
	p.Stress = nil
	wording{"", "UNDER STRESS"}.check(t, written(t, Plan(p, "", ""), FormatTable))
}

func TestAPlanOfOneReplicationClaimsNoInterval(t *testing.T) {
	p := search.Plan{Asked: search.Asked{Reps: 1}}
	wording{"has no interval", "pessimistic end"}.check(t, Plan(p, "", "").Subtitle)
	p.Reps = 2
	wording{"pessimistic end", "has no interval"}.check(t, Plan(p, "", "").Subtitle)
}

func TestATargetThatToleratesNothingHasNoMargin(t *testing.T) {
	// Given targets that tolerate a part, and that tolerate nothing,
	p := planned(t)
	some, none := search.AtMost("false_reject_ratio", 0.01), search.AtMost("false_reject_ratio", 0)
	p.Chosen.Margins = []search.Margin{{Threshold: some, Value: 0.005, Meets: true, Margin: 0.5},
		{Threshold: none, Value: 0.0001, Margin: -0.0001},
		{Threshold: atLeast("jain", 1), Value: 1, Meets: true}}
	// then only what is left of a part is a margin.
	text := strings.Join(strings.Fields(written(t, Plan(p, "", ""), FormatTable)), " ")
	says(t, text, "false_reject_ratio at most 1 % 0.5 % 50 % holds",
		"false_reject_ratio at most 0 % 0.01 % missed", "jain at least 1 1 holds")
}

func TestATradeOffSaysAllThatItSets(t *testing.T) {
	// Given trade-offs of which one sets the TTL, and two the budget of calls,
	p := planned(t)
	c := *p.Chosen
	c.Policy.Overcommit = 0
	p.TradeOffs = []search.Candidate{c, c, c}
	p.TradeOffs[0].Policy.CallsPerSecond = 250
	p.TradeOffs[1].Policy.CallsPerSecond, p.TradeOffs[1].Policy.DefaultTTL = 1000, false
	// then a row can be simulated again by what it says.
	_, text, _ := strings.Cut(written(t, Plan(p, "", ""), FormatTable), "TRADE-OFFS")
	text, _, _ = strings.Cut(text, "Policies that")
	says(t, text, "\ntarget 120ms, ttl 480ms (default), calls_per_second 250 ",
		"\ntarget 120ms, ttl 480ms, calls_per_second 1,000 ", "\ntarget 120ms, ttl 480ms (default)  ")
	wording{"", "overcommit"}.check(t, text)
}

// atLeast is a threshold from below.
func atLeast(figure string, bound float64) search.Threshold {
	return search.Threshold{Figure: figure, Op: ">=", Bound: bound}
}
