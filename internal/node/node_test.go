package node

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

const (
	ms      = time.Millisecond
	timeout = 160 * ms
	start   = clock.Instant(time.Hour)
)

// world is one Node with a clock that the test moves. Its draws are numbers.
type world struct {
	t *testing.T
	Node[int]
	now clock.Instant
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: start}
	w.Init(protocol.NewBreaker(100*ms, 500*ms, 1), timeout)
	return w
}

func (w *world) check(ok bool, format string, args ...any) {
	w.t.Helper()
	testkit.Check(w.t, ok, format, args...)
}

// send sends a batch of leases.
func (w *world) send() *Batch {
	w.t.Helper()
	testkit.Must(w.t, w.Open(), "the node takes no batch")
	b := new(Batch)
	w.Send(b, w.now, w.now)
	return b
}

// depart checks which draws go now, and which are stranded.
func (w *world) depart(want, stranded []int) (again time.Duration) {
	w.t.Helper()
	batch, left, again := w.Depart(w.now)
	w.check(slices.Equal(batch, want) && slices.Equal(left, stranded),
		"%v go and %v are stranded, want %v and %v", batch, left, want, stranded)
	return again
}

func TestCallsAreHeldBackForAWindow(t *testing.T) {
	w := newWorld(t)
	// Given that nothing was sent yet, a call may go at once.
	w.check(w.Gate(w.now, false), "the first call is held back")
	first := w.send()
	// When a batch has just gone, calls wait for the rest of the window, urgent or not,
	w.now = w.now.Add(Window - 1)
	held := !w.Gate(w.now, false) && !w.Gate(w.now, true)
	w.check(held && w.Next() == start.Add(Window), "next at %v", w.Next())
	// but an urgent one goes when the batch has landed, which is told once.
	w.check(!w.Hold(), "an urgent call goes while a batch is under way")
	w.check(w.Landed(first) && !w.Landed(first), "the end of the only batch does not free the urgent call once")
	w.check(w.Gate(w.now, true) && !w.Gate(w.now, false), "with nothing under way urgent calls alone may go")
	w.check(w.Hold(), "an urgent call is held back though nothing is under way")
	w.now = w.now.Add(1)
	w.check(w.Gate(w.now, false), "a call is held back for longer than a window")
}

func TestAnUrgentCallWaitsForTheLastOfSeveralBatches(t *testing.T) {
	w := newWorld(t)
	one, two := w.send(), w.send()
	w.Hold()
	w.check(!w.Landed(two) && w.Landed(one), "freed by the first of two")
}

func TestDrawsGoWhileNoneIsUnderWay(t *testing.T) {
	w := newWorld(t)
	// Given one draw, it goes at once.
	w.Join(1, w.now)
	w.check(w.depart([]int{1}, nil) == 0, "comes again")
	b := &Batch{Draws: true}
	w.Send(b, w.now, w.now)
	// When more come while it is under way, they wait for it,
	w.Join(2, w.now)
	w.Join(3, w.now)
	w.check(w.depart(nil, nil) == Window, "a draw does not wait for a window")
	w.Landed(b)
	w.Over(b)
	w.depart([]int{2, 3}, nil)
	// or for a window, if that is shorter,
	w.Join(4, w.now)
	w.now = w.now.Add(Window)
	w.depart([]int{4}, nil)
	// and as many as fill a batch wait for nothing.
	for i := range BatchSize + 1 {
		w.Join(i, w.now)
	}
	batch, _, again := w.Depart(w.now)
	w.check(len(batch) == BatchSize && again > 0, "%d go, the rest in %v", len(batch), again)
	w.now = w.now.Add(Window)
	w.depart([]int{BatchSize}, nil)
}

// If round trips get longer, as on a machine that is short of CPU, batches get larger and not more.
func TestSlowRoundTripsMakeLargerBatches(t *testing.T) {
	w := newWorld(t)
	takes := func(times int, d time.Duration) {
		for range times {
			w.Reached(w.now, d)
		}
	}
	takes(5, 100*ms)
	// Given a request each millisecond, and answers after 100 ms,
	sent, largest := 0, 0
	for i := range 200 {
		w.Join(i, w.now)
		if draws, _, _ := w.Depart(w.now); len(draws) > 0 {
			w.Send(&Batch{Draws: true}, w.now, w.now)
			sent, largest = sent+1, max(largest, len(draws))
		}
		w.now = w.now.Add(ms)
	}
	// then some two batches are under way at a time, for draws and for leases alike.
	w.check(sent >= 4 && sent <= 5 && largest >= 50, "%d batches in 200 ms, the largest of %d", sent, largest)
	w.send()
	w.next(50 * ms)
	// However long they take, there are no more,
	takes(5, 4*timeout)
	w.next(timeout / 2)
	// one slow answer, or two, make none wait,
	takes(3, ms)
	w.next(Window)
	takes(2, 4*timeout)
	w.next(Window)
	// three do, until three are short again, though no longer than for half of CallTimeout: after a hang of
	// 30 s all five are as long, and say nothing of what comes.
	takes(1, 4*timeout)
	w.next(timeout / 2)
	takes(3, ms)
	w.next(Window)
}

// next checks how long after the last batch the next call may go.
func (w *world) next(want time.Duration) {
	w.t.Helper()
	got := w.Next().Sub(w.sentAt)
	w.check(got == want && !w.Gate(w.sentAt.Add(got-1), true), "the next call may go after %v, want %v", got, want)
}

