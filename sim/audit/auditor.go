package audit

import (
	"math"
	"slices"
)

// An Auditor compares the admissions for the keys of one limiter with the bounds of each key, over all
// windows. A token counts from the time at which it left a pool, or at which the bucket granted it to a
// waiting request, unless that request was denied in the end.
//
// Times are in nanoseconds, and never decrease for one key. Only one goroutine may use it at a time.
type Auditor struct {
	bounds   []Bound
	meters   []*Meter   // one meter per key k and bound i, at k*len(bounds)+i; nil before the first admission
	backlogs []*backlog // one per key; nil if no tokens were drawn for a waiting request
	clocks   []int64    // one per key: the server's clock as last passed to Clock; nil before
	admitted int64
}

// Drawn is N tokens of one draw that are not yet known to be admitted.
type Drawn struct {
	draw draw
	N    int64
}

// Part returns n of d's tokens.
func (d Drawn) Part(n int64) Drawn { return Drawn{d.draw, n} }

// NewAuditor returns an Auditor for that many keys, each with all these bounds.
func NewAuditor(bounds []Bound, keys int) Auditor {
	return Auditor{bounds: bounds, meters: make([]*Meter, keys*len(bounds)), backlogs: make([]*backlog, keys)}
}

// Clock records that the bucket of key has read its server's clock. Calendars use these times from the first
// call on, and the auditor's times before: this serves servers whose clocks are set. A bucket's clock is
// never set back.
func (a *Auditor) Clock(key int32, server int64) {
	if a.clocks == nil {
		a.clocks = slices.Repeat([]int64{math.MinInt64}, len(a.backlogs))
	}
	a.clocks[key] = max(a.clocks[key], server)
}

// times returns the time for the audit, and the server's. A bucket counts in microseconds, so two admissions
// within one microsecond are simultaneous for it.
func (a *Auditor) times(now int64, key int32) (at, server int64) {
	at = now / 1000 * 1000
	if a.clocks == nil {
		return at, at
	}
	return at, a.clocks[key]
}

// Admit books n tokens that are admitted now.
func (a *Auditor) Admit(now int64, key int32, n int64) {
	at, server := a.times(now, key)
	if b := a.backlogs[key]; b != nil && !b.empty() {
		b.last(at, server).admitted += n
		return
	}
	a.count(at, server, key, n)
}

// Refund books n tokens that the bucket credits now, each of which is a new permit.
func (a *Auditor) Refund(now int64, key int32, n int64) { a.book(now, key, 0, n) }

// Charge books n tokens that were used without a permit and are reported to the bucket now. They are owed,
// and allowed beyond the bounds, until as many have flowed in or have left the window.
func (a *Auditor) Charge(now int64, key int32, n int64) { a.book(now, key, n, 0) }

func (a *Auditor) book(now int64, key int32, charged, refunded int64) {
	at, server := a.times(now, key)
	if b := a.backlogs[key]; b != nil && !b.empty() {
		m := b.last(at, server)
		m.charged += charged
		m.refunded += refunded
		return
	}
	a.settle(key, moment{at: at, server: server, charged: charged, refunded: refunded})
}

// Open books n tokens that are drawn now for a waiting request.
func (a *Auditor) Open(now int64, key int32, n int64) Drawn {
	if n == 0 {
		return Drawn{}
	}
	if a.backlogs[key] == nil {
		a.backlogs[key] = new(backlog)
	}
	at, server := a.times(now, key)
	return Drawn{a.backlogs[key].open(at, server, n), n}
}

// Close says whether drawn tokens were admitted.
func (a *Auditor) Close(key int32, admitted bool, all ...Drawn) {
	for _, d := range all {
		if d.N > 0 {
			a.backlogs[key].close(d.draw, d.N, admitted)
			a.pass(key)
		}
	}
}

