package search

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// targetsIn are the targets of policies with an overcommit, longest first, each once.
func targetsIn(policies []lease.Policy, overcommit int64) (all []time.Duration) {
	for _, p := range policies {
		if p.Overcommit == overcommit && !slices.Contains(all, p.Target) {
			all = append(all, p.Target)
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all
}

func TestTheGridFillsTheSpace(t *testing.T) {
	// Given room for any target, and for an overcommit,
	s := fleet()
	s.Policy = ownPolicy(s)
	all := gridOf(Question{Scenario: s, OvercommitMax: 1000})
	// then it starts with the scenario's own policy,
	testkit.Check(t, all[0] == s.Policy && s.TTLInForce() == 400*time.Millisecond, "the first is %+v", all[0])
	// goes from 2 s to about 5 ms in equal factors and then to 1 ms, with half and all of the overcommit too,
	for _, overcommit := range []int64{0, 1000} {
		targets := targetsIn(all[1:], overcommit)
		testkit.Check(t, targets[len(targets)-1] == targetMin, "%v", targets)
		targets = targets[:len(targets)-1]
		last := targets[len(targets)-1]
		ends := targets[0] == 2*time.Second && last < 7*time.Millisecond && last >= 4*time.Millisecond
		for i := range targets[1:] {
			step := targets[i].Seconds() / targets[i+1].Seconds()
			testkit.Check(t, ends && step < targetStep*1.1 && step > targetStep/1.1, "%v", targets)
		}
	}
	// with the default TTL, but for one of the shortest target.
	explicit := func(p lease.Policy) bool { return p.TTL != 0 && p.Target != targetMin }
	testkit.Check(t, !slices.ContainsFunc(all, explicit), "%+v", all)
	// Around one of them there are targets in smaller steps, and a long TTL.
	near := around([]*trial{{scenario: s, report: &sim.Report{}}}, nil)
	long := s.Policy
	long.TTL = 1600 * time.Millisecond
	testkit.Check(t, len(near) > 7 && slices.Contains(near, long), "%+v", near)
	for _, p := range near {
		testkit.Check(t, p.Target >= 80*time.Millisecond && p.Target <= 125*time.Millisecond, "%+v", p)
	}
}

func TestABoundOnCallsIsTriedAsABudget(t *testing.T) {
	q := Question{Scenario: fleet(), OvercommitMax: 1000, Targets: []Threshold{AtMost("calls_per_s", 40)}}
	q.Scenario.Policy = ownPolicy(q.Scenario)
	for _, overcommit := range []int64{0, 1000} {
		for _, budget := range []int64{20, 28, 40} {
			want := q.Scenario.Policy
			want.Overcommit, want.CallsPerSecond = overcommit, budget
			testkit.Check(t, slices.Contains(gridOf(q), want), "no %+v", want)
		}
	}
}

func TestALargeFleetIsPlannedByItsBudgetOfCalls(t *testing.T) {
	// Given a fleet whose leases last 2 s for the sake of 500 calls a second, whatever the target is,
	s := fleet()
	s.Groups[0].Count, s.Policy.CallsPerSecond = 1000, 500
	s.Policy = ownPolicy(s)
	all := gridOf(Question{Scenario: s})
	// then its own policy has no TTL, which would shorten them; hardly a target below is tried, and
	// other budgets are.
	testkit.Check(t, all[0].TTL == 0 && len(all) < 22, "%d policies, the first %+v", len(all), all[0])
	for _, n := range []int64{130, 250, 400, 1000} {
		other := s.Policy
		other.CallsPerSecond = n
		testkit.Check(t, slices.Contains(all, other), "no budget of %d", n)
	}
	// Around it there are budgets in smaller steps, with a long TTL.
	other := s.Policy
	other.CallsPerSecond, other.TTL = 510, ttlLong*s.Policy.Target
	testkit.Check(t, slices.Contains(around([]*trial{{scenario: s, report: &sim.Report{}}}, nil), other), "no budget of 510")
}

func TestTheBurstCapsTheTargetsAndASmallOneStartsAtAMillisecond(t *testing.T) {
	s := fleet()
	for _, c := range []struct {
		burst, overcommit int64
		longest           time.Duration
		least             int
	}{{20, 0, 5 * time.Millisecond, 4}, {1, 0, time.Millisecond, 1}, {1, 79, 20 * time.Millisecond, 4}} {
		s.Limits[0].Burst, s.Policy.Target = c.burst, time.Millisecond
		targets := targetsIn(gridOf(Question{Scenario: s, OvercommitMax: c.overcommit}), c.overcommit)
		last := targets[len(targets)-1].Seconds()
		low := max(c.longest.Seconds()/4*targetStep, 0.001)
		testkit.Check(t, targets[0] == c.longest && last <= low && len(targets) >= c.least, "%+v: %v", c, targets)
	}
}

func TestTriedPoliciesAreAllowedAndValidAndDifferent(t *testing.T) {
	r := testkit.Rand(t)
	for range 100 {
		// Given any limit, and any overcommit allowed,
		s := fleet()
		rate := int64(1) << r.IntN(20)
		s.Limits = []lease.Limit{lease.PerSecond(rate).WithBurst(1 + r.Int64N(4*rate))}
		if r.IntN(2) == 0 {
			s.Limits = append(s.Limits, lease.PerMinute(1+r.Int64N(60*rate)).WithBurst(1+r.Int64N(100*rate)))
		}
		s.CallTimeout = time.Millisecond << r.IntN(10)
		s.Policy.Overcommit = r.Int64N(3)
		s.Policy = ownPolicy(s)
		if s.Validate() != nil {
			continue
		}
		most := r.Int64N(1000)
		all := gridOf(Question{Scenario: s, OvercommitMax: most})
		for i, p := range all {
			// then every policy that is tried keeps to that, has time for a call and its retry, and is
			// tried once.
			config := p.ConfigFor(s.Limits, 0, s.CallTimeout)
			s.Policy = p
			allowed := s.Validate() == nil && p.Overcommit <= max(most, all[0].Overcommit)
			inForce := config.Target == p.Target && (p.TTL == 0 || config.TTL == p.TTL)
			patient := i == 0 || config.TTL >= 2*s.CallTimeout
			testkit.Must(t, allowed && inForce && patient && !slices.Contains(all[:i], p),
				"%v, overcommit %d, calls of %v: %+v is %+v", s.Limits, most, s.CallTimeout, p, config)
		}
	}
}

// tried is a trial with this TTL, which names it, and these margins and calls.
func tried(name time.Duration, surely, means, calls float64) *trial {
	t := &trial{changes: 1, targets: []Threshold{AtMost("false_reject_ratio", 1)}, report: &sim.Report{}}
	t.report.FalseRejectRatio = sim.Figure{High: 1 - surely, Mean: 1 - means}
	t.report.CallsPerS.Mean, t.scenario.Policy.TTL = calls, name
	return t
}

func namesOfAll(trials []*trial) (names []int64) {
	for _, t := range trials {
		names = append(names, int64(t.scenario.Policy.TTL))
	}
	return names
}

func TestThoseThatMeetTheTargetsAndCallLeastComeFirst(t *testing.T) {
	trials := []*trial{
		tried(1, 0.1, 0.1, 300),
		tried(2, -0.5, -0.2, 10), // misses, but by less than 3
		tried(3, -1, -0.9, 1),
		tried(4, -0.1, 0.1, 100), // meets them in the mean alone
		tried(5, 0.2, 0.3, 200),
		tried(6, 0.1, 0.1, 201.9), // as many calls as 5, within 2 %
	}
	check := func(got []*trial, want ...int64) {
		t.Helper()
		testkit.Check(t, slices.Equal(namesOfAll(got), want), "%v, want %v", namesOfAll(got), want)
	}
	check(ranked(trials, expected), 4, 5, 6, 1, 2, 3)
	check(ranked(trials, pessimistic), 5, 6, 1, 4, 2, 3)
	// Of those that call alike, the scenario's own comes first, then the simpler one.
	trials[4].scenario.Policy.Overcommit = 5
	check(ranked(trials, pessimistic), 6, 5, 1, 4, 2, 3)
	trials[4].changes = 0
	check(ranked(trials, pessimistic), 5, 6, 1, 4, 2, 3)
}

func TestTradeOffsAreFewAndApartAndKeepTheChosenOne(t *testing.T) {
	for n := range 40 {
		// Given trials of which each makes a fifth more calls than the last one and is more accurate,
		list, calls := make([]*trial, n), 1.0
		for i := range list {
			margin := 1 - math.Pow(0.8, float64(i))
			list[i] = tried(time.Duration(i+1), margin, margin, calls)
			calls *= 1.2
		}
		for i := range list {
			// whichever is chosen, then few are listed, by calls and apart, it among them.
			got := tradeOffs(list, list[i])
			near := func(a, b *trial) int { return cmp.Compare(a.calls(), b.calls()*apart) }
			ok := len(got) >= min(n, tradeOffsMax/2) && len(got) <= tradeOffsMax && slices.Contains(got, list[i])
			testkit.Check(t, ok && slices.IsSortedFunc(got, near), "of %d with %d: %v", n, i+1, namesOfAll(got))
		}
	}
}

func TestAMarginIsAPartOfWhatTheTargetTolerates(t *testing.T) {
	r := &sim.Report{Figures: sim.Figures{
		FalseRejectRatio:  sim.Figure{Low: 0.001, Mean: 0.002, High: 0.004, Worst: 0.1},
		AdmittedVsCentral: sim.Figure{Low: 0.99, Mean: 0.995, High: 0.999},
		CallsPerS:         sim.Figure{Low: 90, Mean: 100, High: 110},
		Jain:              sim.Figure{Low: math.NaN(), Mean: math.NaN(), High: math.NaN()},
		BoundExceededBy:   sim.Figure{Low: -3, Mean: 1, High: 5, Worst: 7},
	}}
	for _, c := range []struct {
		target                Threshold
		pessimistic, expected float64
	}{
		{AtMost("false_reject_ratio", 0.005), 0.2, 0.6},
		{AtMost("false_reject_ratio", 0.002), -1, 0},
		{AtMost("false_reject_ratio", 0), -0.004, -0.002},
		{atLeast("admitted_vs_central", 0.98), 0.5, 0.75},
		{atLeast("admitted_vs_central", 1), -0.01, -0.005},
		{AtMost("calls_per_s", 100), -0.1, 0},
		{atLeast("calls_per_s", 200), -110, -100},
		{atLeast("jain", 0.9), math.Inf(-1), math.Inf(-1)},
		{promise, -7, -7},
		{AtMost("burnt", 0), math.Inf(1), math.Inf(1)}, // as it may be nothing, and is nothing
	} {
		for at, want := range []float64{c.pessimistic, c.expected} {
			got := c.target.margin(r, end(at))
			testkit.Check(t, got == want || math.Abs(got-want) < 1e-9,
				"%v at end %d: %v, want %v", c.target, at, got, want)
		}
	}
	// The least margin is that of the worst target; a promise that is kept has room without end.
	r.BoundExceededBy = sim.Figure{}
	targets := []Threshold{AtMost("calls_per_s", 120), AtMost("false_reject_ratio", 0.0041), promise}
	x := &trial{report: r, targets: targets}
	surely, means := x.margin(x.targets, pessimistic), x.margin(x.targets, expected)
	testkit.Check(t, math.Abs(surely-0.0001/0.0041) < 1e-12 && math.Abs(means-20.0/120) < 1e-12,
		"%v, %v", surely, means)
	testkit.Check(t, x.graded().Meets && x.graded().Margins[2].Margin == 0, "%+v", x.graded().Margins)
}

// atLeast is a threshold from below.
func atLeast(figure string, bound float64) Threshold {
	return Threshold{Figure: figure, Op: ">=", Bound: bound}
}
