package engine

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// newRun is a replication of s that has not begun; its seed is that of s.
func newRun(t *testing.T, s scenario.Scenario) *replication {
	t.Helper()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	s = s.Defaults()
	w, err := newReplication(&s, s.Seed)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// simulate runs one replication of s to its end.
func simulate(t *testing.T, s scenario.Scenario) *replication {
	t.Helper()
	w := newRun(t, s)
	if err := w.run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// watch has see told of every call that a bucket answers.
func watch(w *replication, see func(*call)) {
	book := w.redis.answered
	w.redis.answered = func(c *call, stored bool) {
		see(c)
		book(c, stored)
	}
}

// figure is one of the figures of a replication, by its key.
func figure(w *replication, name string) float64 {
	o := w.outcome()
	for _, n := range o.Figures.All() {
		if n.Name == name {
			return n.Mean
		}
	}
	panic("there is no figure " + name)
}

// regularly is a trace of requests for one token, one in every gap from the beginning to the end.
func regularly(gap, end time.Duration) *scenario.Trace {
	t := &scenario.Trace{}
	for at := time.Duration(0); at < end; at += gap {
		t.Requests = append(t.Requests, scenario.TraceRequest{At: at, Cost: 1})
	}
	return t
}

// asJSON is a report as others get it, without what depends on the machine.
func asJSON(t *testing.T, r report.Report) []byte {
	t.Helper()
	r.Machine = report.Machine{}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// reported is what a Runner says about s.
func reported(t *testing.T, s scenario.Scenario, parallel int) report.Report {
	t.Helper()
	r, err := Runner{Parallel: parallel}.Run(t.Context(), s)
	if err != nil {
		t.Fatalf("%v\n%+v", err, s)
	}
	return r
}
