package lease

import "slices"

// bounds is what (1) says of a fleet while its limits change: which meters count, and from when on.
// It follows what the bucket has in force, and finds out by rules of its own which limit is which.
type bounds struct {
	inForce  []*meter
	replaced []*meter // limits that were in force once, and may be again

	limits    []Limit
	over      int64
	created   int64
	epoch     int64
	leasesEnd int64 // every lease that there is has ended then
	refunded  map[refund]bool
}

// refund names the one call that a refund travels in.
type refund struct {
	holder string
	seq    int64
}

func (b *bounds) admit(now, n int64) {
	for _, m := range b.inForce {
		m.admit(now, n)
	}
}

// credit takes off what the refund of r, which the bucket has just executed, was worth; once.
func (b *bounds) credit(now int64, r *Request, bucket *Bucket) {
	id := refund{r.Holder, r.Seq}
	if r.Refund == 0 || b.refunded[id] {
		return
	}
	for k, m := range b.inForce {
		units := bucket.refunded[k]
		m.add(now, -units*(meterUnit/bucket.scales[k].Unit))
		b.refunded[id] = b.refunded[id] || units > 0
	}
}

// follow looks at the bucket after a call.
//
// Where a live bucket changes its limits, one that goes on has the old bound in windows that begin
// before, and the new one in those that begin after the leases of before have ended; in between the
// larger of the new one and what was leased. One that is new begins then. Where a bucket was lost
// or has expired, each of its limits goes on as if it had been in force all the time.
func (b *bounds) follow(now int64, bucket *Bucket) {
	s, c := &bucket.state, &bucket.config
	anew := s.created != b.created || s.epoch != b.epoch
	if !anew && slices.EqualFunc(b.limits, c.Limits, Limit.same) && b.over == c.Overcommit {
		b.leasesEnd = max(b.leasesEnd, now+bucket.leaseMax())
		return
	}
	leased := int64(0) // the most that can be, if the bucket does not know
	for i, m := range b.inForce {
		m.advance(now)
		if most := m.most(now) / meterUnit; i == 0 || most < leased {
			leased = most
		}
	}
	if !anew && s.now >= s.frozen {
		leased = min(leased, s.ring.ledger())
	}
	var next []*meter
	var from []int
	if !anew {
		from = goesOn(b.limits, c.Limits)
	}
	for k, l := range c.Limits {
		var m *meter
		switch {
		case anew:
			m = b.recall(now, l, leased, next)
		case from[k] >= 0:
			m = b.inForce[from[k]]
			before := *m
			b.replaced = append(b.replaced, &before)
		case s.frozen > 0:
			m = b.recall(now, l, leased, next) // it may be one that was lost
		}
		if m == nil {
			m = newMeter(l, c.Overcommit, now)
			m.leased, m.leasedUntil = leased, b.leasesEnd
			m.y = -m.most(now)
		}
		m.change(now, l, c.Overcommit, leased, b.leasesEnd)
		next = append(next, m)
	}
	for _, m := range b.inForce {
		if !slices.Contains(next, m) {
			b.replaced = append(b.replaced, m)
		}
	}
	b.inForce, b.limits, b.over, b.created, b.epoch = next, c.Limits, c.Overcommit, s.created, s.epoch
	b.leasesEnd = max(b.leasesEnd, now+bucket.leaseMax())
}

// recall is the meter of l where it was in force before; but for those in use again.
func (b *bounds) recall(now int64, l Limit, leased int64, inUse []*meter) *meter {
	for _, m := range b.inForce {
		if m.limit.same(l) && !slices.Contains(inUse, m) {
			return m
		}
	}
	for i := len(b.replaced) - 1; i >= 0; i-- {
		if m := b.replaced[i]; m.limit.same(l) {
			b.replaced = slices.Delete(b.replaced, i, i+1)
			m.advance(now)
			m.leased, m.leasedUntil = leased, b.leasesEnd
			m.y -= leased * meterUnit // what was leased without it may be spent beside it
			return m
		}
	}
	return nil
}

// goesOn says which of the old limits each new one goes on with: the equal ones first, then in
// order those of equal Per, then in order the rest; -1 for a new one.
func goesOn(old, limits []Limit) []int {
	from := []int{-1, -1, -1, -1}[:len(limits)]
	free := []int{0, 1, 2, 3}[:len(old)]
	pair := func(fits func(o, l Limit) bool) {
		for k, l := range limits {
			i := slices.IndexFunc(free, func(i int) bool { return from[k] < 0 && fits(old[i], l) })
			if i >= 0 {
				from[k] = free[i]
				free = slices.Delete(free, i, i+1)
			}
		}
	}
	pair(func(o, l Limit) bool {
		return o.Tokens == l.Tokens && o.Per == l.Per &&
			o.Capacity() == l.Capacity()
	})
	pair(func(o, l Limit) bool { return o.Per == l.Per })
	pair(func(o, l Limit) bool { return true })
	return from
}
