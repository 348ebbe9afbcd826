package protocol

import (
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A kind of limit is one file: kind_bucket.go, kind_sliding.go and kind_calendar.go, with kind_window.go for
// what the last two share. It answers two parties. A bucket asks a tally, which counts what was used of one
// limit. A process asks a kind, which knows the limit's numbers and what the last reply said.

// kinds are the kinds of limits.
var kinds = [...]kind{
	lease.KindBucket: bucketKind{}, lease.KindSliding: slidingKind{}, lease.KindCalendar: calendarKind{},
}

func kindOf(l lease.Limit) kind { return kinds[l.Kind] }

// kind answers a process's questions about a limit.
type kind interface {
	// tally returns the tally of a bucket that has just begun, with nothing counted and no level.
	tally(sp spec) tally
	// timeFor is how long l takes to make n tokens, at most 292 years. A window makes none with time: they come
	// when what was used is no longer counted, which may be all at once.
	timeFor(l lease.Limit, n int64) time.Duration
	// reset is how long after a reply l has all its tokens again, at most, where some are missing and more may
	// come after until.
	reset(l lease.Limit, until time.Duration) time.Duration
	// reportIn is how long a report of spent tokens may wait. missing is how many tokens the bucket must make
	// until it is full.
	reportIn(l lease.Limit, missing float64) time.Duration
	// counts is how many cells' time l still counts, now, a token that was used age microseconds ago. now is
	// in microseconds, by the server's clock where isServer says so.
	counts(l lease.Limit, now, age int64, isServer bool) (cells int64)
	// usedAt is when, in microseconds, a local share of l counts what the bucket had not left by a reply at a
	// time, where the bucket has more after next.
	usedAt(l lease.Limit, replied int64, next time.Duration) int64
}

// moment has the state of a bucket that its tallies read.
type moment struct {
	now    int64 // the running time
	clock  int64 // the server's clock
	ledger int64 // tokens that are leased
	frozen int64 // no refill before this time; 0 where no loss is waited out
	setAt  int64 // when levels were last set or refunded to: what was drawn before is worth nothing
}

// tally counts the use of one limit of a bucket: docs/protocol.md sections 3.2, 3.3 and 3.10.
type tally interface {
	about() *spec
	clone() tally

	// begin counts anew: with all tokens there, or with none.
	begin(m *moment, full bool)
	// continues reports whether the limit may go on with an old one, and follow does so (6.10, 6.11). same says
	// that the limit has not changed.
	continues(old tally) bool
	follow(old tally, same bool)
	// freeze begins the wait after a proven loss (6.5).
	freeze(m *moment, startEmpty bool)

	// pass lets the time since from go by (step 2), and clip ends that step.
	pass(m *moment, from int64)
	clip(m *moment)
	// free returns the units that may be granted. It is negative where more is owed, or was used than a changed
	// limit allows.
	free(m *moment) int64
	// draw takes n tokens that are granted, and spend counts n that are spent: reported, admitted at once, or
	// leased until now.
	draw(n int64)
	spend(m *moment, n int64)
	// back credits n tokens that a known call returns, and late one entry of what it reports late (step 6).
	back(m *moment, n int64)
	late(m *moment, l *lease.Late, known bool) (refunded int64)

	// wait is the microseconds until there are n tokens, or all, without further draws.
	wait(m *moment, n int64) int64
	// life is the microseconds until what is used or owed counts for nothing: 6.14.
	life() int64

	dump(k int, d *BucketDump)
	restore(k int, d *BucketDump)
}

// spec has the numbers of one limit of a bucket.
type spec struct {
	lease.Scale
	limit  lease.Limit
	most   int64 // B + E
	target int64 // microseconds
}

func (sp *spec) about() *spec { return sp }

// specOf is that of a limit that can be held.
func specOf(l lease.Limit, c *lease.Config) spec {
	sc, _ := l.Scale(c.Overcommit)
	return spec{sc, l, sc.Capacity + c.Overcommit, exact.Micros(c.Target)}
}

// rate is tokens per microsecond, as a double; Lua computes the same quotient in the same order.
func (sp *spec) rate() float64 { return float64(sp.Step) / float64(sp.Unit) / float64(sp.Tick) }

// startsEmpty reports whether a new bucket has no tokens of the limit: one that takes the whole 100
// years to fill, such as Blocked, is there to deny.
func (sp *spec) startsEmpty() bool { return sp.TimeToFull() == exact.MaxTime }

// same reports whether sp and old are one limit: of the same kind, rate and length, over the same time, with
// the same burst, and counted in the same units.
func (sp *spec) same(old *spec) bool { return sp.limit.Per == old.limit.Per && sp.Scale == old.Scale }

// tallies are those of a bucket of c that has just begun.
func tallies(c *lease.Config) []tally {
	all := make([]tally, len(c.Limits))
	for k, l := range c.Limits {
		all[k] = kindOf(l).tally(specOf(l, c))
	}
	return all
}