// pass shows the meters of key the moments that are certain.
func (a *Auditor) pass(key int32) {
	for m, ok := a.backlogs[key].next(); ok; m, ok = a.backlogs[key].next() {
		if m.refunded == 0 && m.charged == 0 {
			a.count(m.at, m.server, key, m.admitted)
		} else {
			a.settle(key, m)
		}
	}
}

func (a *Auditor) count(at, server int64, key int32, n int64) {
	a.admitted += n
	for i := range a.bounds {
		m := a.meters[int(key)*len(a.bounds)+i]
		if m == nil {
			m = a.meter(key, i)
		}
		if m.bound.byServer() {
			m.Admit(server, n)
		} else {
			m.Admit(at, n)
		}
	}
}

// settle counts all events of the moment m.
func (a *Auditor) settle(key int32, m moment) {
	a.admitted += m.admitted
	for i := range a.bounds {
		at := m.at
		if a.bounds[i].byServer() {
			at = m.server
		}
		a.meter(key, i).Net(at, m.admitted, m.charged, m.refunded)
	}
}

// meter returns the Meter of a key's bound i, and makes it if there is none.
func (a *Auditor) meter(key int32, i int) *Meter {
	m := &a.meters[int(key)*len(a.bounds)+i]
	if *m == nil {
		*m = NewMeter(a.bounds[i])
	}
	return *m
}

// End counts open tokens as admitted, because their requests may still be admitted. It returns their number.
func (a *Auditor) End() (open int64) {
	for key, b := range a.backlogs {
		if b != nil {
			open += b.admitOpen()
			a.pass(int32(key))
		}
	}
	return open
}

// Admitted returns the number of tokens that the audit covers.
func (a *Auditor) Admitted() int64 { return a.admitted }

// ExceededBy returns by how many tokens the worst window of all exceeds its bound.
func (a *Auditor) ExceededBy() int64 {
	worst := int64(0)
	for _, m := range a.meters {
		if m != nil {
			worst = max(worst, m.ExceededBy())
		}
	}
	return worst
}

// backlog keeps admissions in order of time while some are uncertain: tokens drawn for a waiting request
// count from the time of the draw if the request is admitted, and not at all if it gives up. Later admissions
// wait behind them.
type backlog struct {
	line []moment
	head int
	gone int64 // number of moments that have left the line
}

// moment sums up the events of one time, without their order.
type moment struct{ at, server, admitted, open, refunded, charged int64 }

// draw identifies the tokens drawn at one moment. The zero value identifies none.
type draw int64

func (b *backlog) empty() bool { return b.head == len(b.line) }

// open puts n open tokens in line. Their times must not decrease.
func (b *backlog) open(at, server, n int64) draw {
	b.last(at, server).open += n
	return draw(b.gone + int64(len(b.line)-b.head))
}

// last returns the moment at the end of the line, which is that of at and server.
func (b *backlog) last(at, server int64) *moment {
	if n := len(b.line); n > b.head && b.line[n-1].at == at && b.line[n-1].server == server {
		return &b.line[n-1]
	}
	if b.head > 64 && b.head > len(b.line)/2 {
		b.line = b.line[:copy(b.line, b.line[b.head:])]
		b.head = 0
	}
	b.line = append(b.line, moment{at: at, server: server})
	return &b.line[len(b.line)-1]
}

// close settles n open tokens of d. It panics if fewer are open.
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

// next takes the first moment off the line. It returns false if the line is empty or tokens of that moment
// are open.
func (b *backlog) next() (m moment, ok bool) {
	if b.empty() || b.line[b.head].open > 0 {
		return moment{}, false
	}
	m = b.line[b.head]
	b.head++
	b.gone++
	return m, true
}

// admitOpen closes all open tokens as admitted, and returns their number.
func (b *backlog) admitOpen() (n int64) {
	for i := range b.line[b.head:] {
		m := &b.line[b.head+i]
		n += m.open
		m.admitted, m.open = m.admitted+m.open, 0
	}
	return n
}
