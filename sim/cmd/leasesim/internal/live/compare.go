package live

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// serviceAssumed is the service time of a server that reports none. docs/figures.md has its measurement.
const serviceAssumed = 16 * time.Microsecond

// Simulated returns s with the round trips and the service time of the real run to compare. Times of another
// run will not do: during a burst of all processes, a server answers ten times as slowly as when it is idle.
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
	s.Redis.ExchangeTime, s.Redis.WakeTime = sim.Constantly(0), sim.Constantly(0) // parts of the measured round trips
	return s
}

// tokensWithin and the constants below are the tolerances of a comparison: for other load on the machine, and
// for the precision of timers. help/compare.txt has the reason for each tolerance.
const (
	tokensWithin = 0.01 // a difference of 0.04 % was measured with a steady load on two half-busy cores
	callsWithin  = 0.05 // 1 % more to 3 % fewer were measured on two half-busy cores
	// timerGrain is the longest delay of a timer in an idle Go program on Linux. It delays the call that the
	// timer starts, and all later calls.
	timerGrain = time.Millisecond
	// callsMore is the number of extra calls of a process: one gives tokens back at the end, and another may
	// fall on an edge of the run.
	callsMore = 2
	// callsPerBurst is the number of calls of a process that a delay may save per burst. At the beginning of
	// a burst, each call asks for 1.5 times the tokens of the previous call.
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
	Agrees    bool    `json:"agrees"`
}

// tolerance is the allowed distance of a real figure from the simulated figures.
type tolerance struct {
	fewer, more float64 // fractions of the simulated figure, below and above it
	some        float64 // an absolute distance in either direction, in addition
}

// Compare compares a real run of o with the simulation of the same scenario. A real figure agrees if it lies
// in the range of the replications, widened by a tolerance.
func Compare(o Options, simulated sim.Report, real Report) []Row {
	seconds, processes := o.Scenario.Duration.Seconds(), float64(len(o.weights()))
	bursts, largest := o.bursts()
	tokens := tolerance{tokensWithin, tokensWithin, largest} // the last request may be late
	return []Row{
		tokens.row(Offered, simulated.Offered, 1, float64(real.Offered)),
		tokens.row(Admitted, simulated.Admitted, 1, float64(real.Admitted)),
		o.calls(bursts).row(Calls, simulated.RoundTripsPerS, processes, float64(real.RoundTrips)/processes/seconds),
		tolerance{}.row(Exceeded, simulated.BoundExceededBy, 1, float64(real.BoundExceededBy)),
	}
}

func (t tolerance) row(name string, f sim.Figure, unit, real float64) Row {
	values := f.Values
	if len(values) == 0 { // in a report that was read from a file
		values = []float64{f.Mean}
	}
	low := slices.Min(values)/unit*(1-t.fewer) - t.some
	high := slices.Max(values)/unit*(1+t.more) + t.some
	return Row{
		Name: name, Simulated: f.Mean / unit, Real: real, Low: low, High: high, Agrees: real >= low && real <= high,
	}
}

// calls returns the tolerance for the calls per second of one process, in a load with a number of bursts.
func (o Options) calls(bursts int) tolerance {
	shortest := o.leased().Target / 2 // shortest time between two calls of a process
	late := float64(timerGrain) / float64(shortest+timerGrain)
	extra := callsMore + callsPerBurst*float64(bursts)
	return tolerance{callsWithin + late, callsWithin, extra / o.Scenario.Duration.Seconds()}
}

// bursts returns the number of requests that follow a pause of a Target or more, and the largest cost.
func (o Options) bursts() (n int, largest float64) {
	requests, _ := sim.Requests(o.Scenario, -1) // FromScenario returns its error
	target, last := o.leased().Target, time.Duration(-1)
	for q := range requests {
		if last >= 0 && q.At-last >= target {
			n++
		}
		last, largest = q.At, max(largest, float64(q.Cost))
	}
	return n, largest
}

// linkOf returns the distribution of round trips without the server's service time.
func linkOf(seen Quantiles, service time.Duration) sim.DurationDist {
	trip := max(time.Duration(seen.P50)-service, time.Microsecond)
	slow := max(time.Duration(seen.P99)-service, trip)
	return sim.DurationDist{Dist: sim.Dist{Kind: sim.DistLognormal, P: float64(trip), Q: float64(slow)}}
}
