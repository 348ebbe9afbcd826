package protocol

import (
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// level is the tally of a token bucket: docs/protocol.md sections 3.2 and 3.3.
type level struct {
	spec
	units int64 // negative if a charge is owed
	rest  int64 // microseconds waited towards the next tick, below Tick
}

func (l *level) clone() tally {
	c := *l
	return &c
}

func (l *level) begin(m *moment, full bool) {
	l.units, l.rest = 0, 0
	if full && m.now >= m.frozen && !l.startsEmpty() {
		l.units = l.Capacity * l.Unit
	}
}

func (l *level) continues(old tally) bool {
	_, ok := old.(*level)
	return ok
}

// follow keeps the tokens of old that fit, and what is owed, rounded up (6.11, 3.2).
func (l *level) follow(old tally, same bool) {
	o, deepest := old.(*level), l.deepest()
	l.units, l.rest = o.units, o.rest
	if same {
		l.units = max(l.units, -deepest)
		return
	}
	l.rest = 0
	if o.Capacity > l.Capacity {
		l.units = min(l.units, l.Capacity*o.Unit)
	}
	if l.startsEmpty() {
		l.units = min(l.units, 0)
	}
	whole := exact.FloorDiv(l.units, o.Unit)
	if whole < -deepest/l.Unit-1 { // the product could overflow
		l.units = -deepest
	} else {
		l.units = max(-deepest, whole*l.Unit+exact.MulDiv(l.units-whole*o.Unit, l.Unit, o.Unit))
	}
}

func (l *level) freeze(*moment, bool) { l.units, l.rest = min(l.units, 0), 0 }

// pass refills the level for a time in which the ledger is constant, but not during a freeze.
func (l *level) pass(m *moment, from int64) {
	from = max(from, m.frozen)
	if m.now <= from {
		return
	}
	room := l.room(m) - l.units
	if room <= 0 {
		l.rest = 0
		return
	}
	// ticks*Step is computed only if the product is below room + Step, which is below 2^53.
	elapsed := m.now - from + l.rest
	ticks := elapsed / l.Tick
	if ticks >= (room+l.Step-1)/l.Step {
		l.units += room
		l.rest = 0
		return
	}
	l.units += ticks * l.Step
	l.rest = elapsed % l.Tick
	l.dropFullRest(room - ticks*l.Step)
}

// room returns the level up to which the limit may fill (3.3). A blocked key has no room for returned tokens.
func (l *level) room(m *moment) int64 {
	if l.startsEmpty() {
		return 0
	}
	return max(0, min(l.Capacity, l.most-m.ledger)) * l.Unit
}

// dropFullRest sets rest to 0 if the level is full; room is the number of missing units. A rest that is worth
// the missing units fills the level. Otherwise the rest would count again after a draw.
func (l *level) dropFullRest(room int64) {
	if room <= 0 || room < l.Step && room*l.Tick <= l.Step*l.rest {
		l.units += max(room, 0)
		l.rest = 0
	}
}

func (l *level) clip(m *moment) { l.units = min(l.units, l.room(m)) }

func (l *level) free(*moment) int64 { return l.units }

func (l *level) draw(n int64) { l.units -= n * l.Unit }

func (l *level) spend(*moment, int64) {}

// back credits returned tokens within the room: the ledger may still exceed B + E of a lowered limit.
func (l *level) back(m *moment, n int64) { l.fillBy(m, min(n, l.Capacity)*l.Unit) }

// late lets a debt lower the level to 0 at the least, and a charge below 0 (step 6).
func (l *level) late(m *moment, e *lease.Late, known bool) (refunded int64) {
	units := min(e.Tokens, l.Capacity) * l.Unit
	switch e.Kind {
	case lease.LateDebt:
		l.units = min(l.units, max(0, l.units-units))
	case lease.LateCharge:
		deepest := l.deepest()
		if e.Tokens > (l.units+deepest)/l.Unit { // the product could overflow
			l.units = -deepest
		} else {
			l.units -= e.Tokens * l.Unit
		}
	case lease.LateUnused:
		if known {
			l.fillBy(m, l.worth(m, units, e.Drawn))
		}
	case lease.LateRefund:
		if known {
			return l.fillBy(m, units)
		}
	}
	return 0
}

// worth returns the units of unused tokens that the level has not refilled since their draw (section 10).
func (l *level) worth(m *moment, units, drawn int64) int64 {
	if drawn <= m.setAt || drawn > m.now {
		return 0
	}
	ticks := (m.now - drawn + l.Tick - 1) / l.Tick
	if ticks >= (units+l.Step-1)/l.Step {
		return 0
	}
	return units - ticks*l.Step
}

// fillBy raises the level by up to units within its room, and returns the increase.
func (l *level) fillBy(m *moment, units int64) (raised int64) {
	room := l.room(m)
	raised = max(0, min(units, room-l.units))
	l.units += raised
	l.dropFullRest(room - l.units)
	return raised
}

func (l *level) wait(m *moment, n int64) int64 {
	missing := min(n, l.Capacity)*l.Unit - l.units
	if missing <= 0 {
		return 0
	}
	return (missing+l.Step-1)/l.Step*l.Tick - l.rest + max(0, m.frozen-m.now)
}

// life is the time in which the level makes B + E and what is owed (6.14). life is 0 for a limit that starts
// empty, because a new bucket starts it empty again.
func (l *level) life() int64 {
	if l.startsEmpty() {
		return 0
	}
	ticks := min((l.most*l.Unit+l.Step-1)/l.Step, exact.Micros(exact.MaxTime)/l.Tick)
	if l.units < 0 {
		ticks += (l.Step - 1 - l.units) / l.Step
	}
	return ticks * l.Tick
}

// deepest returns the most units that the level may owe (3.2).
func (l *level) deepest() int64 {
	most := (2*exact.MaxUnits - 1 - l.most*l.Unit - l.Step) / l.Step
	return min(most, exact.Micros(exact.MaxTime-l.TimeToFull())/l.Tick) * l.Step
}
