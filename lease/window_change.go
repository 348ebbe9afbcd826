package lease

// What becomes of windows when the limits change: docs/protocol.md section 6.11. What was used
// stays used.

// rescale follows a change of configuration, which has been validated. Windows begin with nothing
// charged.
func (b *Bucket) rescale() {
	for k, l := range b.config.Limits {
		b.scales[k], _ = newScale(l, b.config.Overcommit)
	}
	b.windows = [LimitsMax]*window{}
	for k := range b.config.Limits {
		if sc := &b.scales[k]; sc.Kind != KindBucket {
			b.windows[k] = &window{period: -2}
			b.windows[k].advance(sc, b.now, b.clock)
		}
	}
}

// restore has the windows of b, whose configuration is known, count what was dumped.
func (b *Bucket) restore(dumps [LimitsMax]WindowDump) {
	for k, w := range b.windows {
		if w == nil {
			continue
		}
		w.sum, w.cells = dumps[k].Sum, dumps[k].Cells
		if b.scales[k].Kind == KindCalendar {
			w.period, w.begun = dumps[k].Period, dumps[k].Begun
		}
	}
}

// copied is b with windows of its own, to go back to.
func (b *Bucket) copied() Bucket {
	c := *b
	for k, w := range c.windows {
		if w != nil {
			own := *w
			c.windows[k] = &own
		}
	}
	return c
}

// inheritWindow charges window k, in which nothing is charged yet, with what was used of limit from
// of was; -1 for a new limit.
func (b *Bucket) inheritWindow(was *Bucket, from, k int, newer bool) {
	w, sc := b.windows[k], &b.scales[k]
	total := sc.Capacity + b.config.Overcommit - b.ring.ledger()
	if from < 0 {
		if left := b.fresh(k, newer); left < sc.Capacity {
			w.charge(sc, b.now, total-left)
		}
		return
	}
	old, osc := was.windows[from], &was.scales[from]
	same := osc.Kind == sc.Kind && osc.Tick == sc.Tick && osc.Offset == sc.Offset
	// A lost bucket may have had the new limit, and have given what it is larger by.
	lost := b.config.StartEmpty && b.frozen > 0 && b.now < b.frozen+micros(sc.timeToFull())
	switch {
	case old == nil:
		used := osc.Capacity + was.config.Overcommit - was.ring.ledger() - floorDiv(was.level[from], osc.Unit)
		w.charge(sc, b.now, used)
	case same:
		*w = *old
	case osc.Kind == KindSliding && sc.Kind == KindSliding:
		w.recount(sc, old, osc, b.now)
	default:
		w.charge(sc, b.now, old.sum)
	}
	if lost || !newer && !same {
		w.charge(sc, b.now, total-b.fresh(k, false)-w.sum)
	}
}

// recount charges what old counts in its cells to those of another length: all of a cell at its
// end, since nothing in it was spent later than that.
func (w *window) recount(sc *Scale, old *window, osc *Scale, now int64) {
	for j := old.first; j < old.first+windowSlots; j++ {
		at := min((j+1)*osc.Cell-1, now)
		if n := *old.slot(j); n > 0 && w.covers(sc, at) {
			w.charge(sc, at, n)
		}
	}
}

// outOf is what a bucket goes on with that takes the place of window from of was, in whole tokens:
// what that has left. In a turn it is no more than the new limit k has refilled since the turn
// before, as a window that was passed on and back would otherwise come back full.
func (b *Bucket) outOf(was *Bucket, from, k int, newer bool) int64 {
	left := was.free(from, was.ring.ledger())
	if !newer {
		left = min(left, b.fresh(k, false)/b.scales[k].Unit)
	}
	return left
}
