package live

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// How far a real fleet may be from the simulated ones. What a seed decides is in the range of the replications, so each
// tolerance is only for what the simulator does not know: what else the machine does, and how precise its timers are.
const (
	// offeredWithin: a process asks for what is due when it gets the processor, and drops what is more than 50 ms late.
	// A real fleet that offered less was starved, and nothing else can be compared.
	offeredWithin = 0.01
	// admittedWithin: a process that runs late has a token less to spend, or leaves it for longer; both were within 0.8 %
	// on an idle machine, in the bursts more than elsewhere.
	admittedWithin = 0.01
	// callsWithin is for delays of the processor, which make calls fewer, or tokens run out earlier than foreseen.
	callsWithin = 0.05
	// timerGrain is how late the timer of an idle Go program on Linux may be. The simulator's timers are exact. A call that a
	// timer makes comes that much later, and so do all that follow.
	timerGrain = time.Millisecond
	// callsMore is for each process: the call that gives back at the end, and one at the edge of the run.
	callsMore = 2
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

// Compare sets a real run beside the simulation of the same scenario. Real values agree where they lie in the range of the
// replications, widened by the tolerance.
func Compare(o Options, simulated sim.Report, real Report) []Row {
	seconds, processes := o.Duration.Seconds(), float64(o.Processes)
	entitled := o.entitlement()
	requests := processes * workers // each worker's last one may be due or not
	var rows []Row
	add := func(name string, f sim.Figure, unit, got float64, tolerance string, widen func(least, most float64) (low, high float64)) {
		values := f.Values
		if len(values) == 0 {
			values = []float64{f.Mean}
		}
		r := Row{Name: name, Simulated: f.Mean / unit, Least: slices.Min(values) / unit, Most: slices.Max(values) / unit, Real: got, Tolerance: tolerance}
		r.Low, r.High = widen(r.Least, r.Most)
		r.Agrees = got >= r.Low && got <= r.High
		rows = append(rows, r)
	}
	within := func(part, more float64) func(float64, float64) (float64, float64) {
		return func(least, most float64) (float64, float64) {
			return min(least*(1-part), least-more), max(most*(1+part), most+more)
		}
	}
	add(Offered, simulated.Offered, 1, float64(real.Offered), fmt.Sprintf("%.4g %%", 100*offeredWithin), within(offeredWithin, requests))

	tolerance := fmt.Sprintf("%.4g %%", 100*admittedWithin)
	admitted, part := within(admittedWithin, requests), within(admittedWithin, requests/entitled)
	add(Admitted, simulated.Admitted, 1, float64(real.Admitted), tolerance, admitted)
	add(AdmittedPart, simulated.Admitted, entitled, real.AdmittedOfEntitlement, tolerance, part)

	shortest := o.target() / 2 // between two calls of a process: the bucket asks for as much
	late := 1 - float64(shortest)/float64(shortest+timerGrain)
	add(Calls, simulated.RoundTripsPerS, processes, float64(real.RoundTrips)/processes/seconds,
		fmt.Sprintf("-%.2g %%, +%.2g %%", 100*(late+callsWithin), 100*callsWithin), func(least, most float64) (float64, float64) {
			return least*(1-late-callsWithin) - callsMore/seconds, most*(1+callsWithin) + callsMore/seconds
		})
	add(Jain, simulated.Jain, 1, real.Jain, fmt.Sprint(jainWithin), func(least, most float64) (float64, float64) {
		return least - jainWithin, min(most+jainWithin, 1)
	})
	add(Exceeded, simulated.BoundExceededBy, 1, float64(real.BoundExceededBy), "none", within(0, 0))
	return rows
}

// ToleranceHelp says what Compare tolerates, and why.
func ToleranceHelp() string {
	return fmt.Sprintf(`The two agree where the real figures are in the range of the
simulated replications, widened by what the simulator cannot know:

  offered              %.4g %%: less has been asked by processes that did not get the processor
  admitted             %.4g %%: processes that run late spend their tokens late
  lease calls/s        %.4g %% for the same reason, and fewer by what timers that are %v late make of half a target
  Jain's index         %v, a standard deviation of %.2g %% between processes
  bound exceeded by    nothing: it is 0 in both
`, 100*offeredWithin, 100*admittedWithin, 100*callsWithin, timerGrain, jainWithin, 100*math.Sqrt(jainWithin))
}
