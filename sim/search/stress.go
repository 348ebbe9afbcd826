package search

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// These constants are stresses for the chosen policy. A fault happens in the middle of the run.
const (
	StressClocks     = "clocks"      // clocks with twice the offset and twice the drift
	StressOutage     = "outage"      // Redis refuses connections
	StressFailover   = "failover"    // a replica without the last writes takes over
	StressCrash      = "crash"       // a tenth of the processes is killed and restarted
	StressLostBucket = "lost_bucket" // Redis restarts without data
	StressProcesses  = "processes"   // 1.5 times the processes share the same load
)

// Stresses lists the values of Question.MustHold, in the order of Plan.Stress.
var Stresses = []string{
	StressClocks, StressOutage, StressFailover, StressCrash, StressLostBucket, StressProcesses,
	"load_1", "load_1.05", "load_1.5", "load_2", "load_3",
}

// loads maps an overload to the demand for the most popular key, as a multiple of the key's limit.
var loads = map[string]float64{"load_1": 1, "load_1.05": 1.05, "load_1.5": 1.5, "load_2": 2, "load_3": 3}

// ErrStress is wrapped by the error about an unknown stress.
var ErrStress = errors.New("search: unknown stress")

const (
	// Correct clocks get the errors of a host without NTP and of two quartzes that are wrong by 100 ppm each.
	stressOffset   = time.Second
	stressDriftPPM = 200
	// An outage lengthens the run by its own length, at most outageParts times the counted time.
	stressOutage, outageParts = 30 * time.Second, 3
	// A failover takes stressFailover, and its replica lacks the writes of the last stressLost.
	stressFailover, stressLost = time.Second, 300 * time.Millisecond
	stressRestart              = 100 * time.Millisecond // restart of Redis or of a crashed process
)

// often has the assumed time between two faults of a kind, which descriptions of stresses name. A plan
// divides the tokens that a fault costs by the tokens admitted between two faults.
var often = map[string]time.Duration{
	StressOutage: 24 * time.Hour, StressFailover: time.Hour, StressCrash: time.Hour, StressLostBucket: time.Hour,
}

// stressed returns a copy of s under a stress, and a description of the stress. s must have its defaults.
func stressed(s sim.Scenario, name string) (harder sim.Scenario, description string) {
	switch name {
	case StressClocks:
		s.Clock = doubled(s.Clock)
		return s, "clocks twice as wrong"
	case StressOutage:
		f := sim.RedisFault{Kind: sim.FaultOutage, For: min(stressOutage, outageParts*(s.Duration-s.Warmup))}
		s = lasting(withFault(s, f), s.Duration+f.For)
		return s, fmt.Sprintf("Redis away for %v, once a day", f.For)
	case StressFailover:
		f := sim.RedisFault{Kind: sim.FaultFailover, For: stressFailover, Lost: stressLost}
		return withFault(s, f), fmt.Sprintf("a failover of %v that loses %v of writes, once an hour", f.For, f.Lost)
	case StressLostBucket:
		f := sim.RedisFault{Kind: sim.FaultRestartEmpty, For: stressRestart}
		return withFault(s, f), "Redis restarts empty, once an hour"
	case StressCrash:
		s.Groups = slices.Clone(s.Groups)
		killed := 0
		for i := range s.Groups {
			killed += crash(&s.Groups[i], middle(s))
		}
		return s, fmt.Sprintf("%d of %d processes killed, once an hour", killed, processesOf(s))
	}
	if load, ok := loads[name]; ok {
		return s, fmt.Sprintf("a load of %v times the limit", load)
	}
	harder = grown(s)
	return harder, fmt.Sprintf("%d processes instead of %d", processesOf(harder), processesOf(s))
}

// loaded returns s with the demand for the most popular key scaled to load times the key's limit. s must have
// its defaults. ok is false if a trace, or the limiter's answers, decide the load.
func loaded(s sim.Scenario, load float64) (harder sim.Scenario, ok bool) {
	times := load / s.Load()
	ok = times > 0
	harder = eachLoad(s, func(w *sim.Workload) {
		ok = ok && w.Kind != sim.Adversary && w.Kind != sim.Replay
		multiply(&w.Rate, times)
		multiply(&w.Load, times)
	})
	return harder, ok && harder.Validate() == nil
}

func multiply[T ~float64](x *T, times float64) { *x *= T(times) }

// grown returns s with 1.5 times the processes, under the same load.
func grown(s sim.Scenario) sim.Scenario {
	s.Groups = slices.Clone(s.Groups)
	more := func(n int) int { return (3*n + 1) / 2 }
	for i := range s.Groups {
		g := &s.Groups[i]
		g.Count = more(g.Count)
		g.Scale = slices.Clone(g.Scale)
		for j := range g.Scale {
			g.Scale[j].Count = more(g.Scale[j].Count)
		}
	}
	return s
}

func doubled(c sim.Clock) sim.Clock {
	if c.Offset.Dist = twice(c.Offset.Dist); c.Offset.IsZero() {
		c.Offset = sim.Constantly(stressOffset)
	}
	if c.Drift.Dist = twice(c.Drift.Dist); c.Drift.IsZero() {
		c.Drift.P = stressDriftPPM
	}
	return c
}

func twice(d sim.Dist) sim.Dist {
	d.P, d.Q = 2*d.P, 2*d.Q
	return d
}

func middle(s sim.Scenario) time.Duration { return s.Warmup + (s.Duration-s.Warmup)/2 }

func withFault(s sim.Scenario, f sim.RedisFault) sim.Scenario {
	f.At = middle(s)
	s.Redis.Faults = append(slices.Clip(s.Redis.Faults), f)
	return s
}

// crash kills a tenth of g's processes, at least one, and starts them again unless the group scales earlier.
// crash returns the number of killed processes.
func crash(g *sim.Group, at time.Duration) (killed int) {
	count, next := g.Count, 0
	for next < len(g.Scale) && g.Scale[next].At <= at {
		count, next = g.Scale[next].Count, next+1
	}
	killed = (count + 9) / 10
	steps := []sim.Step{{At: at, Count: count - killed, Kill: true}}
	if back := at + stressRestart; next == len(g.Scale) || g.Scale[next].At > back {
		steps = append(steps, sim.Step{At: back, Count: count})
	}
	g.Scale = slices.Insert(slices.Clone(g.Scale), next, steps...)
	return killed
}

// burden spreads the cost of t's fault over the time between two faults, and updates t's report. calm has the
// figures of a run without the fault. burden returns by how much the fault raises false_reject_ratio.
func burden(t *trial, calm *sim.Figures, every time.Duration) (part float64) {
	f := &t.report.Figures
	between := f.CentralAdmitted.Mean * every.Seconds() / (t.scenario.Duration - t.scenario.Warmup).Seconds()
	if between > 0 {
		part = f.FaultStock.High / between
	}
	r := *t.report
	r.FalseRejectRatio = plus(calm.FalseRejectRatio, part)
	r.AdmittedVsCentral = plus(calm.AdmittedVsCentral, -part)
	t.report = &r
	return part
}

func plus(f sim.Figure, x float64) sim.Figure {
	f.Mean, f.Low, f.High, f.Worst = f.Mean+x, f.Low+x, f.High+x, f.Worst+x
	return f
}
