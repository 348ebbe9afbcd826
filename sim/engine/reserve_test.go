package engine

import (
	"fmt"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Reservations, shadow mode and classes.

func TestShadowModeChangesTheAnswersAndNothingElse(t *testing.T) {
	for _, verb := range []string{"try", "allow", "wait"} {
		// Given an overload, with limits that are enforced and with limits that are tried out,
		const overload = `duration: 5s, limits: [1000/s burst 200], policy: {fallback: deny, shadow: %v},
			groups: [{count: 4}], workload: {load: 3, cost: "uniform(1,3)", verb: %s}`
		enforced := verb
		if verb == "wait" { // in shadow mode Wait waits no longer than Allow
			enforced = "allow"
		}
		real := simulate(t, scene(t, overload, false, enforced))
		shadow := simulate(t, scene(t, overload, true, verb))
		// when shadow mode admits every denied request, then the bucket's tokens go the same way, and the
		// audit of them finds the promise kept.
		f, g := figures(real), figures(shadow)
		testkit.Check(t, g.Shadowed.Mean > g.Offered.Mean/3 && g.BoundExceededBy.Mean == 0,
			"%s: %v of %v are shadowed, the bound is exceeded by %v", verb, g.Shadowed.Mean, g.Offered.Mean,
			g.BoundExceededBy.Mean)
		for i, figure := range f.All() {
			if got := g.All()[i].Mean; figure.Name != "shadowed" && got != figure.Mean {
				t.Errorf("%s: %s is %v, without shadow mode %v", verb, figure.Name, got, figure.Mean)
			}
		}
		b := &shadow.books
		waiting := waited(shadow, func(w *protocol.Waiter) int64 { return w.N })
		testkit.Check(t, b.offered == b.tally.Admitted+b.shadowed+waiting,
			"%s: of %d, %d are admitted, %d shadowed and %d wait", verb, b.offered, b.tally.Admitted, b.shadowed,
			waiting)
	}
}

func TestAProcessThatEndsShadowsNobody(t *testing.T) {
	// Given a process that waits for an answer when it is killed, or leaves,
	for _, kill := range []bool{true, false} {
		s := scene(t, `duration: 1s, limits: [10/s], policy: {shadow: true}, call_timeout: 500ms,
			groups: [{scale: [{at: 20ms, count: 0, kill: %v}]}], network: {round_trip: 100ms}`, kill)
		s.Workload = replay(1, func(int) scenario.TraceRequest { return scenario.TraceRequest{Cost: 1} })
		run := simulate(t, s)
		testkit.Check(t, run.books.requests == 1 && run.books.shadowed == 0 && run.books.tally.Admitted == 0,
			"killed %v: %d of %d are shadowed, %d admitted", kill, run.books.shadowed, run.books.requests,
			run.books.tally.Admitted)
	}
}

// waited sums of over all waiters.
func waited(run *replication, of func(*protocol.Waiter) int64) (n int64) {
	for _, e := range run.fleet.entries.all {
		if e.alive {
			e.client.Line.Waiters(func(w *protocol.Waiter) { n += of(w) })
		}
	}
	return n
}

// reserving simulates an overloaded fleet whose requests reserve.
func reserving(t *testing.T, workload, group string) *replication {
	return simulate(t, scene(t, `duration: 10s, limits: [1000/s burst 300],
		policy: {fallback: deny, target: 20ms},
		groups: [{count: 3, %s}], workload: {load: 2, verb: wait, deadline: 200ms, %s}`, group, workload))
}

func TestUseBeyondAReservationIsPaid(t *testing.T) {
	for _, actual := range []string{"3", "uniform(0,4)", "lognormal(1,30)"} {
		// Given requests that reserve one token and cost more, or less,
		run := reserving(t, `hold: exp(50ms), actual: "`+actual+`"`, "")
		b := &run.books
		// then their use in any window is within the bound plus the open debt,
		testkit.Check(t, b.charged > 1000 && b.audit.ExceededBy() == 0,
			"actual %s: %d charged, exceeded by %d", actual, b.charged, b.audit.ExceededBy())
		// and in the long run it equals the inflow, up to the debt at the end: the admissions before the
		// first final costs were known.
		used, entitled := b.tally.Admitted+b.charged-b.refunded, int64(300+10*1000)
		testkit.Check(t, used > entitled*9/10 && used < entitled*11/10,
			"actual %s: %d tokens are used, %d flowed in", actual, used, entitled)
	}
}

func TestAForgivenChargeExceedsTheBound(t *testing.T) {
	for _, lost := range []bool{false, true} {
		// Given a bucket that owes a minute and more of its rate, as each request cost a hundred times
		// what it reserved,
		run := newRun(t, scene(t, `duration: 10s, limits: [100/s burst 10], policy: {fallback: deny},
			groups: [{count: 2}], workload: {rate: 100/s, actual: 100, hold: 100ms}`))
		for forget := lost; run.goesOn(); run.step() {
			// when it is lost, and a new bucket waits until all leases have ended, and owes nothing,
			if forget && run.time.now > 3e9 {
				*run.redis.place(0) = nil
				forget = false
			}
		}
		testkit.NoErr(t, run.finish())
		// then the new bucket's admissions exceed the bound.
		x := run.books.audit.ExceededBy()
		testkit.Check(t, lost == (x > 0), "lost %v: exceeded by %d, %d admitted", lost, x, run.books.tally.Admitted)
	}
}

func TestUnusedTokensOfAReservationComeBack(t *testing.T) {
	// Given requests that reserve three tokens and use one,
	run := reserving(t, "cost: 3, actual: 1, hold: exp(50ms)", "")
	b := &run.books
	// then the other two come back and are admitted again, except those of reservations that are not
	// settled yet.
	used := b.tally.Admitted - b.refunded
	testkit.Check(t, b.audit.ExceededBy() == 0 && b.refunded > b.tally.Admitted*6/10 && used > 9000 &&
		used <= 10_300+600,
		"of %d admitted %d come back; exceeded by %d", b.tally.Admitted, b.refunded, b.audit.ExceededBy())
	// The same holds for the central bucket that the fleet is compared with.
	central := float64(b.centralServed()) / float64(b.tally.Admitted)
	testkit.Check(t, central > 0.95 && central < 1.12, "one central bucket admits %d, the fleet %d",
		b.centralServed(), b.tally.Admitted)
}

func TestAVoidReportRefundsNothing(t *testing.T) {
	for void, want := range map[bool]int64{false: 0, true: 5} {
		// Given a burst that was admitted, and a call with a refund of five that was known, or void,
		run := simulate(t, scene(t, "duration: 1s, limits: [1/h burst 10], workload: {load: 0.001}"))
		b, e := &run.books, run.fleet.entry(run.fleet.processes[0], 0)
		b.audit.Admit(run.time.now, 0, 10)
		c := call{entry: e, request: lease.Request{Seq: 1 << 40, Late: []lease.Late{{Kind: lease.LateRefund, Tokens: 5}}}, grant: lease.Grant{Void: void}}
		b.executed(&c, false)
		// when five more are admitted, then these are allowed, or not.
		b.audit.Admit(run.time.now, 0, 5)
		testkit.Check(t, b.audit.ExceededBy() == want, "void %v: exceeded by %d, want %d", void,
			b.audit.ExceededBy(), want)
	}
}

func TestAStoppedProcessSettlesWhenItGoesOn(t *testing.T) {
	run := newRun(t, scene(t, `duration: 5s, limits: [1000/s], groups: [{pauses: {every: 100ms, for: 100ms}}],
		workload: {actual: 2, hold: 10ms}`))
	b, p := &run.books, run.fleet.processes[0]
	for run.goesOn() {
		before, central, stopped := b.charged, fmt.Sprint(b.central), p.pausedUntil > 0
		run.step()
		testkit.Must(t, !stopped || b.charged == before, "%d are charged while it is stopped", b.charged-before)
		testkit.Must(t, !stopped || fmt.Sprint(b.central) == central,
			"the central bucket hears of it while it is stopped")
	}
	testkit.Check(t, b.charged > 500, "%d are charged", b.charged)
}

func TestAFallbackTookNothingThatCouldComeBack(t *testing.T) {
	// Given requests that are admitted while Redis is away from the start, and use half of what they reserve,
	run := simulate(t, scene(t, `duration: 2s, limits: [1000/s],
		policy: {fallback: allow_all, cold_start: allow},
		workload: {cost: 2, actual: 1, hold: 10ms}, redis: {faults: [{kind: outage, at: 0s, for: 2s}]}`))
	b := &run.books
	testkit.Check(t, b.tally.Admitted > 1000 && b.refunded == 0, "of %d admitted %d come back", b.tally.Admitted,
		b.refunded)
}

func TestAClassGoesOnWhenThoseBelowItAreDenied(t *testing.T) {
	// Given one process that needs a third of the limit, and many others that want three times the
	// limit,
	const fleet = `duration: 10s, warmup: 1s, limits: [3000/s], policy: {fallback: deny}, groups: [
		{name: first, workload: {rate: 1000/s}},
		{name: last, count: 20, headroom: %v, workload: {rate: 9000/s}}]`
	run := simulate(t, scene(t, fleet, 0.4))
	first, last := run.books.classes[0], run.books.classes[1]
	// then all of its requests are admitted, where otherwise most would not be; the others have the
	// rest.
	testkit.Check(t, first.admitted == first.offered && first.headroom == 0 && last.headroom == 0.4,
		"of the first class %d of %d are admitted", first.admitted, first.offered)
	rest := 9*3000 - first.admitted
	testkit.Check(t, last.admitted > rest*98/100 && last.admitted < rest*102/100,
		"of the last class %d are admitted, of %d that are left", last.admitted, rest)
	alike := simulate(t, scene(t, fleet, 0))
	got := alike.books.tally.ByProcess[0]
	testkit.Check(t, len(alike.books.classes) == 1 && got < first.admitted/2,
		"without classes %d are admitted to the first", got)
}
