package protocol

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// meterUnit is one token in a meter: fine enough for every rate that the tests use to be whole per
// microsecond.
const meterUnit = 1_000_000_000

// meter audits promise (1) of one limit over ALL windows at once, in integers. With A what was
// admitted and C(t) what a window that begins at t may admit beyond R*w, the largest excess over
// every window that ends now is
//
//	y = max(y - R*dt, -C(now)) + admitted            (Lindley 1952)
//
// and the promise says that y never exceeds 0. C is B + E, but for a while after the limits were
// changed: until the leases of before have ended, windows that begin in that time may admit what
// was leased at the change where that is more. A credited refund is admitted, negatively. A request
// that gave up was never admitted.
//
// Of a sliding window or a calendar it keeps every window that is not over: see starts.
type meter struct {
	limit    lease.Limit
	drain    int64 // units per microsecond
	capacity int64 // B + E, tokens
	y        int64 // units
	at       int64 // microseconds
	peak     int64 // the largest y + C so far, units: what the worst window held beyond R*w
	admitted int64 // tokens, net of refunds
	owed     int64 // units by which the level is below 0

	leased      int64 // tokens, until leasedUntil
	leasedUntil int64

	starts  []start      // of a window
	period  int64        // of a calendar: the present one
	latest  int64        // of a calendar: the last one to which the clock has come
	counts  int64        // of a calendar: the one to which its clock has yet to come, for refunds
	again   []again      // to which the clock has stepped back
	clock   func() int64 // the server's, for a calendar; nil: it shows the time of the meter
	forgets int64        // then what a lost bucket had counted is forgiven; 0: never
}

func newMeter(l lease.Limit, overcommit, now int64) *meter {
	m := &meter{at: now}
	m.set(l, overcommit)
	m.y = -m.capacity * meterUnit
	return m
}

func (m *meter) set(l lease.Limit, overcommit int64) {
	per := exact.Micros(l.Per)
	m.limit, m.capacity = l, l.Capacity()+overcommit
	if m.drain = 0; l.Windowed() || l.Equal(lease.Blocked) { // which refills nothing that counts
		return
	}
	m.drain = l.Tokens * (meterUnit / per)
	if meterUnit%per != 0 {
		m.drain = l.Tokens * meterUnit / per
		if l.Tokens*meterUnit%per != 0 {
			panic(fmt.Sprintf("the meter cannot count %v exactly", l))
		}
	}
}

// change makes the limit another one from now on. Earlier leases, of that number of tokens at most, end by
// until.
func (m *meter) change(now int64, l lease.Limit, overcommit, leased, until int64) {
	m.advance(now)
	m.set(l, overcommit)
	m.leased, m.leasedUntil = leased, until
	for i := range m.starts { // a window that the change falls into has the larger of both
		m.starts[i].most = max(m.starts[i].most, m.capacity*meterUnit)
	}
	m.advance(now)
}

// most is C(now), in units.
func (m *meter) most(now int64) int64 {
	if now < m.leasedUntil {
		return max(m.capacity, m.leased) * meterUnit
	}
	return m.capacity * meterUnit
}

func (m *meter) advance(now int64) {
	if m.limit.Windowed() {
		m.expire(now)
		return
	}
	if now <= m.at {
		m.y = max(m.y, -m.most(m.at))
		return
	}
	if m.at < m.leasedUntil && m.leasedUntil < now {
		m.pass(m.leasedUntil - 1)
	}
	m.pass(now)
}

func (m *meter) pass(now int64) {
	most := m.most(now)
	if m.drain > 0 {
		m.y = max(m.y-min(now-m.at, (m.y+most)/m.drain+1)*m.drain, -most) // months do not overflow
	}
	m.at = now
}

func (m *meter) admit(now, n int64) { m.add(now, n*meterUnit); m.admitted += n }

// add is admit in units.
func (m *meter) add(now, units int64) {
	m.advance(now)
	if m.limit.Windowed() {
		m.start(now, units)
		return
	}
	m.y = max(m.y+units, -m.most(now))
	m.peak = max(m.peak, m.y+m.most(now))
}

