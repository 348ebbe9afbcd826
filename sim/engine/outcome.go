package engine

import "github.com/yuzhi-go/yuzhi/sim/report"

// This file records the series of a replication, and its figures at the end.

func (r *replication) counts() report.Counts {
	return report.Counts{
		Offered: r.books.offered, Admitted: r.books.tally.Admitted,
		Central: r.books.centralServed(), RoundTrips: r.network.trips,
	}
}

// warm ends the warm-up: all counts start again.
func (r *replication) warm() {
	r.recorder.Warm(r.counts())
	r.books.warm(r.fleet.entries.all)
	r.network.warm()
	r.redis.warm()
}

// sample adds a point to the series.
func (r *replication) sample() {
	levels := report.Levels{Held: r.fleet.held(), Running: r.fleet.running}
	if b := *r.redis.place(0); b != nil {
		levels.Level, levels.Ledger = b.Level(), b.Ledger()
	}
	r.recorder.Add(r.counts(), levels)
	r.books.point()
	if next := r.time.now + r.recorder.Step; next < int64(r.s.Duration) {
		r.time.at(next, evSample, 0)
	}
}

func (r *replication) outcome() report.Outcome {
	b, seconds := &r.books, (r.s.Duration - r.s.Warmup).Seconds()
	b.spans.End(int64(r.s.Duration), b.count())
	b.turn(report.Settled)
	shares := b.spans.Shares(0)
	own, settled := r.compared(&b.score, shares, r.network.trips)
	o := report.Outcome{Seed: r.seed, Requests: b.requests, Most: r.fleet.most, Settled: settled,
		Series: r.recorder.Series}
	o.Figures = report.Figures{
		Offered: figure(b.offered), CentralAdmitted: figure(b.centralServed()),
		Admitted: own.Admitted, AdmittedVsCentral: own.AdmittedVsCentral, BoundExceededBy: own.BoundExceededBy,
		FalseRejectRatio: own.FalseRejectRatio, StartStock: own.StartStock, FaultStock: own.FaultStock,
		SwappedRatio: own.SwappedRatio, RoundTripsPerS: own.RoundTripsPerS,
		Jain: own.Jain, WorstShare: own.WorstShare,
		CallsPerS: figure(float64(r.network.calls()) / seconds),
		RedisCPU:  figure(float64(r.redis.cpu()) / 1e9 / seconds),
		Stranded:  figure(r.recorder.Stranded()), Burnt: figure(b.burnt(r.fleet.entries.all) - b.burntBefore),
		Degraded: figure(b.degraded), Shadowed: figure(b.shadowed),
		Charged: figure(b.charged), Refunded: figure(b.refunded),
		WaitMsP50: figure(b.waits.Quantile(50)), WaitMsP99: figure(b.waits.Quantile(99)),
		WaitMsMax: figure(b.waits.Quantile(100)), DeniedWaitMsP99: figure(b.denials.Quantile(99)),
	}
	for k, c := range b.rivals {
		its, _ := r.compared(&c.score, b.spans.Shares(1+k), c.trips())
		if c.remote != nil {
			its.Remote = true
			its.RedisCPU = figure(float64(c.remote.cpu()) / 1e9 / seconds)
			its.WaitMsP50, its.WaitMsP99 = figure(c.remote.waits.Quantile(50)), figure(c.remote.waits.Quantile(99))
		}
		o.Rivals = append(o.Rivals, its)
	}
	for _, c := range b.classes {
		o.Classes = append(o.Classes, report.ClassReport{
			Headroom: c.headroom, Groups: c.groups, Offered: figure(c.offered), Admitted: figure(c.admitted),
			AdmittedRatio: figure(report.Part(c.admitted, c.offered, 1)), Shadowed: figure(c.shadowed),
		})
	}
	for i, p := range r.fleet.processes {
		o.Members = append(o.Members, report.Member{
			Group: p.group.Name, Offered: b.offeredBy[i], Admitted: b.tally.ByProcess[i],
			Share: shares[i], Calls: r.network.ports[i].calls,
		})
	}
	return o
}

// compared returns the figures of the fleet or of a rival. settled reports whether the run has settled.
func (r *replication) compared(
	a *score, shares []float64, trips int64,
) (its report.RivalReport, settled bool) {
	fair := report.Judge(a.tally.ByProcess, shares)
	admitted, rejected, atStart, perFault, settled := a.accuracy.Ratios(r.books.faults, r.s.Stockable())
	return report.RivalReport{
		Admitted:          figure(a.tally.Admitted),
		AdmittedVsCentral: figure(admitted),
		BoundExceededBy:   figure(a.audit.ExceededBy()),
		FalseRejectRatio:  figure(rejected),
		StartStock:        figure(atStart),
		FaultStock:        figure(perFault),
		SwappedRatio:      figure(report.Part(a.tally.Swapped, r.books.centralAdmitted, 0)),
		RoundTripsPerS:    figure(float64(trips) / (r.s.Duration - r.s.Warmup).Seconds()),
		Jain:              figure(fair.Jain),
		WorstShare:        figure(fair.Worst),
	}, settled
}

func figure[T int64 | float64](x T) report.Figure { return report.Figure{Mean: float64(x)} }
