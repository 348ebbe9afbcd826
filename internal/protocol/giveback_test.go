package protocol

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// slowly is a limit whose tokens do not come back while a test runs.
var slowly = lease.Limit{Tokens: 100, Per: 1000 * time.Second, Burst: 100}

// asks has n decide on a request whose tokens the pool does not have, and waits for the answer.
func (n *driven) asks(tokens int64, p Patience) Decision {
	n.d.t.Helper()
	n.told = n.Decide(n.d.now, Ask{N: tokens, Patience: p, Deadline: Never})
	if n.told.Verdict == VerdictWait {
		n.waiting++
		n.Enqueue(n.d.now, &Waiter{Ask: Ask{N: tokens, Patience: p, Deadline: Never}})
		n.ask()
		n.d.run(20 * time.Millisecond)
	}
	testkit.Must(n.d.t, n.told.OK() && n.told.Took == tokens, "a request for %d: %+v", tokens, n.told)
	return n.told
}

// gives has n give back what d had, and says where it went.
func (n *driven) gives(d Decision) (pooled, unused, burnt int64) {
	n.d.t.Helper()
	before, held, waits := n.Holder.Account(), n.Holder.Pool.Held(), n.Holder.unused.sum()
	denied := n.Denials.Count()
	ok := n.GiveBack(n.d.now, d.Took, d.Pooled, d.Draw)
	after := n.Holder.Account()
	testkit.Check(n.d.t, ok && after.Conserved() && after.Admitted == before.Admitted-d.Took,
		"%v: from %+v to %+v", ok, before, after)
	testkit.Check(n.d.t, n.Denials.Count() == denied, "what was given back counts as denied")
	return n.Holder.Pool.Held() - held, n.Holder.unused.sum() - waits, after.Burnt - before.Burnt
}

