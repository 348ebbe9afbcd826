package live

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// How far a real fleet may be from the simulated ones. What a seed decides is in the range of the
// replications, so each tolerance is only for what the simulator does not know: what else the
// machine does, and how precise its timers are.
const (
	// offeredWithin: a process asks for what is due when it gets the processor, and drops what is
	// more than 50 ms late. A real fleet that offered less was starved, and nothing else can be
	// compared.
	offeredWithin = 0.01
	// admittedWithin: a process that runs late leaves its tokens longer, and the bucket full. On
	// two cores of which others used half it was 0.04 % of a steady load.
	admittedWithin = 0.01
	// callsWithin: a process that runs late spends its tokens in lumps, which run out earlier or
	// later than foreseen. On the same machine calls were 1 % more to 3 % less.
	callsWithin = 0.05
	// timerGrain is how late the timer of an idle Go program on Linux may be. The simulator's
	// timers are exact. A call that a timer makes comes that much later, and so do all that follow:
	// 10 % fewer calls where they are 5 ms apart.
	timerGrain = time.Millisecond
	// callsMore is for each process: the call that gives back at the end, and one at the edge of
	// the run.
	callsMore = 2
	// callsPerBurst is for each process and burst: each call of a beginning asks for half as much
	// again as the one before, so that a delay of one round trip is a call less.
	callsPerBurst = 1
	// jainWithin: 0.005 is a standard deviation of 7 % between the processes' admissions.
	jainWithin = 0.005
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

// Compare sets a real run of o beside the simulation of the same scenario. A real figure agrees
// where it lies in the range of the replications, widened by the tolerance.
func Compare(o Options, simulated sim.Report, real Report) []Row {
	seconds, processes, entitled := o.Duration.Seconds(), float64(o.Processes), o.entitlement()
	requests := processes * workers // the last one of each worker may have been due or not
	fewer, more, calls := o.callTolerance()
	rows := []Row{
		row(Offered, simulated.Offered, 1, float64(real.Offered), percent(offeredWithin), offeredWithin, offeredWithin, requests),
		row(Admitted, simulated.Admitted, 1, float64(real.Admitted), percent(admittedWithin), admittedWithin, admittedWithin, requests),
		row(AdmittedPart, simulated.Admitted, entitled, real.AdmittedOfEntitlement, percent(admittedWithin), admittedWithin, admittedWithin, requests/entitled),
		row(Calls, simulated.RoundTripsPerS, processes, float64(real.RoundTrips)/processes/seconds, calls, fewer, more, o.callsMore()/seconds),
		row(Jain, simulated.Jain, 1, real.Jain, fmt.Sprint(jainWithin), 0, 0, jainWithin),
		row(Exceeded, simulated.BoundExceededBy, 1, float64(real.BoundExceededBy), "none", 0, 0, 0),
	}
	for i := range rows {
		if rows[i].Name == Jain {
			rows[i].High = min(rows[i].High, 1) // as it cannot be more
		}
	}
	return rows
}

// row compares one figure, in units of unit. It may be less and more by these parts and by some in
// either direction.
func row(name string, f sim.Figure, unit, real float64, tolerance string, less, more, some float64) Row {
	values := f.Values
	if len(values) == 0 { // as in a report that was read from a file
		values = []float64{f.Mean}
	}
	r := Row{Name: name, Simulated: f.Mean / unit, Least: slices.Min(values) / unit, Most: slices.Max(values) / unit, Real: real, Tolerance: tolerance}
	r.Low, r.High = r.Least*(1-less)-some, r.Most*(1+more)+some
	r.Agrees = real >= r.Low && real <= r.High
	return r
}

// callTolerance is by which parts the calls of a process may be fewer or more, and both in words.
func (o Options) callTolerance() (fewer, more float64, words string) {
	shortest := o.target() / 2 // between two calls of a process: the bucket asks for as much
	fewer, more = callsWithin+float64(timerGrain)/float64(shortest+timerGrain), callsWithin
	words = fmt.Sprintf("-%s, +%s", percent(fewer), percent(more))
	if o.Shape == ShapeBursts {
		words += fmt.Sprintf(", ±%d a burst", callsPerBurst)
	}
	return fewer, more, words
}

// callsMore is how many calls of each process may be more or fewer in the whole run.
func (o Options) callsMore() float64 {
	n := float64(callsMore)
	if o.Shape == ShapeBursts {
		n += float64(callsPerBurst) * float64(o.Duration/period)
	}
	return n
}

func percent(x float64) string { return fmt.Sprintf("%.2g %%", 100*x) }

// ToleranceHelp says what Compare tolerates, and why.
func ToleranceHelp() string {
	return fmt.Sprintf(`The two agree where the real figures are in the range of the
simulated replications, widened by what the simulator does not know:

  offered             %s; processes that do not get the processor ask less, and then nothing else can be compared
  admitted            %s; who runs late leaves its tokens longer
  lease calls/s       %s for the same reason, and fewer by what a timer that is %v late makes of half a target;
                      in each burst one call more or less, and two at the edges of the run
  Jain's index        %v, a standard deviation of %s between the processes
  bound exceeded by   nothing; it is 0 in both
`, percent(offeredWithin), percent(admittedWithin), percent(callsWithin), timerGrain, jainWithin, percent(math.Sqrt(jainWithin)))
}
