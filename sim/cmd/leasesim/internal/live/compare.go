package live

import (
	"fmt"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// serviceAssumed is how long a lease call takes a real Redis (docs/figures.md). It stands in for a
// server that does not say.
const serviceAssumed = 16 * time.Microsecond

// Simulated returns s with the round trips and the service time of a real run, as input of the simulation.
// They must come from the compared run, because a machine that is busy with a burst of all processes answers
// ten times as slowly as an idle one.
func Simulated(s sim.Scenario, real Report) sim.Scenario {
	service := time.Duration(real.ServiceTimeNs)
	if service == 0 {
		service = serviceAssumed
	}
	s.Network.RoundTrip = linkOf(real.RoundTripNs, service)
	s.Groups = slices.Clone(s.Groups)
	for i := range s.Groups {
		s.Groups[i].RoundTrip = sim.DurationDist{} // real processes are on one machine
	}
	s.Redis.ServiceTime = sim.Constantly(service)
	s.Redis.ExchangeTime, s.Redis.WakeTime = sim.Constantly(0), sim.Constantly(0) // the round trips have them
	return s
}

// The allowed distances between a real fleet and the simulated ones. The range of the replications covers the
// seeds. A tolerance covers facts that the simulator does not know: other load on the machine, and the
// precision of timers. help/compare.txt has the reason of each.
const (
	offeredWithin  = 0.01
	admittedWithin = 0.01 // on two cores of which others used half it was 0.04 % of a steady load
	callsWithin    = 0.05 // on the same machine 1 % more to 3 % less
	// timerGrain is the most delay of a timer in an idle Go program on Linux. A call by a timer is late by
	// that much, and so are the calls after it.
	timerGrain = time.Millisecond
	// callsMore is the number of extra calls per process: one gives back at the end, one is at the edge of
	// the run.
	callsMore = 2
	// callsPerBurst is the number of calls per process and burst that a delay may save: at the beginning of a
	// burst each call asks for 1.5 times the tokens of the one before.
	callsPerBurst = 1
	jainWithin    = 0.005
)

// The names of the rows.
const (
	Offered  = "offered"
	Admitted = "admitted"
	Calls    = "calls_per_s_and_process"
	Jain     = "jain"
	Exceeded = "bound_exceeded_by"
)

// Row compares one figure of the real fleet with the simulated ones.
type Row struct {
	Name      string  `json:"name"`
	Simulated float64 `json:"simulated"` // mean over the replications
	Least     float64 `json:"simulated_least"`
	Most      float64 `json:"simulated_most"`
	Real      float64 `json:"real"`
	Low       float64 `json:"low"` // the least Real that agrees
	High      float64 `json:"high"`
	Tolerance string  `json:"tolerance"`
	Agrees    bool    `json:"agrees"`
}

// tolerance is the allowed distance of a real figure from the simulated ones: the parts fewer and more of
// them, and some in either direction.
type tolerance struct {
	fewer, more, some float64
	text              string
}

// Compare compares a real run of o with the simulation of the same scenario. A real figure agrees if it lies
// in the range of the replications, widened by the tolerance.
func Compare(o Options, simulated sim.Report, real Report) []Row {
	seconds, processes := o.Scenario.Duration.Seconds(), float64(len(o.weights()))
	bursts, largest := o.bursts()
	offered := tolerance{offeredWithin, offeredWithin, largest, percent(offeredWithin)} // the last may be late
	admitted := tolerance{admittedWithin, admittedWithin, largest, percent(admittedWithin)}
	jain := tolerance{some: jainWithin, text: fmt.Sprint(jainWithin)}
	rows := []Row{
		offered.row(Offered, simulated.Offered, 1, float64(real.Offered)),
		admitted.row(Admitted, simulated.Admitted, 1, float64(real.Admitted)),
		o.calls(bursts).row(Calls, simulated.RoundTripsPerS, processes, float64(real.RoundTrips)/processes/seconds),
		jain.row(Jain, simulated.Jain, 1, real.Jain),
		tolerance{text: "none"}.row(Exceeded, simulated.BoundExceededBy, 1, float64(real.BoundExceededBy)),
	}
	rows[3].High = min(rows[3].High, 1) // as Jain's index cannot be more
	kind := o.Scenario.Workload.Kind
	if len(o.Scenario.Groups) > 1 || o.Scenario.Keys.Count > 1 || o.faults() != (faults{}) ||
		kind != sim.Constant && kind != sim.Sync {
		rows = slices.Delete(rows, 3, 4) // the simulator's is of the most popular key, over time
	}
	return rows
}

// row compares one figure, divided by unit.
func (t tolerance) row(name string, f sim.Figure, unit, real float64) Row {
	values := f.Values
	if len(values) == 0 { // as in a report that was read from a file
		values = []float64{f.Mean}
	}
	least, most := slices.Min(values)/unit, slices.Max(values)/unit
	low, high := least*(1-t.fewer)-t.some, most*(1+t.more)+t.some
	return Row{
		Name: name, Simulated: f.Mean / unit, Least: least, Most: most, Real: real,
		Low: low, High: high, Tolerance: t.text, Agrees: real >= low && real <= high,
	}
}

// calls returns the tolerance of one process's calls per second.
func (o Options) calls(bursts int) tolerance {
	shortest := o.leased().Target / 2 // between two calls of a process: the bucket asks for as much
	late := float64(timerGrain) / float64(shortest+timerGrain)
	t := tolerance{fewer: callsWithin + late, more: callsWithin, some: callsMore}
	t.text = fmt.Sprintf("-%s, +%s", percent(t.fewer), percent(t.more))
	if bursts > 0 {
		t.some += callsPerBurst * float64(bursts)
		t.text += fmt.Sprintf(", ±%d a burst", callsPerBurst)
	}
	t.some /= o.Scenario.Duration.Seconds()
	return t
}

// bursts counts the requests that follow a gap of a Target or more, and returns the largest cost.
func (o Options) bursts() (n int, largest float64) {
	requests, _ := sim.Requests(o.Scenario, -1) // FromScenario has looked at them
	target, last := o.leased().Target, time.Duration(-1)
	for q := range requests {
		if last >= 0 && q.At-last >= target {
			n++
		}
		last, largest = q.At, max(largest, float64(q.Cost))
	}
	return n, largest
}

func percent(x float64) string { return fmt.Sprintf("%.2g %%", 100*x) }
