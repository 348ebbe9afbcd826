package audit

// backlog brings admissions to a Meter in the order of their moments, where some of them turn out
// only later to have been admissions: tokens drawn for a request that waits count from the moment
// of the draw if the request is admitted, and not at all if it gives up. What was admitted
// meanwhile waits behind them.
//
// The zero value is empty. Its memory is that of the admissions behind the oldest draw that is
// open. One goroutine at a time.
type backlog struct {
	line []moment
	head int
	gone int64 // moments that have left the line
}

// moment is what was drawn or admitted at one time.
type moment struct{ at, admitted, open int64 }

// draw names the tokens that were drawn at one moment. The zero value names none.
type draw int64

// Empty reports whether nothing is open, so that an admission need not wait.
func (b *backlog) Empty() bool { return b.head == len(b.line) }

// Admit puts n admitted tokens in line. Moments come in order of time.
func (b *backlog) Admit(at, n int64) { b.last(at).admitted += n }

// Open puts n tokens in line of which it is not known yet whether they will have been admitted.
func (b *backlog) Open(at, n int64) draw {
	b.last(at).open += n
	return draw(b.gone + int64(len(b.line)-b.head))
}

// last is the moment at, which is the last one in line.
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

// Close says of n open tokens of d whether they were admitted. It panics where so many are not
// open.
func (b *backlog) Close(d draw, n int64, admitted bool) {
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

// Next takes the first moment off the line; false while something of it is open, or where there is
// none.
func (b *backlog) Next() (at, n int64, ok bool) {
	if b.Empty() || b.line[b.head].open > 0 {
		return 0, 0, false
	}
	m := b.line[b.head]
	b.head++
	b.gone++
	return m.at, m.admitted, true
}

// AdmitOpen closes whatever is open as admitted, and returns how many tokens that is.
func (b *backlog) AdmitOpen() (n int64) {
	for i := range b.line[b.head:] {
		m := &b.line[b.head+i]
		n += m.open
		m.admitted, m.open = m.admitted+m.open, 0
	}
	return n
}
