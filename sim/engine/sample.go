package engine

import "github.com/yuzhi-go/yuzhi/sim/report"

// seriesPoints is how many points a Series has: more than a picture shows.
const seriesPoints = 240

// recorder takes a point of the series in equal steps, and sums up what is held.
type recorder struct {
	report.Series
	step int64
	last recorded
}

// recorded is what the step before ended with.
type recorded struct{ offered, admitted, central, roundTrips int64 }

func (r *recorder) start(w *world) {
	r.step = max(1, int64(w.s.Duration)/seriesPoints)
	r.StepS = float64(r.step) / 1e9
	w.at(r.step, evSample, 0)
}

// restart is for when the counts, which were was, begin anew.
func (r *recorder) restart(was recorded) {
	r.last = recorded{
		r.last.offered - was.offered, r.last.admitted - was.admitted, r.last.central - was.central, r.last.roundTrips - was.roundTrips,
	}
}

func (w *world) recorded() recorded {
	return recorded{w.offered, w.tally.Admitted, w.centralAdmitted, w.roundTrips}
}

// sample takes a point.
func (w *world) sample() {
	r := &w.series
	held := int64(0)
	for _, e := range w.entries {
		if e.alive {
			held += e.holder.Pool.Held()
		}
	}
	w.held += held
	w.samples++
	now := w.recorded()
	rate := func(now, last int64) float64 { return float64(now-last) / r.StepS }
	r.Offered = append(r.Offered, rate(now.offered, r.last.offered))
	r.Admitted = append(r.Admitted, rate(now.admitted, r.last.admitted))
	r.Central = append(r.Central, rate(now.central, r.last.central))
	r.RoundTrips = append(r.RoundTrips, rate(now.roundTrips, r.last.roundTrips))
	level, ledger := int64(0), int64(0)
	if b := w.bucketOf(0); b != nil {
		level, ledger = b.Level(), b.Ledger()
	}
	r.Level = append(r.Level, float64(level))
	r.Ledger = append(r.Ledger, float64(ledger))
	r.Held = append(r.Held, float64(held))
	r.Running = append(r.Running, float64(w.running))
	r.last = now
	if next := w.now + r.step; next < int64(w.s.Duration) {
		w.at(next, evSample, 0)
	}
}
