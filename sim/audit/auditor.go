package audit

// An Auditor holds every admission to the keys of one limiter against the bounds of each key, over
// all windows. A token counts at the moment at which it left a pool, or at which the bucket granted
// it to a request that waited. Tokens of a request that was not admitted in the end do not count.
//
// Times are in nanoseconds, and never decrease. One goroutine at a time.
type Auditor struct {
	bounds   []Bound
	meters   []*Meter   // of key k and bound i at k*len(bounds)+i; nil before the first admission
	backlogs []*backlog // of each key; nil where nothing was ever drawn for a request that waited
	admitted int64
}

// Drawn is N tokens of one draw whose fate is open.
type Drawn struct {
	draw draw
	N    int64
}

// Part is n of d's tokens.
func (d Drawn) Part(n int64) Drawn { return Drawn{d.draw, n} }

// NewAuditor is for so many keys, each of which has all these bounds.
func NewAuditor(bounds []Bound, keys int) Auditor {
	return Auditor{bounds: bounds, meters: make([]*Meter, keys*len(bounds)), backlogs: make([]*backlog, keys)}
}

// instant is the time to audit by. A bucket counts in microseconds, so two admissions within one
// are simultaneous to it.
func instant(now int64) int64 { return now / 1000 * 1000 }

// Admit books n tokens that are admitted now.
func (a *Auditor) Admit(now int64, key int32, n int64) {
	if b := a.backlogs[key]; b != nil && !b.Empty() {
		b.Admit(instant(now), n)
		return
	}
	a.count(instant(now), key, n)
}

// Open books n tokens that are drawn now for a request that waits.
func (a *Auditor) Open(now int64, key int32, n int64) Drawn {
	if n == 0 {
		return Drawn{}
	}
	if a.backlogs[key] == nil {
		a.backlogs[key] = new(backlog)
	}
	return Drawn{a.backlogs[key].Open(instant(now), n), n}
}

// Close says whether tokens that were drawn have been admitted.
func (a *Auditor) Close(key int32, admitted bool, all ...Drawn) {
	for _, d := range all {
		if d.N > 0 {
			a.backlogs[key].Close(d.draw, d.N, admitted)
			a.pass(key)
		}
	}
}

// pass shows the meters of key what is certain.
func (a *Auditor) pass(key int32) {
	for at, n, ok := a.backlogs[key].Next(); ok; at, n, ok = a.backlogs[key].Next() {
		a.count(at, key, n)
	}
}

func (a *Auditor) count(at int64, key int32, n int64) {
	a.admitted += n
	for i, b := range a.bounds {
		m := &a.meters[int(key)*len(a.bounds)+i]
		if *m == nil {
			*m = NewMeter(b)
		}
		(*m).Admit(at, n)
	}
}

// End counts what is still open as admitted, because whoever waits may yet be told so. It returns
// how many tokens that is.
func (a *Auditor) End() (open int64) {
	for key, b := range a.backlogs {
		if b != nil {
			open += b.AdmitOpen()
			a.pass(int32(key))
		}
	}
	return open
}

// Admitted is how many tokens the verdict is about.
func (a *Auditor) Admitted() int64 { return a.admitted }

// ExceededBy is by how many tokens the worst window of all exceeds its bound.
func (a *Auditor) ExceededBy() int64 {
	worst := int64(0)
	for _, m := range a.meters {
		if m != nil {
			worst = max(worst, m.ExceededBy())
		}
	}
	return worst
}