// A request that was admitted, and then did not happen, leaves everything as if it had never been
// asked, whichever way its tokens came.
func TestTokensOfAWithdrawnRequestAreGivenBack(t *testing.T) {
	to := func(n *driven, d Decision, pooled, unused, burnt int64) {
		t.Helper()
		p, u, b := n.gives(d)
		testkit.Check(t, p == pooled && u == unused && b == burnt,
			"%+v: %d went to the pool, %d wait for a call, %d are burnt; want %d, %d, %d",
			d, p, u, b, pooled, unused, burnt)
	}
	// level has n call until nothing is owed, and checks that the bucket has all tokens but that number.
	level := func(n *driven, used int64) {
		t.Helper()
		n.d.run(2 * time.Second)
		b := settled(&n.d.bucket, int64(n.d.now)/1000)
		have := b.Level() + b.Ledger()
		testkit.Check(t, have == 100-used, "the bucket has %d, want %d", have, 100-used)
	}
	t.Run("drawn for a request that waited", func(t *testing.T) {
		_, n := alone(t, slowly, lease.Policy{}, nil)
		d := n.asks(10, OneCall)
		testkit.Check(t, d.Pooled == 0 && d.Source == lease.SourceStore, "%+v", d)
		to(n, d, 0, 10, 0)
		level(n, 0)
	})
	t.Run("drawn for a request that waited in line", func(t *testing.T) {
		_, n := alone(t, slowly, lease.Policy{}, nil)
		to(n, n.asks(100, InLine), 0, 100, 0)
		level(n, 0)
	})
	leased := func() *driven {
		d, n := alone(t, slowly, lease.Policy{MinBatch: 50}, nil)
		n.asks(1, OneCall)
		n.low, n.sizer.demand.slow, n.sizer.demand.fast = true, 1000, 1000 // as if much was to come
		n.ask()
		d.run(5 * time.Millisecond)
		testkit.Must(t, n.Holder.Pool.Held() >= 20, "%d are leased", n.Holder.Pool.Held())
		return n
	}
	takes := func(n *driven) Decision { // as a user's goroutine does, without a lock
		d := n.Holder.Pool.Drawn()
		testkit.Must(t, n.Holder.Pool.TakeN(10).OK(), "not taken")
		return Decision{Verdict: VerdictAdmit, Took: 10, Pooled: 10, Draw: d}
	}
	t.Run("taken from the pool", func(t *testing.T) {
		n := leased()
		to(n, takes(n), 10, 0, 0)
		to(n, n.asks(10, OneCall), 10, 0, 0)
		to(n, n.asks(10, InLine), 10, 0, 0)
		level(n, 1)
	})
	t.Run("taken from the pool before a report", func(t *testing.T) {
		n := leased()
		d := takes(n)
		n.low = true
		n.ask()
		n.d.run(5 * time.Millisecond)
		to(n, d, 0, 10, 0)
		level(n, 1)
	})
	t.Run("taken from the pool, whose lease has ended", func(t *testing.T) {
		n := leased()
		d := takes(n)
		n.d.now = n.Holder.Deadline()
		to(n, d, 0, 10, 0)
		n.Holder.Pool.Drain()
		n.d.run(2 * time.Second)
		testkit.Check(t, n.Holder.Account().Returned >= 10, "%+v", n.Holder.Account())
	})
	t.Run("somebody waits for them", func(t *testing.T) {
		n := leased()
		d := takes(n)
		n.Holder.Pool.TakeN(n.Holder.Pool.Held())
		w := &Waiter{Ask: Ask{N: 4, Patience: InLine, Deadline: Never}}
		n.waiting++
		n.Enqueue(n.d.now, w)
		n.GiveBack(n.d.now, d.Took, d.Pooled, d.Draw)
		testkit.Check(t, n.waiting == 0 && n.told.Pooled == 4 && n.Holder.Pool.Held() == 6, "%d wait, %d are in the pool",
			n.waiting, n.Holder.Pool.Held())
	})
	t.Run("the key has gone to rest", func(t *testing.T) {
		_, n := alone(t, slowly, lease.Policy{}, nil)
		d := n.asks(10, OneCall)
		n.d.run(10 * time.Second)
		m, ok := n.Rest()
		testkit.Must(t, ok, "it does not rest")
		n.Close()
		ok = n.GiveBack(n.d.now, 10, d.Pooled, d.Draw)
		testkit.Check(t, !ok, "a closed client takes something back")
		n.starts(lease.Policy{}, slowly)
		n.Holder.id = "h0"
		n.recall(m)
		d.Pooled = 0
		to(n, d, 0, 10, 0)
		level(n, 0)
	})
	t.Run("the bucket is another one", func(t *testing.T) {
		d, n := alone(t, slowly, lease.Policy{}, nil)
		was := n.asks(10, OneCall)
		d.bucket = Bucket{}
		n.request()
		n.ask()
		d.run(time.Second)
		to(n, was, 0, 0, 10)
	})
	t.Run("the process was copied", func(t *testing.T) {
		d, n := alone(t, slowly, lease.Policy{}, nil)
		was := n.asks(10, OneCall)
		n.Holder.rename("another")
		d.run(time.Second)
		is := n.asks(1, OneCall)
		to(n, was, 0, 0, 10)
		to(n, is, 0, 1, 0)
	})
}

// A charge travels until a reply confirms it, as a debt does, and more than once if need be.
func TestChargeTravelsUntilItIsConfirmed(t *testing.T) {
	d, n := alone(t, slowly, lease.Policy{Fallback: lease.FallbackDeny}, nil)
	n.asks(10, OneCall)
	n.Charge(d.now, 30)
	d.run(time.Second)
	level := func() int64 {
		b := settled(&d.bucket, int64(d.now)/1000)
		return b.levelOf(0).units / b.levelOf(0).Unit
	}
	have := level()
	testkit.Check(t, have == 60 && n.Holder.charge == nil, "the level is %d, %v to be charged", have, n.Holder.charge)
	// A call that is not executed charges nothing, and the next one does
	n.Charge(d.now, 70)
	d.down, n.tick = true, d.now
	d.run(5 * time.Second)
	testkit.Check(t, len(n.calls) > 3 && Reported(n.last.Late, lease.LateCharge) == 70 && n.Holder.isOpen,
		"%v to be charged after %d calls", n.last.Late, len(n.calls))
	d.down = false
	d.run(5 * time.Second)
	have = level()
	testkit.Check(t, have <= -8 && have >= -10 && n.Holder.charge == nil, "the level is %d, %v to be charged", have,
		n.Holder.charge)
	// and no number of them is too large to count.
	n.Holder.charge.add(1<<62, int64(d.now), n.fallback.dates(d.now))
	n.Holder.charge.add(1<<62, int64(d.now), n.fallback.dates(d.now))
	n.tick = d.now
	d.run(5 * time.Second)
	testkit.Check(t, n.Holder.charge == nil && Reported(n.last.Late, lease.LateCharge) == lease.WaitingMax, "%v to be charged", n.Holder.charge)
}

