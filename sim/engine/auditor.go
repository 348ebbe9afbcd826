package engine

import (
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// auditor holds every admission of one algorithm against promise (1), for each key and limit, over
// all windows. A token counts at the moment at which it left a pool, or at which the bucket granted
// it to a request that waited; one of a request that was not admitted in the end does not count.
type auditor struct {
	limits     []lease.Limit
	overcommit int64
	meters     []*audit.Meter   // of key k and limit i at k*len(limits)+i; nil for a key that nobody was admitted to
	backlogs   []*audit.Backlog // of each key; nil where nothing was ever drawn for a request that waited
	admitted   int64            // tokens that the meters have seen
}

// drawn is n of the tokens of one draw, of whose fate the auditor is still to be told.
type drawn struct {
	draw audit.Draw
	n    int64
}

func newAuditor(limits []lease.Limit, overcommit int64, keys int) auditor {
	return auditor{
		limits: limits, overcommit: overcommit,
		meters: make([]*audit.Meter, keys*len(limits)), backlogs: make([]*audit.Backlog, keys),
	}
}

func (a *auditor) meter(key int32, i int) *audit.Meter {
	at := int(key)*len(a.limits) + i
	if a.meters[at] == nil {
		l := a.limits[i]
		a.meters[at] = audit.NewMeter(audit.Bound{Tokens: l.Tokens, Per: l.Per, Burst: l.Capacity(), Overcommit: a.overcommit})
	}
	return a.meters[at]
}

// instant is the time to audit by: a bucket counts in microseconds, so two admissions within one
// are simultaneous to it.
func instant(now int64) int64 { return now / 1000 * 1000 }

// admit books n tokens that were admitted now.
func (a *auditor) admit(now int64, key int32, n int64) {
	if b := a.backlogs[key]; b != nil && !b.Empty() {
		b.Admit(instant(now), n)
		return
	}
	a.count(instant(now), key, n)
}

// open books n tokens that were drawn now for a request that waits.
func (a *auditor) open(now int64, key int32, n int64) drawn {
	if n == 0 {
		return drawn{}
	}
	if a.backlogs[key] == nil {
		a.backlogs[key] = new(audit.Backlog)
	}
	return drawn{a.backlogs[key].Open(instant(now), n), n}
}

// close says whether tokens that were drawn have been admitted.
func (a *auditor) close(key int32, d drawn, admitted bool) {
	if d.n == 0 {
		return
	}
	a.backlogs[key].Close(d.draw, d.n, admitted)
	a.pass(key)
}

// closeAll is close for several.
func (a *auditor) closeAll(key int32, all []drawn, admitted bool) {
	for _, d := range all {
		a.close(key, d, admitted)
	}
}

// pass shows the meters of key what is certain.
func (a *auditor) pass(key int32) {
	for at, n, ok := a.backlogs[key].Next(); ok; at, n, ok = a.backlogs[key].Next() {
		a.count(at, key, n)
	}
}

func (a *auditor) count(at int64, key int32, n int64) {
	a.admitted += n
	for i := range a.limits {
		a.meter(key, i).Admit(at, n)
	}
}

// end counts what is still open as admitted, for whoever waits may yet be told so. It returns how
// many tokens that is.
func (a *auditor) end() (open int64) {
	for key, b := range a.backlogs {
		if b != nil {
			open += b.AdmitOpen()
			a.pass(int32(key))
		}
	}
	return open
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
