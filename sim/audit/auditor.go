package audit

// An Auditor compares the admissions for the keys of one limiter with the bounds of each key, over all
// windows. A token counts from the time at which it left a pool. A token that the bucket granted to a waiting
// request counts from the time of the grant, unless the request was denied in the end. Times are in
// nanoseconds, and never decrease for one key.
type Auditor struct {
	bounds   []Bound
	meters   []*Meter   // one meter per key k and bound i, at k*len(bounds)+i; nil before the first admission
	backlogs []*backlog // one per key; nil if no waiting request drew tokens
	admitted int64
}

// Drawn is N tokens, granted at one time, whose admission is not yet certain.
type Drawn struct {
	draw draw
	N    int64
}

// Part returns n of the tokens of d.
func (d Drawn) Part(n int64) Drawn { return Drawn{d.draw, n} }

// NewAuditor returns an Auditor for a number of keys, each with all bounds.
func NewAuditor(bounds []Bound, keys int) Auditor {
	return Auditor{bounds: bounds, meters: make([]*Meter, keys*len(bounds)), backlogs: make([]*backlog, keys)}
}

// microsecond rounds a time down, as a bucket does: admissions within one microsecond are simultaneous.
func microsecond(now int64) int64 { return now / 1000 * 1000 }

// Admit records n tokens that are admitted now.
func (a *Auditor) Admit(now int64, key int32, n int64) {
	at := microsecond(now)
	if b := a.backlogs[key]; b != nil && !b.empty() {
		b.last(at).admitted += n
		return
	}
	a.count(key, moment{at: at, admitted: n})
}

// Refund records n tokens that the bucket credits now, each of which is a new permit.
func (a *Auditor) Refund(now int64, key int32, n int64) { a.book(now, key, 0, n) }

// Charge records n tokens that were used without a permit and are reported to the bucket now. They may exceed
// the bounds until n tokens have been refilled, or have left the window.
func (a *Auditor) Charge(now int64, key int32, n int64) { a.book(now, key, n, 0) }

func (a *Auditor) book(now int64, key int32, charged, refunded int64) {
	at := microsecond(now)
	if b := a.backlogs[key]; b != nil && !b.empty() {
		m := b.last(at)
		m.charged += charged
		m.refunded += refunded
		return
	}
	a.count(key, moment{at: at, charged: charged, refunded: refunded})
}

// Open records n tokens that the bucket grants now to a waiting request.
func (a *Auditor) Open(now int64, key int32, n int64) Drawn {
	if n == 0 {
		return Drawn{}
	}
	if a.backlogs[key] == nil {
		a.backlogs[key] = new(backlog)
	}
	return Drawn{a.backlogs[key].open(microsecond(now), n), n}
}

// Close records whether drawn tokens were admitted.
func (a *Auditor) Close(key int32, admitted bool, all ...Drawn) {
	for _, d := range all {
		if d.N > 0 {
			a.backlogs[key].close(d.draw, d.N, admitted)
			a.pass(key)
		}
	}
}

// pass counts in the meters the moments of key that have become certain.
func (a *Auditor) pass(key int32) {
	for m, ok := a.backlogs[key].next(); ok; m, ok = a.backlogs[key].next() {
		a.count(key, m)
	}
}

// count counts the admissions, charges and refunds of the moment m.
func (a *Auditor) count(key int32, m moment) {
	a.admitted += m.admitted
	for i := range a.bounds {
		k := int(key)*len(a.bounds) + i
		if a.meters[k] == nil {
			a.meters[k] = NewMeter(a.bounds[i])
		}
		if m.charged == 0 && m.refunded == 0 {
			a.meters[k].Admit(m.at, m.admitted)
		} else {
			a.meters[k].Net(m.at, m.admitted, m.charged, m.refunded)
		}
	}
}

// End counts all open tokens as admitted, because their requests may still be admitted. End returns the
// number of these tokens.
func (a *Auditor) End() (open int64) {
	for key, b := range a.backlogs {
		if b != nil {
			open += b.admitOpen()
			a.pass(int32(key))
		}
	}
	return open
}

// Admitted returns the number of tokens that the audit has counted.
func (a *Auditor) Admitted() int64 { return a.admitted }

// ExceededBy returns the number of tokens by which the worst window of all keys and bounds exceeds its bound.
func (a *Auditor) ExceededBy() int64 {
	worst := int64(0)
	for _, m := range a.meters {
		if m != nil {
			worst = max(worst, m.ExceededBy())
		}
	}
	return worst
}

// backlog keeps the admissions of a key in order of time while some are uncertain. Later admissions wait
// behind the uncertain tokens.
type backlog struct {
	line []moment
	head int
	gone int64 // number of moments removed from the front of the line
}

// moment has sums of the events at one time, whose order is lost.
type moment struct{ at, admitted, open, refunded, charged int64 }

// draw identifies the tokens granted at one moment. The zero draw identifies no tokens.
type draw int64

func (b *backlog) empty() bool { return b.head == len(b.line) }

// open puts n open tokens in line. The times of successive calls must not decrease.
func (b *backlog) open(at, n int64) draw {
	b.last(at).open += n
	return draw(b.gone + int64(len(b.line)-b.head))
}

// last returns the line's last moment, after appending a moment for at if the last has another time.
func (b *backlog) last(at int64) *moment {
	if n := len(b.line); n > b.head && b.line[n-1].at == at {
		return &b.line[n-1]
	}
	if b.head > 64 && b.head > len(b.line)/2 {
		b.line = b.line[:copy(b.line, b.line[b.head:])]
		b.head = 0
	}
	b.line = append(b.line, moment{at: at})
	return &b.line[len(b.line)-1]
}

// close closes n open tokens of d as admitted or not. close panics if fewer tokens are open.
func (b *backlog) close(d draw, n int64, admitted bool) {
	i := int64(d) - b.gone - 1
	if n < 0 || i < 0 || i >= int64(len(b.line)-b.head) || b.line[b.head+int(i)].open < n {
		panic("audit: Close of a draw that is not open")
	}
	m := &b.line[b.head+int(i)]
	m.open -= n
	if admitted {
		m.admitted += n
	}
}

// next takes the first moment off the line. next returns false if the line is empty or that moment is open.
func (b *backlog) next() (m moment, ok bool) {
	if b.empty() || b.line[b.head].open > 0 {
		return moment{}, false
	}
	m = b.line[b.head]
	b.head++
	b.gone++
	return m, true
}

// admitOpen records all tokens that are still open as admitted, and returns their number.
func (b *backlog) admitOpen() (n int64) {
	for i := range b.line[b.head:] {
		m := &b.line[b.head+i]
		n += m.open
		m.admitted, m.open = m.admitted+m.open, 0
	}
	return n
}
