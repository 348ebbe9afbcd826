package report

// A fleet owes one central bucket a stock: tokens that lie in leases, and that the bucket keeps for
// others, are locked away once, when the fleet starts or grows and after each fault. Requests for them
// are rejected then: a number of tokens, however long the run is. Later rejects are a ratio.

// Phase is a part of a run.
type Phase int

const (
	Starting   Phase = iota // from the start or growth until the stock is built
	Recovering              // from a fault until the stock is built again
	Settled                 // the rest: the steady state
	phases
)

// Decided is the tokens that were decided on so far, by one central bucket and by one algorithm;
// Credit is those in whose place others may still be rejected (see Tally).
type Decided struct{ Central, Admitted, FalseRejects, Credit int64 }

func (d Decided) plus(o Decided) Decided {
	return Decided{d.Central + o.Central, d.Admitted + o.Admitted, d.FalseRejects + o.FalseRejects,
		d.Credit + o.Credit}
}

func (d Decided) minus(o Decided) Decided {
	return d.plus(Decided{-o.Central, -o.Admitted, -o.FalseRejects, -o.Credit})
}

// Accuracy tells the phases of a run apart. The zero value begins with Starting.
type Accuracy struct {
	phase  Phase
	began  Decided // what was decided until this phase
	before int64   // tokens that the central bucket had admitted beyond the algorithm in the warm-up
	of     [phases]Decided
	trend  trend // of this phase
}

// trend is the straight line through points, the credit by what the central bucket has admitted. The
// stock of a fleet goes up and down: two points alone would show a change where there is none.
type trend struct{ n, x, y, xx, xy float64 }

// falls is how much the line falls over the tokens from one point to another.
func (t *trend) falls(over int64) int64 {
	spread := float64(t.n*t.xx) - float64(t.x*t.x)
	if spread <= 0 {
		return 0
	}
	slope := (float64(t.n*t.xy) - float64(t.x*t.y)) / spread
	return max(0, -int64(slope*float64(over)))
}

// Point is for each point of the Series.
func (a *Accuracy) Point(now Decided) {
	d := now.minus(a.began) // small numbers, whose squares are exact for longer
	x, y, t := float64(d.Central), float64(d.Credit), &a.trend
	t.n, t.x, t.y = t.n+1, t.x+x, t.y+y
	t.xx, t.xy = t.xx+float64(x*x), t.xy+float64(x*y)
}

// stock is how many tokens the central bucket has admitted and the algorithm has not.
func (a *Accuracy) stock(now Decided) int64 { return max(0, a.before+now.Central-now.Admitted) }

// Turn ends a phase. A swapped reject in the steady state is false as far as the credit falls. Admissions
// from stock in the steady state do not count: the central bucket has admitted those tokens before.
func (a *Accuracy) Turn(to Phase, now Decided) {
	d := now.minus(a.began)
	if a.phase == Settled {
		d.FalseRejects += a.trend.falls(d.Central)
		d.Admitted -= max(0, a.stock(a.began)-a.stock(now))
	}
	a.of[a.phase] = a.of[a.phase].plus(d)
	a.phase, a.began, a.trend = to, now, trend{}
}

// Warm is for the end of the warm-up, when the counts begin anew after having been was.
func (a *Accuracy) Warm(was Decided) {
	*a = Accuracy{phase: a.phase, before: was.Central - was.Admitted, began: Decided{Credit: was.Credit}}
}

// Ratios are those of the steady state, of what the central bucket admitted then: what was admitted and
// what was falsely rejected; and the tokens that were falsely rejected beyond that, at the start and in
// the mean of the faults. A run that has no steady state counts whole, as do admissions beyond the
// central bucket's: no phase hides them.
//
// A stock is no larger than the stockable tokens that buckets and leases hold. A fleet that rejects
// more at its start has not settled: its start counts as if it went on.
func (a *Accuracy) Ratios(
	faults int, stockable int64,
) (admitted, rejected, atStart, perFault float64, settled bool) {
	steady := a.of[Settled]
	all := steady.plus(a.of[Starting]).plus(a.of[Recovering])
	if steady.Central == 0 {
		return Part(all.Admitted, all.Central, 1), Part(all.FalseRejects, all.Central, 0), 0, 0, true
	}
	beyond := func(d Decided) float64 {
		return max(0, float64(d.FalseRejects)-float64(rejected*float64(d.Central)))
	}
	rejected = Part(steady.FalseRejects, steady.Central, 0)
	atStart = beyond(a.of[Starting])
	if settled = atStart <= float64(stockable); !settled {
		steady = steady.plus(a.of[Starting])
		rejected, atStart = Part(steady.FalseRejects, steady.Central, 0), 0
	}
	admitted = Part(steady.Admitted, steady.Central, 1)
	if whole := Part(all.Admitted-max(0, a.before), all.Central, 1); whole > 1 {
		admitted = max(admitted, whole)
	}
	return admitted, rejected, atStart, beyond(a.of[Recovering]) / float64(max(1, faults)), settled
}