// A holding that is far larger than the demand goes back, although the calls that renew the lease come before
// each time that the holder looks for it: on a slow link they come early, and where there is a budget of
// calls it looks seldom.
func TestRenewalsDoNotPutOffWhatIsToGoBack(t *testing.T) {
	d, n := alone(t, slowly, lease.Policy{MinBatch: 50, CallsPerSecond: 1}, steady(1))
	d.run(10 * time.Second)                                            // until T is that of such leases
	n.low, n.sizer.demand.slow, n.sizer.demand.fast = true, 1000, 1000 // as if much was to come
	n.ask()
	d.run(5 * time.Millisecond)
	testkit.Must(t, n.Holder.Pool.Held() >= 30 && n.settings.large(), "%d are leased for %v", n.Holder.Pool.Held(), n.settings.target)
	n.sizer.demand.slow, n.sizer.demand.fast = 1, 1
	d.rtt = n.settings.target * 2 / 5
	n.settings.rtt = d.rtt
	d.run(6 * time.Second)
	testkit.Check(t, n.Holder.Pool.Held() <= 2*n.sizer.keep(), "%d are held, %d are needed", n.Holder.Pool.Held(), n.sizer.keep())
}

// TestAnEndedWaitPassesItsTokensToTheNextInLine that the same calls counted. The rest travels back, where it
// is worth only what the bucket has not refilled since.
func TestAnEndedWaitPassesItsTokensToTheNextInLine(t *testing.T) {
	// Given a request in line that a call has brought 50 tokens, two behind it that this call counted, of
	// which one waits for one call only, and one that has come since,
	d, n := alone(t, slowly, lease.Policy{}, nil)
	n.asks(1, OneCall)
	in := func(tokens int64, p Patience) *Waiter {
		w := &Waiter{Ask: Ask{N: tokens, Patience: p, Deadline: Never}}
		n.waiting++
		n.Enqueue(d.now, w)
		return w
	}
	first, short, second := in(90, InLine), in(40, OneCall), in(30, InLine)
	seq := n.Holder.open.Seq
	n.Line.join(seq)
	n.Line.give(first, 50, pool.Draw{Epoch: n.Holder.heard.epoch, Running: n.Holder.heard.running}, FromGrant)
	first.until = d.now.Add(time.Second)
	later := in(10, InLine)
	// when the first one goes,
	n.Cancel(d.now, first)
	// then the other in line is served, and what is left waits for a call.
	testkit.Check(t, n.told.OK() && n.told.Took == 30 && !second.waiting, "%+v", n.told)
	testkit.Check(t, short.got == 0 && later.got == 0 && n.Holder.unused.sum() == 20, "%d, %d, and %v unused", short.got,
		later.got, n.Holder.unused)
	// One that has a part is in the place of the first: it passes on what it was given, to those that were
	// there.
	n.Line.join(seq + 1)
	n.Line.give(later, 4, pool.Draw{Epoch: n.Holder.heard.epoch, Running: n.Holder.heard.running}, FromGrant)
	later.until = d.now.Add(time.Second)
	last := in(10, InLine)
	n.Line.join(seq + 2)
	n.Cancel(d.now, later)
	testkit.Check(t, last.got == 0 && n.Holder.unused.sum() == 24, "it has %d, and %v are unused", last.got, n.Holder.unused)
}
