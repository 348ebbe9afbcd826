package engine

import "github.com/yuzhi-go/yuzhi/sim/report"

// outcome sums the replication up. The figures are in the order of Figures and RivalReport.
func (w *world) outcome() report.Outcome {
	seconds := (w.s.Duration - w.s.Warmup).Seconds()
	cpu := int64(0)
	for _, s := range w.shards {
		cpu = max(cpu, s.busy-s.left(w))
	}
	offered, weights := make([]int64, len(w.processes)), make([]int64, len(w.processes))
	for i, p := range w.processes {
		offered[i], weights[i] = p.offered, p.group.Weight
	}
	fair := report.FairnessOf(offered, w.tally.ByProcess, weights)
	o := report.Outcome{Seed: w.seed, Requests: w.requests, Most: w.runningMost, Series: w.series.Series}
	var f report.Figures
	set := func(f *report.Figure, x float64) { f.Mean = x }
	set(&f.Offered, float64(w.offered))
	set(&f.Admitted, float64(w.tally.Admitted))
	set(&f.CentralAdmitted, float64(w.centralAdmitted))
	set(&f.AdmittedVsCentral, report.Part(w.tally.Admitted, w.centralAdmitted, 1))
	set(&f.BoundExceededBy, float64(w.audit.exceeded()))
	set(&f.FalseRejectRatio, report.Part(w.tally.FalseRejects, w.centralAdmitted, 0))
	set(&f.SwappedRatio, report.Part(w.tally.Swapped, w.centralAdmitted, 0))
	set(&f.CallsPerS, float64(w.calls)/seconds)
	set(&f.RoundTripsPerS, float64(w.roundTrips)/seconds)
	set(&f.RedisCPU, float64(cpu)/1e9/seconds)
	set(&f.Jain, fair.Jain)
	set(&f.WorstShare, fair.Worst)
	set(&f.Stranded, report.Part(w.held, w.samples, 0))
	set(&f.Burnt, float64(w.burnt()-w.burntBefore))
	set(&f.Degraded, float64(w.degraded))
	set(&f.WaitMsP50, w.waitQuantile(50))
	set(&f.WaitMsP99, w.waitQuantile(99))
	set(&f.WaitMsMax, w.waitQuantile(100))
	o.Figures = report.Means(f.All())
	for _, c := range w.rivals {
		fair := report.FairnessOf(offered, c.tally.ByProcess, weights)
		var r report.RivalReport
		set(&r.Admitted, float64(c.tally.Admitted))
		set(&r.AdmittedVsCentral, report.Part(c.tally.Admitted, w.centralAdmitted, 1))
		set(&r.BoundExceededBy, float64(c.audit.exceeded()))
		set(&r.FalseRejectRatio, report.Part(c.tally.FalseRejects, w.centralAdmitted, 0))
		set(&r.SwappedRatio, report.Part(c.tally.Swapped, w.centralAdmitted, 0))
		set(&r.RoundTripsPerS, float64(c.RoundTrips()-c.tripsWarm)/seconds)
		set(&r.Jain, fair.Jain)
		set(&r.WorstShare, fair.Worst)
		o.Rivals = append(o.Rivals, report.Means(r.All()))
	}
	for i, p := range w.processes {
		o.Members = append(o.Members, report.Member{Group: p.group.Name, Offered: p.offered, Admitted: w.tally.ByProcess[i], Share: fair.Shares[i], Calls: p.calls})
	}
	return o
}
