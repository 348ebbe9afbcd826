package report

// A fleet has a stock: tokens in leases, and tokens that the bucket reserves for other holders. These tokens
// are out of use once, when the fleet starts or grows and after each fault. The fleet then rejects requests
// for the tokens in the stock: a number of tokens that does not grow with the run. Later rejects do grow with
// it.

// Phase is a kind of period in a run.
type Phase int

const (
	Starting   Phase = iota // from the start or growth until the stock is built
	Recovering              // from a fault until the stock is built again
	Settled                 // all other times: the steady state
	phases
)

// Decided counts the tokens decided so far, by one central bucket and by one algorithm. Credit is the
// admitted tokens with which later false rejects may still be swapped (see Tally).
type Decided struct{ Central, Admitted, FalseRejects, Credit int64 }

func (d Decided) plus(o Decided) Decided {
	return Decided{d.Central + o.Central, d.Admitted + o.Admitted, d.FalseRejects + o.FalseRejects,
		d.Credit + o.Credit}
}

func (d Decided) minus(o Decided) Decided {
	return d.plus(Decided{-o.Central, -o.Admitted, -o.FalseRejects, -o.Credit})
}

// Accuracy counts the decisions in each phase of a run. The zero Accuracy begins with Starting.
type Accuracy struct {
	phase  Phase
	began  Decided // the counts at the start of the current phase
	before int64   // tokens that the central bucket had admitted beyond the algorithm in the warm-up
	of     [phases]Decided
	trend  trend // trend of the current phase
}

// trend is the regression line of the credit over the central bucket's admissions. The stock of a fleet goes
// up and down, so the difference of two points alone could show a change that is no trend.
type trend struct{ n, x, y, xx, xy float64 }

// falls returns the credit by which the line falls while the central bucket admits this many tokens.
func (t *trend) falls(tokens int64) int64 {
	spread := float64(t.n*t.xx) - float64(t.x*t.x)
	if spread <= 0 {
		return 0
	}
	slope := (float64(t.n*t.xy) - float64(t.x*t.y)) / spread
	return max(0, -int64(slope*float64(tokens)))
}

// Point adds a point of the Series to the trend.
func (a *Accuracy) Point(now Decided) {
	d := now.minus(a.began) // the squares of small numbers stay exact for longer
	x, y, t := float64(d.Central), float64(d.Credit), &a.trend
	t.n, t.x, t.y = t.n+1, t.x+x, t.y+y
	t.xx, t.xy = t.xx+float64(x*x), t.xy+float64(x*y)
}

// stock returns the number of tokens that the central bucket has admitted and the algorithm has not.
func (a *Accuracy) stock(now Decided) int64 { return max(0, a.before+now.Central-now.Admitted) }

// Turn ends a phase. Swapped rejects in the steady state count as false if the credit falls. Admissions from
// the stock in the steady state do not count: the central bucket has admitted their tokens before.
func (a *Accuracy) Turn(to Phase, now Decided) {
	d := now.minus(a.began)
	if a.phase == Settled {
		d.FalseRejects += a.trend.falls(d.Central)
		d.Admitted -= max(0, a.stock(a.began)-a.stock(now))
	}
	a.of[a.phase] = a.of[a.phase].plus(d)
	a.phase, a.began, a.trend = to, now, trend{}
}

// Warm ends the warm-up: the counts restart from 0. was has the counts at the end of the warm-up.
func (a *Accuracy) Warm(was Decided) {
	*a = Accuracy{phase: a.phase, before: was.Central - was.Admitted, began: Decided{Credit: was.Credit}}
}

// Ratios returns the admitted and the falsely rejected tokens of the steady state, as ratios to the central
// bucket's admissions. atStart and perFault count the falsely rejected tokens beyond the steady state's
// ratio: at the start, and on average per fault. The ratios of a run without a steady state cover the whole
// run. Admissions beyond the central bucket's count in the whole run, so that no phase hides an excess.
//
// A stock is at most stockable, the tokens that buckets and leases can hold. If a fleet rejects more at its
// start, the run has not settled, and its start counts as steady state.
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