// excess is by how many units the worst window exceeds what (1) allows; 0 or less is well.
func (m *meter) excess() int64 {
	if m.limit.Windowed() {
		return m.worst()
	}
	return m.y
}

func (m *meter) String() string {
	return fmt.Sprintf("%v: the worst window held %.6f tokens beyond R*w, C = %.0f", m.limit,
		float64(m.excess()+m.most(m.at))/meterUnit, float64(m.most(m.at))/meterUnit)
}

// levelOf is limit k of b where that is a token bucket, and windowOf where it is a window; else nil.
func (b *Bucket) levelOf(k int) *level {
	l, _ := b.limits[k].(*level)
	return l
}

func (b *Bucket) windowOf(k int) *window {
	w, _ := b.limits[k].(*window)
	return w
}

// settled is b as it would be if it was called now, by the server's clock.
func settled(b *Bucket, clock int64) Bucket {
	now := b.copied()
	if now.exists {
		now.settle(clock)
	}
	return *now
}

// sound says what is wrong with a settled bucket whose holders have live tokens: it is why (1)
// holds, not what (1) says.
func sound(b *Bucket, live int64) error {
	s := b
	if !s.exists {
		return nil
	}
	for i, held := range s.ring.held {
		if held < 0 || s.ring.weight[i] < 0 {
			return errors.New("a slice of the ledger is negative")
		}
	}
	ledger := s.ring.ledger()
	for id, r := range b.records {
		_, in := s.ring.locate(r.Ends)
		if r.Held < 0 || r.Granted < 0 || in && r.epoch == s.epoch && r.Held > ledger {
			return fmt.Errorf("record %s is negative or beyond the ledger of %d: %+v", id, ledger, r)
		}
	}
	if live > ledger {
		return fmt.Errorf("processes hold %d tokens, the ledger knows of %d", live, ledger)
	}
	for k := range b.limits {
		if w := s.windowOf(k); w != nil {
			if err := soundWindow(w, s.now); err != nil {
				return fmt.Errorf("window %d: %w", k, err)
			}
			continue
		}
		l := s.levelOf(k)
		if room := l.room(b.at()); l.units < -l.deepest() || l.units > room || l.rest < 0 || l.rest >= l.Tick {
			return fmt.Errorf("level %d is %d units, rest %d, B + E - O is %d", k, l.units, l.rest, room)
		}
	}
	return nil
}

// bounds has the bound (1) of a fleet while its limits change: which meters count, and from when on. It
// follows what the bucket has in force, and finds out by rules of its own which limit is which.
type bounds struct {
	inForce []*meter // for each limit, as it goes on with another; none for Unlimited
	beneath []*meter // of the limits beneath a switch
	under   []lease.Limit
	bare    bool // a switch was in force without any

	limits    []lease.Limit
	over      int64
	created   int64
	epoch     int64
	ledger    int64 // what is leased, as the bucket knew before its latest call
	leased    int64 // the most that was, at the last change
	leasesEnd int64 // every lease that there is has ended then
	refunded  map[refund]bool
	// unreported are the tokens that processes have used beyond their holdings and that no executed call
	// has charged yet.
	version    lease.Version
	unreported map[*node]int64
	overshot   bool         // there is, or was, such use
	clock      func() int64 // the server's
	held       func() int64 // what processes hold, or will with a reply that is on its way
}

// refund names the one call that a refund travels in.
type refund struct {
	holder string
	seq    int64
}

// all are the meters of the limits in force, and beneath a switch.
func (b *bounds) all() iter.Seq2[int, *meter] {
	return func(yield func(int, *meter) bool) {
		for _, meters := range [][]*meter{b.inForce, b.beneath} {
			for k, m := range meters {
				if !yield(k, m) {
					return
				}
			}
		}
	}
}

func (b *bounds) admit(now, n int64) {
	if SwitchOf(b.limits) == SwitchUnlimited {
		return // the limits beneath do not count it
	}
	for _, m := range b.all() {
		m.admit(now, n)
	}
}

