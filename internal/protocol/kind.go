package protocol

import (
	"slices"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// moment is the part of a bucket's state that the tallies of its limits read.
type moment struct {
	now    int64 // the running time
	clock  int64 // the server's clock
	ledger int64 // leased tokens
	frozen int64 // the end of the freeze; 0 without a freeze
	setAt  int64 // when a level was last set or refunded to; unused tokens drawn before are worth nothing
}

// tally counts the use of one limit of a bucket: docs/protocol.md sections 3.2, 3.3 and 3.10.
type tally interface {
	about() *spec
	clone() tally

	// begin resets the tally to a full or an empty limit.
	begin(m *moment, full bool)
	// continues reports whether the limit may take over the state of old, and follow takes over that state
	// (6.10, 6.11). same reports that the limit has not changed.
	continues(old tally) bool
	follow(old tally, same bool)
	// freeze begins the wait after a proven loss (6.5).
	freeze(m *moment, startEmpty bool)

	// pass advances the tally from the time from to m.now, and clip lowers a level to its room (step 2).
	pass(m *moment, from int64)
	clip(m *moment)
	// free returns the units that may be granted; below 0 if a charge is owed or the limit was lowered.
	free(m *moment) int64
	// draw takes n granted tokens. spend counts n tokens that were reported as spent, admitted, or expired.
	draw(n int64)
	spend(m *moment, n int64)
	// back credits n tokens that a known call returns, and late applies one late entry (step 6).
	back(m *moment, n int64)
	late(m *moment, l *lease.Late, known bool) (refunded int64)

	// wait returns the microseconds until the limit has n tokens, or its whole burst if n is more.
	wait(m *moment, n int64) int64
	// life returns the microseconds after which used and owed tokens no longer count (6.14).
	life() int64
}

// spec has the numbers of one limit of a bucket.
type spec struct {
	exact.Scale
	limit  lease.Limit
	most   int64 // burst plus overcommit
	target int64 // Config.Target in microseconds
}

func (sp *spec) about() *spec { return sp }

func specOf(l lease.Limit, c *lease.Config) spec {
	sc := ScaleOf(l, c.Overcommit)
	return spec{sc, l, sc.Capacity + c.Overcommit, exact.Micros(c.Target)}
}

// ScaleOf returns the scale of a valid limit in a bucket with the given overcommit.
func ScaleOf(l lease.Limit, overcommit int64) exact.Scale {
	if l.Windowed() {
		return exact.NewWindowScale(l.Tokens, l.Per, l.Offset, l.Kind == lease.KindSliding)
	}
	sc, _ := exact.NewScale(l.Tokens, l.Per, l.Capacity(), overcommit) // a valid limit has a scale
	return sc
}

// rate returns tokens per microsecond, divided in the order of the Lua script.
func (sp *spec) rate() float64 { return float64(sp.Step) / float64(sp.Unit) / float64(sp.Tick) }

// startsEmpty reports whether the limit takes 100 years to fill, and therefore always starts empty (3.2).
func (sp *spec) startsEmpty() bool { return sp.TimeToFull() == exact.MaxTime }

// same reports whether sp and old have the same period and the same scale.
func (sp *spec) same(old *spec) bool { return sp.limit.Per == old.limit.Per && sp.Scale == old.Scale }

func tallies(c *lease.Config) []tally {
	all := make([]tally, len(c.Limits))
	for k, l := range c.Limits {
		if l.Windowed() {
			all[k] = newWindow(specOf(l, c))
		} else {
			all[k] = &level{spec: specOf(l, c)}
		}
	}
	return all
}

// inherit returns for each new limit the old limit whose state it continues (6.10); nil for none. By position
// alone, every limit after an inserted limit would continue its neighbour.
func inherit(old, limits []tally) []tally {
	from, left := make([]tally, len(limits)), slices.Clone(old)
	for _, fits := range []func(o, l *spec) bool{
		func(o, l *spec) bool { return l.same(o) },
		func(o, l *spec) bool { return l.limit.Per == o.limit.Per },
		func(o, l *spec) bool { return true },
	} {
		for k, l := range limits {
			i := slices.IndexFunc(left, func(o tally) bool { return l.continues(o) && fits(o.about(), l.about()) })
			if from[k] == nil && i >= 0 {
				from[k] = left[i]
				left = slices.Delete(left, i, i+1)
			}
		}
	}
	return from
}
