package sim

import "math"

// outcome is what one replication showed.
type outcome struct {
	seed     uint64
	requests int64
	most     int // processes that ran at one time
	figures  []float64
	rivals   [][]float64
	series   Series
	members  []Member
}

// outcome sums the replication up. The figures are in the order of Figures and RivalReport.
func (w *world) outcome() outcome {
	seconds := (w.s.Duration - w.s.Warmup).Seconds()
	cpu := int64(0)
	for _, s := range w.shards {
		cpu = max(cpu, s.busy-s.left(w))
	}
	offered, weights := make([]int64, len(w.processes)), make([]int64, len(w.processes))
	for i, p := range w.processes {
		offered[i], weights[i] = p.offered, p.group.Weight
	}
	fair := fairnessOf(offered, w.tally.byProcess, weights)
	o := outcome{seed: w.seed, requests: w.requests, most: w.runningMost, series: w.series.Series}
	var f Figures
	set := func(f *Figure, x float64) { f.Mean = x }
	set(&f.Offered, float64(w.offered))
	set(&f.Admitted, float64(w.tally.admitted))
	set(&f.CentralAdmitted, float64(w.centralAdmitted))
	set(&f.AdmittedVsCentral, part(w.tally.admitted, w.centralAdmitted, 1))
	set(&f.BoundExceededBy, float64(w.audit.exceeded()))
	set(&f.FalseRejectRatio, part(w.tally.falseRejects, w.centralAdmitted, 0))
	set(&f.SwappedRatio, part(w.tally.swapped, w.centralAdmitted, 0))
	set(&f.CallsPerS, float64(w.calls)/seconds)
	set(&f.RoundTripsPerS, float64(w.roundTrips)/seconds)
	set(&f.RedisCPU, float64(cpu)/1e9/seconds)
	set(&f.Jain, fair.jain)
	set(&f.WorstShare, fair.worst)
	set(&f.Stranded, part(w.held, w.samples, 0))
	set(&f.Burnt, float64(w.burnt()-w.burntBefore))
	set(&f.Degraded, float64(w.degraded))
	set(&f.WaitMsP50, w.waitQuantile(50))
	set(&f.WaitMsP99, w.waitQuantile(99))
	set(&f.WaitMsMax, w.waitQuantile(100))
	o.figures = means(f.All())
	for _, c := range w.rivals {
		fair := fairnessOf(offered, c.tally.byProcess, weights)
		var r RivalReport
		set(&r.Admitted, float64(c.tally.admitted))
		set(&r.AdmittedVsCentral, part(c.tally.admitted, w.centralAdmitted, 1))
		set(&r.BoundExceededBy, float64(c.audit.exceeded()))
		set(&r.FalseRejectRatio, part(c.tally.falseRejects, w.centralAdmitted, 0))
		set(&r.SwappedRatio, part(c.tally.swapped, w.centralAdmitted, 0))
		set(&r.RoundTripsPerS, float64(c.RoundTrips()-c.tripsWarm)/seconds)
		set(&r.Jain, fair.jain)
		set(&r.WorstShare, fair.worst)
		o.rivals = append(o.rivals, means(r.All()))
	}
	for i, p := range w.processes {
		o.members = append(o.members, Member{Group: p.group.Name, Offered: p.offered, Admitted: w.tally.byProcess[i], Share: fair.shares[i], Calls: p.calls})
	}
	return o
}

// part is a/b, or of where b is 0.
func part(a, b int64, of float64) float64 {
	if b == 0 {
		return of
	}
	return float64(a) / float64(b)
}

func means(all []Named) []float64 {
	xs := make([]float64, len(all))
	for i, f := range all {
		xs[i] = f.Mean
	}
	return xs
}

// summarise fills each figure from its values in the replications.
func summarise(all []Named, values func(rep, i int) float64, seeds []uint64, quantile float64) {
	for i, f := range all {
		xs := make([]float64, len(seeds))
		for rep := range seeds {
			xs[rep] = values(rep, i)
		}
		*f.Figure = figureOf(xs, seeds, quantile, MoreIsBetter(f.Name))
	}
}

// figureOf is the mean of xs with its interval: Student's t with len(xs)-1 degrees of freedom, whose quantile is given.
func figureOf(xs []float64, seeds []uint64, quantile float64, low bool) Figure {
	n := float64(len(xs))
	total := 0.0
	f := Figure{Worst: xs[0], WorstSeed: seeds[0], Values: xs}
	for i, x := range xs {
		total += x
		if low && x < f.Worst || !low && x > f.Worst {
			f.Worst, f.WorstSeed = x, seeds[i]
		}
	}
	f.Mean = total / n
	f.Low, f.High = f.Mean, f.Mean
	if len(xs) > 1 {
		squares := 0.0
		for _, x := range xs {
			squares += float64((x - f.Mean) * (x - f.Mean))
		}
		half := float64(quantile * math.Sqrt(squares/(n-1)/n))
		f.Low, f.High = f.Mean-half, f.Mean+half
	}
	return f
}
