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

// Simulated returns s with the round trips and the service time that a real run measured: the
// simulator needs them as input. They come from the run that is compared, because a machine that is
// busy with a burst of all processes answers ten times as slowly as an idle one.
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

// How far a real fleet may be from the simulated ones. The range of the replications covers the seeds,
// so each tolerance is only for things that the simulator does not know: the other load of the machine,
// and how precise its timers are. help/compare.txt says each one's reason.
const (
	offeredWithin  = 0.01
	admittedWithin = 0.01 // on two cores of which others used half it was 0.04 % of a steady load
	callsWithin    = 0.05 // on the same machine 1 % more to 3 % less
	// timerGrain is how late the timer of an idle Go program on Linux may be. A call that a timer
	// makes comes that much later, and so do all that follow.
	timerGrain = time.Millisecond
	// callsMore is for each process: the call that gives back at the end, and one at the edge of the run.
	callsMore = 2
	// callsPerBurst is for each process and burst: each call of a beginning asks for half as much
	// again as the one before, so that a delay of one round trip is a call less.
	callsPerBurst = 1
	jainWithin    = 0.005
)

// The names of the rows.
const (
	Offered      = "offered"
	Admitted     = "admitted"
	AdmittedPart = "admitted_of_entitlement"
	Calls        = "calls_per_s_and_process"
	Jain         = "jain"
	Exceeded     = "bound_exceeded_by"
)

// Row sets one figure of the real fleet beside the simulated ones.
type Row struct {
	Name      string  `json:"name"`
	Simulated float64 `json:"simulated"` // mean over the replications
	Least     float64 `json:"simulated_least"`
	Most      float64 `json:"simulated_most"`
	Real      float64 `json:"real"`
	Low       float64 `json:"low"` // Real agrees from here
	High      float64 `json:"high"`
	Tolerance string  `json:"tolerance"`
	Agrees    bool    `json:"agrees"`
}

// tolerance is how far a real figure may be from the simulated ones: by these parts of them, and by
// some in either direction.
type tolerance struct {
	fewer, more, some float64
	text              string
}

// Compare sets a real run of o beside the simulation of the same scenario. A real figure agrees
// where it lies in the range of the replications, widened by the tolerance.
func Compare(o Options, simulated sim.Report, real Report) []Row {
	seconds, processes := o.Duration.Seconds(), float64(o.Processes)
	entitled := o.entitlement(o.Duration) * float64(max(o.Keys, 1))
	requests := processes * workers // the last one of each worker may have been due or not
	// A trace is the same for both: its last request may be late.
	if o.Shape == ShapeReplay {
		requests = 0
		for _, q := range o.Trace {
			requests = max(requests, float64(q.Cost))
		}
	}
	offered := tolerance{offeredWithin, offeredWithin, requests, percent(offeredWithin)}
	admitted := tolerance{admittedWithin, admittedWithin, requests, percent(admittedWithin)}
	part := admitted
	part.some /= entitled
	jain := tolerance{some: jainWithin, text: fmt.Sprint(jainWithin)}
	rows := []Row{
		offered.row(Offered, simulated.Offered, 1, float64(real.Offered)),
		admitted.row(Admitted, simulated.Admitted, 1, float64(real.Admitted)),
		part.row(AdmittedPart, simulated.Admitted, entitled, real.AdmittedOfEntitlement),
		o.calls().row(Calls, simulated.RoundTripsPerS, processes, float64(real.RoundTrips)/processes/seconds),
		jain.row(Jain, simulated.Jain, 1, real.Jain),
		tolerance{text: "none"}.row(Exceeded, simulated.BoundExceededBy, 1, float64(real.BoundExceededBy)),
	}
	rows[4].High = min(rows[4].High, 1) // as Jain's index cannot be more
	if o.Shape == ShapeReplay {
		rows = slices.Delete(rows, 4, 5) // the simulator's is of the most popular key, over time
	}
	return rows
}

// row compares one figure, in units of unit.
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

// calls is the tolerance of the calls of one process per second.
func (o Options) calls() tolerance {
	shortest := o.leased().Target / 2 // between two calls of a process: the bucket asks for as much
	late := float64(timerGrain) / float64(shortest+timerGrain)
	t := tolerance{fewer: callsWithin + late, more: callsWithin, some: callsMore}
	t.text = fmt.Sprintf("-%s, +%s", percent(t.fewer), percent(t.more))
	if n := o.bursts(); n > 0 {
		t.some += callsPerBurst * float64(n)
		t.text += fmt.Sprintf(", ±%d a burst", callsPerBurst)
	}
	t.some /= o.Duration.Seconds()
	return t
}

// bursts counts the beginnings of a load that comes in bursts: of a trace, all requests that come a Target or
// more after the one before.
func (o Options) bursts() (n int) {
	if o.Shape == ShapeBursts {
		return int(o.Duration / period)
	}
	for i, target := 1, o.leased().Target; i < len(o.Trace); i++ {
		if o.Trace[i].At-o.Trace[i-1].At >= target {
			n++
		}
	}
	return n
}

func percent(x float64) string { return fmt.Sprintf("%.2g %%", 100*x) }