func TestDrawsThatCannotGoInTimeAreStranded(t *testing.T) {
	w := newWorld(t)
	// Given a batch of draws that does not come back,
	w.Join(1, w.now)
	w.depart([]int{1}, nil)
	for w.Open() { // and no room for another one
	}
	// then draws wait for CallTimeout, and not for longer,
	w.Join(2, w.now)
	w.now = w.now.Add(timeout / 2)
	w.Join(3, w.now)
	w.check(w.depart(nil, nil) > 0, "a draw that waits is forgotten")
	w.now = start.Add(timeout)
	w.check(w.depart(nil, []int{2}) > 0, "a draw that waits is forgotten")
	// and not at all where the node is away.
	w.breaker.Failed(w.now, w.now)
	w.depart(nil, []int{3})
}

func TestABatchIsOverdueInTime(t *testing.T) {
	for name, c := range map[string]struct {
		rtt, since           time.Duration // the oldest draw came so long before
		takenOver, overdue   time.Duration
		connected, forgotten time.Duration
	}{
		"a fast network":                 {0, 0, 150 * ms, 150 * ms, 800 * ms, 1600 * ms},
		"a slow one":                     {100 * ms, 0, 150 * ms, 200 * ms, 800 * ms, 1600 * ms},
		"a very slow one":                {500 * ms, 0, 150 * ms, 1000 * ms, 1000 * ms, 1600 * ms},
		"slower than anything waits":     {5000 * ms, 0, 150 * ms, 1600 * ms, 1600 * ms, 1600 * ms},
		"draws that were held back":      {0, 100 * ms, 50 * ms, 150 * ms, 800 * ms, 1600 * ms},
		"draws that were held back long": {0, 900 * ms, 0, 150 * ms, 800 * ms, 1600 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if c.rtt > 0 {
				w.Reached(w.now, c.rtt)
				w.check(w.RTT() >= c.rtt && w.RTT() < c.rtt+c.rtt/8, "a round trip of %v counts as %v", c.rtt, w.RTT())
			}
			near := func(at clock.Instant, want time.Duration) bool { // round trips are kept in classes
				return at.Sub(start) >= want && at.Sub(start) <= want+want/8
			}
			w.Open()
			b := &Batch{Draws: true}
			w.Send(b, w.now, w.now.Add(-c.since))
			w.check(near(b.due[dueTakenOver], c.takenOver) && near(b.due[dueOverdue], c.overdue) &&
				near(b.due[dueConnected], c.connected) && near(b.due[dueForgotten], c.forgotten), "due at %v",
				b.due)
			// Late names it at each of these times, and forgets it at the last.
			for passed := 0; passed < dueTimes; {
				w.now = w.LookAt()
				due, forgotten := w.Late(w.now)
				w.check(slices.Equal(due, []*Batch{b}) && b.passed > passed, "nothing is due at %v", w.now)
				passed = b.passed
				w.check((len(forgotten) == 1) == (passed == dueTimes), "forgotten after %d of %d", passed, dueTimes)
				w.check(b.Overdue(w.now) == (w.now >= b.due[dueOverdue]), "overdue at %v: %v", w.now, b.Overdue(w.now))
			}
			w.Over(b)
			w.check(w.LookAt() == protocol.Never && len(w.UnderWay()) == 0, "looks at %v", w.LookAt())
		})
	}
}

func TestACallHasItsTimeFromWhenItIsSent(t *testing.T) {
	w := newWorld(t)
	b := w.send()
	overdue, connected := start.Add(150*ms), start.Add(800*ms)
	w.check(b.Fails(w.now, true, 0) == overdue, "sent at once: %v", b.Fails(w.now, true, 0))
	late := b.Fails(w.now, true, 70*ms)
	w.check(late == overdue.Add(70*ms), "after a handshake: %v", late)
	// One that is not sent yet fails no earlier than it could have if it were sent now,
	w.now = w.now.Add(300 * ms)
	w.check(b.Fails(w.now, false, 0) == w.now.Add(150*ms), "unsent: %v", b.Fails(w.now, false, 0))
	// and when no connection has come about.
	w.now = connected.Add(-ms)
	w.check(b.Fails(w.now, false, 0) == connected, "unsent for long: %v", b.Fails(w.now, false, 0))
	// Late comes back to it when it is told to.
	w.now = start.Add(150 * ms)
	w.Late(w.now)
	w.Again(b, w.now.Add(20*ms))
	w.check(w.LookAt() == w.now.Add(20*ms), "looks at %v", w.LookAt())
	w.now = w.LookAt()
	due, _ := w.Late(w.now)
	w.check(slices.Equal(due, []*Batch{b}) && w.LookAt() == connected, "%v is due, looks at %v", due, w.LookAt())
}

// A process that was stopped may not have read the answers yet.
func TestAStoppedProcessGivesNothingUpAtOnce(t *testing.T) {
	w := newWorld(t)
	b := w.send()
	w.now = start.Add(5 * time.Second)
	due, forgotten := w.Late(w.now)
	w.check(due == nil && forgotten == nil && w.LookAt() == w.now.Add(timeout/4), "%v, %v, looks at %v", due,
		forgotten, w.LookAt())
	w.now = w.LookAt()
	due, forgotten = w.Late(w.now)
	w.check(slices.Equal(due, []*Batch{b}) && slices.Equal(forgotten, due), "%v, %v", due, forgotten)
}

func TestBatchesUnderWayAreBounded(t *testing.T) {
	w := newWorld(t)
	var all []*Batch
	for range BatchesMax {
		all = append(all, w.send())
	}
	w.check(w.Full() && !w.Open(), "%d batches are not all", len(all))
	w.Over(all[7])
	w.check(!w.Full() && w.Open(), "the end of one makes no room")
	w.Cancel()
	w.check(w.Open(), "one that is not sent takes room")
	w.check(len(w.UnderWay()) == BatchesMax-1, "%d are under way", len(w.UnderWay()))
}