// owe notes what is owed to each limit in force, when the server's clock says clock.
func (b *bounds) owe(bucket *Bucket, clock int64) {
	if !bucket.exists || bucket.created != b.created || bucket.epoch != b.epoch ||
		!slices.EqualFunc(bucket.inForce().Limits, b.limits, lease.Limit.Equal) {
		return // it has just been lost, and another one, or a replica, knows nothing of this
	}
	s := settled(bucket, clock)
	b.ledger = s.ring.ledger()
	for k, m := range b.all() {
		// which can owe nothing (3.2), see charge, and refills a tenth in 10 years
		if m.limit.Equal(lease.Blocked) {
			m.owed = min(meterUnit/10, max(0, m.excess()))
			continue
		}
		if l := s.levelOf(k); l != nil {
			m.owed = metered(-min(l.units, 0), l.Unit)
			continue
		}
		used := b.ledger + s.windowOf(k).sum
		if w := s.windowOf(k); w.cells == nil && w.period > m.period { // which the bucket has not seen
			used = bucket.ring.ledger() + bucket.windowOf(k).sum
		}
		switch {
		case b.overshot && m.forgets != 0:
			m.owed = used * meterUnit // what was charged to the bucket of now is all beyond
		case b.overshot:
			m.owed = max(0, used-m.capacity) * meterUnit
		default:
			m.owed = 0
		}
	}
}

// metered converts units of a level, of which a token has unit, to those of a meter.
func metered(units, unit int64) int64 {
	return units/unit*meterUnit + exact.MulDiv(units%unit, meterUnit, unit)
}

// reports are the tokens that have been used and no executed call has charged yet.
func (b *bounds) reports() (n int64) {
	for _, more := range b.unreported {
		n += more
	}
	return n
}

// forgives takes n used tokens off, which will never be paid: their process has gone.
func (b *bounds) forgives(n int64) {
	for _, m := range b.all() {
		m.forgive(n * meterUnit)
	}
}

// forgivesAll takes off all that is owed, since the bucket that knew of it has gone. With it goes how far
// the clock was ahead before it stepped back.
func (b *bounds) forgivesAll(now int64) {
	for _, m := range b.all() {
		m.forgive(m.owed)
		m.owed = 0
	}
	for _, m := range b.all() {
		if m.advance(now); m.period < m.latest {
			m.comeAgain(m.latest, m.capacity)
		}
	}
}

// credit takes off what the refund of r, which the bucket has just executed, was worth; once.
func (b *bounds) credit(now int64, r *lease.Request, bucket *Bucket) {
	id := refund{r.Holder, r.Seq}
	if Reported(r.Late, lease.LateRefund) == 0 || b.refunded[id] {
		return
	}
	for k, m := range b.all() {
		units := bucket.refunded[k]
		m.counts = 0
		if w := bucket.windowOf(k); w != nil && m.limit.Kind == lease.KindCalendar {
			m.counts = w.period // which may be ahead of the clock
		}
		m.add(now, -metered(units, bucket.limits[k].about().Unit))
		if units > 0 {
			defer func() { b.refunded[id] = true }()
		}
	}
}

// charge takes off what limits that can owe nothing do not pay of the charge of r, which the bucket has just
// executed. uncharged is the bucket after the same call without charge and grant, so its levels are what they
// paid. Of a charge that travels again only what is unreported counts.
func (b *bounds) charge(n *node, r *lease.Request, uncharged *Bucket) {
	charged := min(max(0, n.usedBefore[r.Seq]-n.charged), b.unreported[n])
	n.charged += charged
	if b.unreported[n] -= charged; b.unreported[n] == 0 {
		delete(b.unreported, n)
	}
	for k, m := range b.all() {
		if m.limit.Equal(lease.Blocked) {
			paid := int64(0) // which the limits beneath owe instead
			if uncharged.switched == SwitchNone || uncharged.bare() {
				paid = metered(uncharged.levelOf(k).units, uncharged.levelOf(k).Unit)
			}
			m.forgive(max(0, charged*meterUnit-paid))
		}
	}
}

