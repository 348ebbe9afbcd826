package report

// A fleet owes one central bucket a stock: tokens that lie in leases, and that the bucket keeps for
// others, are locked away once, when the fleet begins and after each fault, and whoever asks for
// them then is rejected. That is a number of tokens, however long the run is. What a fleet rejects
// afterwards goes on, and is a ratio.

// Phase is a part of a run.
type Phase int

const (
	Starting   Phase = iota // until the stock is built
	Recovering              // from a fault until the stock is built again
	Settled                 // the rest: the steady state
	phases
)

// Decided is the tokens that were decided on so far, by one central bucket and by one algorithm;
// Credit is those in whose place others may still be rejected (see Tally).
type Decided struct{ Central, Admitted, FalseRejects, Credit int64 }

func (d Decided) plus(o Decided) Decided {
	return Decided{d.Central + o.Central, d.Admitted + o.Admitted, d.FalseRejects + o.FalseRejects, d.Credit + o.Credit}
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
}

// stock is how many tokens the central bucket has admitted and the algorithm has not.
func (a *Accuracy) stock(now Decided) int64 { return max(0, a.before+now.Central-now.Admitted) }

// Turn ends a phase. Whoever was rejected in the place of somebody who was admitted in an earlier
// one was rejected falsely as far as this phase goes. What the algorithm admits of its stock in the
// steady state is no better than the central bucket, which has admitted it before, so it does not
// count.
func (a *Accuracy) Turn(to Phase, now Decided) {
	d := now.minus(a.began)
	d.FalseRejects += max(0, -d.Credit)
	if a.phase == Settled {
		d.Admitted -= max(0, a.stock(a.began)-a.stock(now))
	}
	a.of[a.phase] = a.of[a.phase].plus(d)
	a.phase, a.began = to, now
}

// Warm is for the end of the warm-up, when the counts begin anew after having been was.
func (a *Accuracy) Warm(was Decided) {
	*a = Accuracy{phase: a.phase, before: was.Central - was.Admitted, began: Decided{Credit: was.Credit}}
}

// Ratios are those of the steady state, of what the central bucket admitted then: what was admitted
// and what was falsely rejected; and the tokens that were falsely rejected beyond that, at the
// start and in the mean of so many faults. A run that has no steady state has no stock: it counts
// whole.
func (a *Accuracy) Ratios(faults int) (admitted, rejected, atStart, perFault float64) {
	steady := a.of[Settled]
	if steady.Central == 0 {
		all := steady.plus(a.of[Starting]).plus(a.of[Recovering])
		return Part(all.Admitted, all.Central, 1), Part(all.FalseRejects, all.Central, 0), 0, 0
	}
	rejected = Part(steady.FalseRejects, steady.Central, 0)
	beyond := func(d Decided) float64 {
		return max(0, float64(d.FalseRejects)-float64(rejected*float64(d.Central)))
	}
	return Part(steady.Admitted, steady.Central, 1), rejected, beyond(a.of[Starting]),
		beyond(a.of[Recovering]) / float64(max(1, faults))
}
