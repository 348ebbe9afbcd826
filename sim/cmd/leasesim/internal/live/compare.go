package live

import (
	"fmt"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// serviceAssumed is the time of a lease call in a real Redis (docs/figures.md). serviceAssumed replaces the
// service time of a server that does not report one.
const serviceAssumed = 16 * time.Microsecond

// Simulated returns s with the round trips and the service time of a real run, as input of a simulation. The
// times must come from the compared run, because a machine that is busy with a burst of all processes answers
// ten times as slowly as an idle machine.
func Simulated(s sim.Scenario, real Report) sim.Scenario {
	service := time.Duration(real.ServiceTimeNs)
	if service == 0 {
		service = serviceAssumed
	}
	s.Network.RoundTrip = linkOf(real.RoundTripNs, service)
	s.Groups = slices.Clone(s.Groups)
	for i := range s.Groups {
		s.Groups[i].RoundTrip = sim.DurationDist{} // all real processes are on one machine
	}
	s.Redis.ServiceTime = sim.Constantly(service)
	s.Redis.ExchangeTime, s.Redis.WakeTime = sim.Constantly(0), sim.Constantly(0) // the round trips include these
	return s
}

// tokensWithin and the constants below are the allowed distances between a real fleet and simulated fleets.
// The range of the replications covers seeds. A tolerance covers facts that the simulator does not know:
// other load on the machine, and the precision of timers. help/compare.txt has the reason for each tolerance.
const (
	tokensWithin = 0.01 // a difference of 0.04 % was measured with a steady load on two half-busy cores
	callsWithin  = 0.05 // 1 % more to 3 % fewer were measured on two half-busy cores
	// timerGrain is the longest delay of a timer in an idle Go program on Linux. A call that a timer starts
	// is late by up to timerGrain, and delays later calls by as much.
	timerGrain = time.Millisecond
	// callsMore is the number of extra calls per process: one call gives back at the end, another may fall on
	// the edge of the run.
	callsMore = 2
	// callsPerBurst is the number of calls per process and burst that a delay may save: at the beginning of a
	// burst each call asks for 1.5 times the tokens of the previous call.
	callsPerBurst = 1
)

// Offered and the constants below are the names of rows.
const (
	Offered  = "offered"
	Admitted = "admitted"
	Calls    = "calls_per_s_and_process"
	Exceeded = "bound_exceeded_by"
)

// Row compares one figure of the real fleet with the same figure of the simulated fleets.
type Row struct {
	Name      string  `json:"name"`
	Simulated float64 `json:"simulated"` // mean over the replications
	Real      float64 `json:"real"`
	Low       float64 `json:"low"` // least value of Real that agrees
	High      float64 `json:"high"`
	Tolerance string  `json:"tolerance"`
	Agrees    bool    `json:"agrees"`
}

// tolerance is the allowed distance of a real figure from the simulated figures: the fraction fewer, the
// fraction more, and an absolute distance some in either direction.
type tolerance struct {
	fewer, more, some float64
	text              string
}

// Compare compares a real run of o with the simulation of the same scenario. A real figure agrees if it lies
// in the range of the replications, widened by the tolerance.
func Compare(o Options, simulated sim.Report, real Report) []Row {
	seconds, processes := o.Scenario.Duration.Seconds(), float64(len(o.weights()))
	bursts, largest := o.bursts()
	tokens := tolerance{tokensWithin, tokensWithin, largest, percent(tokensWithin)} // a request may be late
	return []Row{
		tokens.row(Offered, simulated.Offered, 1, float64(real.Offered)),
		tokens.row(Admitted, simulated.Admitted, 1, float64(real.Admitted)),
		o.calls(bursts).row(Calls, simulated.RoundTripsPerS, processes, float64(real.RoundTrips)/processes/seconds),
		tolerance{text: "none"}.row(Exceeded, simulated.BoundExceededBy, 1, float64(real.BoundExceededBy)),
	}
}

func (t tolerance) row(name string, f sim.Figure, unit, real float64) Row {
	values := f.Values
	if len(values) == 0 { // as in a report that was read from a file
		values = []float64{f.Mean}
	}
	low := slices.Min(values)/unit*(1-t.fewer) - t.some
	high := slices.Max(values)/unit*(1+t.more) + t.some
	return Row{
		Name: name, Simulated: f.Mean / unit, Real: real, Low: low, High: high, Tolerance: t.text, Agrees: real >= low && real <= high,
	}
}

// calls returns the tolerance for the calls per second of one process.
func (o Options) calls(bursts int) tolerance {
	shortest := o.leased().Target / 2 // shortest time between two calls of a process, as the bucket asks
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
	requests, _ := sim.Requests(o.Scenario, -1) // FromScenario has checked for errors
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

// linkOf returns the distribution of a link's delay from quantiles of round trips and the server's service
// time.
func linkOf(seen Quantiles, service time.Duration) sim.DurationDist {
	trip := max(time.Duration(seen.P50)-service, time.Microsecond)
	slow := max(time.Duration(seen.P99)-service, trip)
	return sim.DurationDist{Dist: sim.Dist{Kind: sim.DistLognormal, P: float64(trip), Q: float64(slow)}}
}