// follow looks at the bucket after a call.
//
// Where a live bucket changes its limits, one that goes on has the old bound in windows that begin before,
// and the new one in those that begin after the leases of before have ended; in between the larger of the new
// one and what was leased. One that is new begins then, and so do all of a bucket that is new: used up, where
// no newer version brings it, but for what is leased.
func (b *bounds) follow(now int64, bucket *Bucket) {
	s, c := bucket, bucket.inForce()
	// A failover may lose a change of limits, and no call: then the old ones are back.
	anew := s.created != b.created || s.epoch != b.epoch || Wins(b.version, c.Version)
	if s.frozen > s.now {
		defer func() { b.forgets(now + s.frozen - s.now) }()
	}
	if !anew && slices.EqualFunc(b.limits, c.Limits, lease.Limit.Equal) && b.over == c.Overcommit {
		b.leasesEnd = max(b.leasesEnd, now+unknownMax(bucket))
		return
	}
	was, limits := b.inForce, b.limits
	if b.beneath != nil {
		was, limits = b.beneath, b.under
	}
	leased := int64(0) // the most that can be, if the bucket does not know
	if b.bare && now < b.leasesEnd {
		leased = b.leased // before it was lost
	}
	for i, m := range was {
		m.advance(now)
		if most := m.most(now) / meterUnit; i == 0 || most < leased {
			leased = most
		}
	}
	if !anew && !b.bare && s.now >= s.frozen {
		leased = min(leased, b.ledger)
	}
	b.leased = leased
	var next []*meter
	usedUp := !anew && (c.Version == b.version && !b.bare || c.StartEmpty || s.now < s.frozen)
	from := []int{-1, -1, -1, -1}
	b.beneath, b.under = nil, nil
	switch {
	case anew || b.bare:
	case s.switched != SwitchNone && !s.bare():
		b.beneath, b.under = was, limits
	default:
		from = goesOn(limits, c.Limits)
	}
	begins := func(l lease.Limit) *meter {
		m := newMeter(l, c.Overcommit, now)
		m.leased, m.leasedUntil = leased, b.leasesEnd
		m.y = -m.most(now)
		m.latest = m.periodOf(s.clock) // in which the bucket is, until a clock that stepped back has come there
		m.clock = b.clock
		return m
	}
	if anew && s.switched != SwitchNone && !s.bare() { // a replica that has it was promoted
		b.under = s.config.Limits
		for _, l := range b.under {
			b.beneath = append(b.beneath, begins(l))
		}
	}
	for k, l := range c.Limits {
		var m *meter
		if l.Equal(lease.Unlimited) {
			continue
		}
		if from[k] >= 0 {
			m = was[from[k]]
			if m.forgets == 0 && (m.limit.Equal(lease.Blocked) || l.Equal(lease.Blocked)) {
				m.forgive(m.owed) // which Blocked has refilled, or cannot owe
			}
		} else {
			m = begins(l)
			if usedUp {
				m.add(now, m.most(now)-leased*meterUnit)
			}
		}
		m.change(now, l, c.Overcommit, leased, b.leasesEnd)
		next = append(next, m)
	}
	b.inForce, b.limits, b.over, b.created, b.epoch = next, c.Limits, c.Overcommit, s.created, s.epoch
	b.version, b.bare = c.Version, s.bare()
	b.leasesEnd = max(b.leasesEnd, now+unknownMax(bucket))
}

// unknownMax is how long the longest lease may last that exists now, those of a lost bucket included.
func unknownMax(b *Bucket) int64 { return max(b.leaseMax(), b.frozen-b.now) }

// goesOn says which of the old limits each new one goes on with: the equal ones first, then in order token
// buckets of equal Per and the rest of them, and windows of equal kind, length and offset; -1 for a new one.
func goesOn(old, limits []lease.Limit) []int {
	from := []int{-1, -1, -1, -1}[:len(limits)]
	free := []int{0, 1, 2, 3}[:len(old)]
	pair := func(fits func(o, l lease.Limit) bool) {
		for k, l := range limits {
			i := slices.IndexFunc(free, func(i int) bool { return from[k] < 0 && fits(old[i], l) })
			if i >= 0 {
				from[k] = free[i]
				free = slices.Delete(free, i, i+1)
			}
		}
	}
	pair(lease.Limit.Equal)
	pair(func(o, l lease.Limit) bool { return o.Kind == l.Kind && o.Per == l.Per && o.Offset == l.Offset })
	pair(func(o, l lease.Limit) bool { return !o.Windowed() && !l.Windowed() })
	return from
}
