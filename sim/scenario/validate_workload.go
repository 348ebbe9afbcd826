package scenario

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/violation"
)

// workload checks the fields of w. headroom is the largest headroom of the processes that use w.
func (c *checker) workload(path string, w Workload, headroom float64) {
	c.oneOf(path+".kind", w.Kind, WorkloadKinds)
	c.oneOf(path+".verb", w.Verb, Verbs)
	between(c, path+".rate", w.Rate, 0, 1e9)
	between(c, path+".load", w.Load, 0, 1e6)
	if w.Cost.Min < 1 || w.Cost.Max < w.Cost.Min {
		c.Add(path+".cost", w.Cost, "must be 1 or more, in rising order")
	}
	if w.Cost.Shape != 0 && !w.Cost.hasShape() {
		c.Add(path+".cost", w.Cost, "whose shape must be %v to %v", shapeMin, shapeMax)
	}
	c.tokens(path+".actual", w.Actual)
	c.length(path+".hold", w.Hold)
	between(c, path+".deadline", w.Deadline, 1, time.Hour)
	between(c, path+".on", w.On, meanMin, DurationMax)
	between(c, path+".off", w.Off, meanMin, DurationMax)
	between(c, path+".at", w.At, 0, DurationMax)
	between(c, path+".for", w.For, 0, DurationMax)
	between(c, path+".factor", w.Factor, 0, 1e6)
	between(c, path+".every", w.Every, meanMin, DurationMax)
	between(c, path+".within", w.Within, 0, DurationMax)
	if !c.together {
		return
	}
	if w.Rate != 0 && w.Load != 0 {
		c.Add(path+".load", w.Load, "and rate is %s, but both set the number of requests; one of them must be 0",
			violation.Show(w.Rate))
	}
	c.unread(path, w)
	if most, why := c.mostAdmitted(headroom); w.Cost.Max > most {
		c.Add(path+".cost", w.Cost, "must be at most %s", why)
	}
	switch w.Kind {
	case Flash:
		c.duringTheRun(path+".at", w.At)
	case Sync, Boundary:
		between(c, path+".within", w.Within, 0, w.Every)
	case Replay:
		c.trace(path+".file", w, headroom)
	}
}

// readBy lists the fields of a Workload that only some kinds of workload read.
var readBy = map[string][]string{
	"Load": {Constant, Poisson, OnOff, Flash, Sync, Boundary},
	"Rate": {Constant, Poisson, OnOff, Flash, Sync, Boundary},
	"Cost": {Constant, Poisson, OnOff, Flash, Sync, Boundary, Adversary},
	"On":   {OnOff}, "Off": {OnOff},
	"At": {Flash}, "For": {Flash}, "Factor": {Flash},
	"Every": {Sync, Boundary}, "Within": {Sync, Boundary},
	"File": {Replay},
}

// unread reports every field of w that the kind or the verb of w does not read, unless the field has its
// default: a setting without an effect is a mistake.
func (c *checker) unread(path string, w Workload) {
	plain := reflect.ValueOf(Workload{Kind: w.Kind}.Defaults(c.Duration))
	of := reflect.ValueOf(w)
	for i := range of.NumField() {
		name := of.Type().Field(i).Name
		kinds, some := readBy[name]
		if some && !slices.Contains(kinds, w.Kind) && !of.Field(i).Equal(plain.Field(i)) {
			c.Add(path+"."+FieldName(name), of.Field(i).Interface(), "which a workload of kind %s does not read; it "+
				"is for %s", w.Kind, strings.Join(kinds, ", "))
		}
	}
	if w.Verb != VerbWait && w.Deadline != deadlineDefault {
		c.Add(path+".deadline", w.Deadline, "which the verb %s does not read; it is for wait", w.Verb)
	}
}

// trace reports only the first invalid request of a trace.
func (c *checker) trace(path string, w Workload, headroom float64) {
	if w.Trace == nil || len(w.Trace.Requests) == 0 {
		c.Add(path, w.File, "but there is no trace with requests to replay")
		return
	}
	most, why := c.mostAdmitted(headroom)
	var last time.Duration
	over := 0
	for i, r := range w.Trace.Requests {
		if r.At < last || r.Process < 0 || r.Key < 0 || r.Cost < 1 {
			c.Add(path, nil, "request %d of the trace is %+v, must come in order of time, with numbers from 0 "+
				"and a cost of 1 or more", i, r)
			return
		}
		if last = r.At; r.Cost > most {
			over++
		}
	}
	if over > 0 {
		c.Add(path, nil, "%d of the %d requests of the trace cost more than %s", over, len(w.Trace.Requests), why)
	}
	if first := w.Trace.Requests[0].At; first >= c.Duration {
		c.Add(path, nil, "the first request of the trace comes at %v, must be before the end of the run (%v)",
			first, c.Duration)
	}
}

// mostAdmitted returns the largest cost that the limits ever admit to a process with this headroom, and
// describes this bound.
func (c *checker) mostAdmitted(headroom float64) (n int64, why string) {
	n = int64(math.MaxInt64)
	for _, l := range c.Limits {
		n = min(n, l.Capacity()-int64(math.Ceil(float64(l.Capacity())*headroom)))
	}
	what := "the smallest burst"
	if headroom > 0 {
		what += ", less the headroom"
	}
	return n, fmt.Sprintf("%s (%d): more is never admitted", what, n)
}
