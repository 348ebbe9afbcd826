package sim

import (
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// auditor holds every admission of one algorithm against promise (1), for each key and limit, over all windows.
type auditor struct {
	limits     []lease.Limit
	overcommit int64
	meters     []*audit.Meter // of key k and limit i at k*len(limits)+i; nil for a key that nobody was admitted to
}

func newAuditor(limits []lease.Limit, overcommit int64, keys int) auditor {
	return auditor{limits: limits, overcommit: overcommit, meters: make([]*audit.Meter, keys*len(limits))}
}

func (a *auditor) meter(key int32, i int) *audit.Meter {
	at := int(key)*len(a.limits) + i
	if a.meters[at] == nil {
		l := a.limits[i]
		a.meters[at] = audit.NewMeter(audit.Bound{Tokens: l.Tokens, Per: l.Per, Burst: l.Capacity(), Overcommit: a.overcommit})
	}
	return a.meters[at]
}

// instant is the time to audit by: a bucket counts in microseconds, so two admissions within one are simultaneous to it.
func instant(now int64) int64 { return now / 1000 * 1000 }

// admit books n tokens at the moment that counts: when they leave a pool, or when the bucket grants them to a request
// that waits.
func (a *auditor) admit(now int64, key int32, n int64) {
	for i := range a.limits {
		a.meter(key, i).Admit(instant(now), n)
	}
}

// credit takes back n tokens that were put back into their pool.
func (a *auditor) credit(now int64, key int32, n int64) {
	for i := range a.limits {
		a.meter(key, i).Credit(instant(now), n, 1)
	}
}

// refund takes back what the bucket has credited.
func (a *auditor) refund(now int64, key int32, i int, units, perToken int64) {
	if units > 0 {
		a.meter(key, i).Credit(instant(now), units, perToken)
	}
}

// exceeded is the excess of the worst window of all.
func (a *auditor) exceeded() int64 {
	worst := int64(0)
	for _, m := range a.meters {
		if m != nil {
			worst = max(worst, m.ExceededBy())
		}
	}
	return worst
}

// tally counts what one algorithm decided, since the warm-up.
type tally struct {
	admitted  int64   // tokens
	byProcess []int64 // tokens of the most popular key
	// credit is, of each key, the tokens of requests that were admitted and that the central bucket denied, less those that
	// a denied one has been set off against.
	credit                []int64
	swapped, falseRejects int64
}

func newTally(processes, keys int) tally {
	return tally{byProcess: make([]int64, processes), credit: make([]int64, keys)}
}

func (t *tally) reset() {
	clear(t.byProcess)
	clear(t.credit)
	*t = tally{byProcess: t.byProcess, credit: t.credit}
}

// decided books one decision beside the central bucket's.
func (t *tally) decided(r *request, ok bool) {
	switch {
	case ok:
		t.admitted += r.n
		if r.key == 0 {
			t.byProcess[r.p.index] += r.n
		}
		if !r.central {
			t.credit[r.key] += r.n
		}
	case r.central:
		swapped := min(t.credit[r.key], r.n)
		t.credit[r.key] -= swapped
		t.swapped += swapped
		t.falseRejects += r.n - swapped
	}
}
