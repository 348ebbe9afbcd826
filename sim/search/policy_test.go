package search

import (
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
	all := policiesFor(Question{Scenario: s, OvercommitMax: 1000})
	// then it starts with the scenario's own policy,
	testkit.Check(t, all[0] == s.Policy && s.Policy.TTL == 400*time.Millisecond, "the first is %+v", all[0])
	// goes from 2 s to about 5 ms in equal factors, with half and all of the overcommit too,
	for _, overcommit := range []int64{0, 500, 1000} {
		targets := targetsIn(all[1:], overcommit)
		last := targets[len(targets)-1]
		testkit.Check(t, targets[0] == 2*time.Second && last < 6*time.Millisecond && last >= 4*time.Millisecond, "%v", targets)
		for i := range targets[1:] {
			f := targets[i].Seconds() / targets[i+1].Seconds()
			testkit.Check(t, f < targetStep*1.1 && f > targetStep/1.1, "%v and %v are a factor of %v apart", targets[i], targets[i+1], f)
		}
	}
	// and with each TTL that two call timeouts leave.
	for _, ttl := range []time.Duration{4 * time.Second / 2, 16 * time.Second / 2} {
		has := slices.ContainsFunc(all, func(p lease.Policy) bool { return p.TTL == ttl })
		testkit.Check(t, has || ttl == 2*time.Second, "no TTL of %v", ttl)
	}
	for _, p := range all {
		multiple := float64(p.TTL) / float64(p.Target)
		testkit.Check(t, multiple == 4 || multiple == 16 || p.TTL == 200*time.Millisecond, "%+v", p)
	}
}

func TestTheBurstCapsTheTargetsAndASmallOneStartsAtAMillisecond(t *testing.T) {
	s := fleet()
	for _, c := range []struct {
		burst, overcommit int64
		longest           time.Duration
		least             int
	}{{20, 0, 5 * time.Millisecond, 4}, {1, 0, time.Millisecond, 1}, {1, 79, 20 * time.Millisecond, 4}} { // a quarter of it
		s.Limits = []lease.Limit{lease.PerSecond(1000).WithBurst(c.burst)}
		s.Policy.Target, s.Policy.TTL = time.Millisecond, 200*time.Millisecond
		targets := targetsIn(policiesFor(Question{Scenario: s, OvercommitMax: c.overcommit}), c.overcommit)
		last := targets[len(targets)-1]
		testkit.Check(t, targets[0] == c.longest && last.Seconds() <= max(c.longest.Seconds()/4*targetStep, 0.001) && len(targets) >= c.least, "burst %d: %v", c.burst, targets)
	}
}

func TestWhatIsTriedIsAllowedAndValidAndDifferent(t *testing.T) {
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
		overcommitMax := r.Int64N(1000)
		all := policiesFor(Question{Scenario: s, OvercommitMax: overcommitMax})
		for i, p := range all {
			// then every policy that is tried keeps to that,
			one := s
			one.Policy = p
			switch config := p.ConfigFor(s.Limits, 0, s.CallTimeout); {
			case one.Validate() != nil:
				t.Fatalf("%v: %+v: %v", s.Limits, p, one.Validate())
			case config.Target != p.Target || config.TTL != p.TTL:
				t.Fatalf("%v: %+v would be %v and %v", s.Limits, p, config.Target, config.TTL)
			case p.Overcommit > max(overcommitMax, s.Policy.Overcommit):
				t.Fatalf("%v: %+v, allowed %d", s.Limits, p, overcommitMax)
			case p.TTL < 2*s.CallTimeout && i > 0:
				t.Fatalf("%+v has no time for a call and its retry (%v)", p, s.CallTimeout)
			// and none is tried twice.
			case slices.Contains(all[:i], p):
				t.Fatalf("%v: %+v is there twice", s.Limits, p)
			}
		}
	}
}

func TestTheEffortRises(t *testing.T) {
	// Given 8 replications of 10 s,
	p := &planning{q: Question{Scenario: fleet()}}
	for _, c := range []struct {
		effort
		warmup, longest, want time.Duration
		reps                  int
	}{
		{efforts[0], 0, 0, time.Second, 3},
		{efforts[0], 0, 100 * time.Millisecond, 1400 * time.Millisecond, 3}, // no shorter than several leases
		{efforts[0], 0, 3 * time.Second, 10 * time.Second, 3},
		{efforts[0], 5 * time.Second, 0, 6 * time.Second, 3}, // the warm-up comes on top
		{efforts[1], 0, 100 * time.Millisecond, 3 * time.Second, 4},
		{efforts[2], 0, 100 * time.Millisecond, 10 * time.Second, 5},
		{confirm, 0, 0, 10 * time.Second, 8}, // no more than was asked for
	} {
		p.q.Scenario.Warmup = c.warmup
		policies := []lease.Policy{{}, {Target: c.longest}}
		for _, x := range p.trials(c.effort, 7, policies) {
			s := x.scenario
			testkit.Check(t, s.Duration == c.want && s.Reps == c.reps && s.Seed == 7, "%+v: %v, %d", c, s.Duration, s.Reps)
		}
	}
}

func TestAScenarioInWhichThingsHappenIsNeverCutShort(t *testing.T) {
	testkit.Check(t, stationary(fleet()), "nothing happens in the fleet, so that it may be cut")
	for name, change := range map[string]func(*sim.Scenario){
		"flash":      func(s *sim.Scenario) { s.Workload.Kind = sim.Flash },
		"diurnal":    func(s *sim.Scenario) { s.Workload.Kind = sim.Diurnal },
		"replay":     func(s *sim.Scenario) { s.Workload.Kind = sim.Replay },
		"own flash":  func(s *sim.Scenario) { s.Groups[0].Workload = &sim.Workload{Kind: sim.Flash} },
		"scale":      func(s *sim.Scenario) { s.Groups[0].Scale = make([]sim.Step, 1) },
		"partitions": func(s *sim.Scenario) { s.Network.Partitions = make([]sim.Partition, 1) },
		"faults":     func(s *sim.Scenario) { s.Redis.Faults = make([]sim.RedisFault, 1) },
	} {
		p := &planning{q: Question{Scenario: fleet()}}
		change(&p.q.Scenario)
		s := p.trials(efforts[0], 1, []lease.Policy{{}})[0].scenario
		testkit.Check(t, s.Duration == 10*time.Second && s.Reps == 3, "%s: %v, %d", name, s.Duration, s.Reps)
	}
}
