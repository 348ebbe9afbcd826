package live

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/view"
)

// WriteTable writes the report as text: the run, the verdicts, and the figures.
func (r Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(view.Wrap(fmt.Sprintf(format, args...), 80) + "\n")
	}
	line("Redis %s", r.Redis)
	line("limit %s overcommit %d, leases of target %s, TTL %s", r.Limit, r.Overcommit, ofMs(r.TargetMs),
		ofMs(r.TTLMs))
	line("load %s, %s, %.4g s\n", r.Shape, view.Count(len(r.Processes), "process"), float64(r.DurationMs)/1000)
	r.verdicts(line)
	b.WriteString("\n" + r.figures().String())
	t := view.Table{Columns: strings.Split(">process,>admitted,>share,>offered,>round trips,", ",")}
	for i, p := range r.Processes {
		t.Add(strconv.Itoa(i), number(p.Admitted), part(float64(p.Admitted)/float64(max(r.Admitted, 1))),
			number(p.Offered), number(p.RoundTrips), p.Fate)
	}
	b.WriteString("\n" + t.String())
	_, err := io.WriteString(w, b.String())
	return err
}

// embeddedSlow is the median time of a call to an overloaded embedded Redis, which interprets the script anew
// for each call, in some milliseconds.
const embeddedSlow = 20 * time.Millisecond

// verdicts lists the results that the run proves, and the reasons why it does not prove more.
func (r Report) verdicts(line func(format string, args ...any)) {
	if excess := r.BoundExceededBy; excess > 0 {
		line("THE BOUND IS EXCEEDED by %s.", view.Count(excess, "token"))
	} else {
		line("The bound holds in every window of all processes.")
	}
	if c := r.Central; c != nil {
		line("The fleet admitted %s of the requests that a central %s without a network would have "+
			"admitted.", part(c.Part), c.Limiter)
	}
	if r.Overloaded {
		line("THIS MACHINE IS OVERLOADED: the processes got too little CPU time. That lowers the " +
			"admissions, and does not affect the bound.")
	}
	if r.Redis == embedded && r.RoundTripNs.P50 > int64(embeddedSlow) {
		line("THE EMBEDDED REDIS IS TOO SLOW for this number of calls, or this machine has other work: " +
			"the fleet admits less. Use fewer processes, a longer --target, or a real Redis with --redis.")
	}
}

// figures returns the table of the figures.
func (r Report) figures() *view.Table {
	t := &view.Table{Columns: []string{"figure", ">value", "what it is"}}
	t.Add("offered", number(r.Offered), "requests")
	t.Add("admitted", number(r.Admitted), part(r.AdmittedOfEntitlement)+" of "+r.entitled)
	if c := r.Central; c != nil {
		t.Add("central limiter", number(c.Admitted), "admitted of the same requests, by a "+c.Limiter)
	}
	w, verdict := r.WorstWindow, "the bound holds"
	if r.BoundExceededBy > 0 {
		verdict = fmt.Sprintf("EXCEEDED by %d", r.BoundExceededBy)
	}
	t.Add("worst window", number(w.Admitted), fmt.Sprintf("admitted in %s, %s allowed: %s",
		ofMs(w.DurationMs), number(int64(w.Bound)), verdict))
	perSecond := float64(r.RoundTrips) / float64(len(r.Processes)) / (float64(r.DurationMs) / 1000)
	t.Add("round trips", number(r.RoundTrips), tenths(perSecond)+" a second and process")
	for _, took := range []struct {
		name string
		of   Quantiles
	}{{"round trip time", r.RoundTripNs}, {"decision time", r.DecisionNs}, {"requests late by", r.LagNs}} {
		t.Add(took.name, view.Shortly(time.Duration(took.of.P50)),
			"p50; p99 "+view.Shortly(time.Duration(took.of.P99)))
	}
	t.Add("Jain's index", view.Number(math.Round(r.Jain*1e4)/1e4),
		"of the processes that ran all the time; 1 is fair")
	return t
}

func number(n int64) string { return view.Number(float64(n)) }

func tenths(x float64) string { return view.Number(math.Round(10*x) / 10) }

func part(x float64) string { return view.Percent(math.Round(1e4*x) / 1e4) }

func ofMs(ms float64) string { return view.Shortly(time.Duration(ms * float64(time.Millisecond))) }
