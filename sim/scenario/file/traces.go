package file

import (
	"fmt"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
	"github.com/yuzhi-go/yuzhi/sim/scenario/trace"
)

// loadTraces reads the traces that workloads of s name and that are not there yet. A digest in the
// scenario says which trace was meant; another one is an error.
func loadTraces(s *scenario.Scenario, find func(file string) string, bad func(path, message string)) {
	load := func(path string, w *scenario.Workload) {
		if w == nil || w.File == "" || w.Trace != nil {
			return
		}
		t, err := trace.ReadFile(find(w.File))
		if err != nil {
			bad(path+".file", err.Error())
			return
		}
		sum := trace.Digest(t)
		if w.TraceSum != "" && w.TraceSum != sum {
			bad(path+".trace_sum", fmt.Sprintf("is %q, but that of %s is %s: it is not the same trace any more", w.TraceSum, w.File, sum))
			return
		}
		w.Trace, w.TraceSum = t, sum
	}
	load("workload", &s.Workload)
	for i := range s.Groups {
		load(fmt.Sprintf("groups[%d].workload", i), s.Groups[i].Workload)
	}
}
