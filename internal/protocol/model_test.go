package protocol

import (
	"cmp"
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/mutant"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

var flagStates = flag.Int("lease.states", 0,
	"how many states each instance of the model checker may explore")

// model is one small instance: which holders, limits and faults there are. The checker explores every order
// in which they can happen, over the real Bucket and the real holding (model_world_test.go).
type model struct {
	name    string
	holders int // 0 means 2
	limit   lease.Limit
	e       int64
	ttl     int64 // microseconds; 0 means modelTTL, for a window windowTTL
	ttl2    int64 // microseconds; T changes between it and ttl, both ways; 0: it does not
	want    int64 // 0 means 1

	tick     int64 // microseconds that pass in one event; 0 means 1, for a window windowTick
	inflight int   // messages on their way, per holder; 0 means 1
	moves    moves
	// alternative limits are set instead of limit, and the other way round; limit stays the last of
	// them. Where there are versions, all holders but the first propose them instead, and the
	// bucket is forgotten when its time has come.
	// Where there are turns, the first proposes limit after the alternative ones, the others these
	// alone, with one version; and all requests wait, as a lease of one turn may be spent in another.
	alternative []lease.Limit
	instead     bool // the alternative limits stand in place of limit, with all kinds of requests
	versions    bool
	turns       bool
	back        int64   // microseconds by which the server's clock steps back, once; all requests wait
	headroom    float64 // of the first holder
	once        bool    // the bucket is lost, and T is set, no more than once
	startEmpty  bool
	before      []event // what has happened already

	mutant bool // the source lacks a rule: only what the promise says is checked, not why
}

// modelTTL is T, in microseconds; that of a window, whose cells are half milliseconds, is longer.
const (
	modelTTL   = 7
	windowTTL  = 3500
	windowTick = 500
)

// moves are the events that a model may have.
type moves uint16

const (
	canWait     moves = 1 << iota // requests that wait are served at the moment of the grant
	canGiveBack                   // tokens to the bucket
	canRefund                     // a token that was admitted
	canRetry                      // the open call
	canGiveUp                     // the open call, for another one
	canRepeat                     // messages may arrive twice, at any distance
	canEvict                      // the bucket may lose a holder's record
	canFlush                      // the bucket may be lost; a process that knows it calls first
	canLeave                      // requests that wait may have gone when they are served
	canCharge                     // a token that was used beyond what there was
	lossless                      // nothing is lost: shorter searches
	canCancel                     // requests that have a token may give it back, at any time
	canDraw                       // calls that lease nothing, where they can be

	canDoAll = canLeave - 1
)

func (m moves) has(one moves) bool { return m&one != 0 }

// perMicro is n tokens in per microseconds, the only rates that show anything within a T of a few ticks.
func perMicro(n, per, burst int64) lease.Limit {
	return lease.Limit{Tokens: n, Per: time.Duration(per) * time.Microsecond, Burst: burst}
}

// halfMillis is n tokens in a number of half milliseconds: two of them are the least cell.
func halfMillis(kind func(int64, time.Duration) lease.Limit, n, halves int64) lease.Limit {
	return kind(n, time.Duration(halves)*time.Millisecond/2)
}

func calendarFrom0(n int64, period time.Duration) lease.Limit { return lease.Calendar(n, period, 0) }

var models = []model{
	{name: "loss, reordering, duplicates, retry, give-up", limit: perMicro(1, 1, 1), inflight: 2,
		moves: canWait | canRetry | canGiveUp | canRepeat},
	{name: "give-back and eviction", limit: perMicro(1, 2, 2), tick: 3, want: 2, inflight: 2,
		moves: canGiveBack | canRetry | canGiveUp | canEvict | canRepeat},
	{name: "refund and overcommit", limit: perMicro(1, 2, 1), e: 1, tick: 2, want: 2,
		moves: canWait | canGiveBack | canRefund | canGiveUp},
	{name: "T changes both ways", limit: perMicro(1, 1, 1), ttl2: 14, tick: 3, inflight: 2,
		moves: canRetry | canGiveUp},
	{name: "loss of the bucket", limit: perMicro(1, 2, 1), tick: 3, inflight: 2,
		moves: canGiveBack | canRetry | canGiveUp | canFlush},
	{name: "everything, two holders", limit: perMicro(1, 1, 2), e: 1, want: 2, inflight: 2,
		moves: canDoAll},
	{name: "three holders", holders: 3, limit: perMicro(1, 1, 1), moves: canGiveUp},
	{name: "one holder, everything", holders: 1, limit: perMicro(1, 3, 1), e: 1, tick: 2, want: 2,
		moves: canDoAll},
	{name: "one holder, complete", holders: 1, limit: perMicro(1, 3, 1), tick: 3, moves: canGiveBack},
	{name: "requests that give up", limit: perMicro(1, 2, 2), tick: 2, want: 2, inflight: 2,
		moves: canWait | canLeave | canGiveUp | canEvict},
	{name: "requests that are cancelled", limit: perMicro(1, 3, 1), tick: 3, moves: canCancel | canGiveUp},
	{name: "refunds delivered again, later", limit: perMicro(1, 7, 2), tick: 4, inflight: 2,
		moves: canWait | canRefund | canGiveUp | canRepeat},
	{name: "limits change", limit: perMicro(1, 7, 1), tick: 2,
		alternative: []lease.Limit{perMicro(1, 1, 1), perMicro(1, 7, 1)}, moves: canWait},
	{name: "T changes and the bucket is lost", limit: perMicro(1, 3, 1), ttl2: 21, tick: 3,
		moves: canWait | canFlush},
	{name: "an older version is slower to fill", limit: perMicro(1, 42, 1), tick: 7,
		alternative: []lease.Limit{perMicro(1, 1, 1)}, versions: true, moves: canWait},
	{name: "charges and headroom", limit: perMicro(1, 2, 2), tick: 2, want: 2, inflight: 2, headroom: 0.5,
		moves: canWait | canGiveBack | canRefund | canGiveUp | canEvict | canCharge},
	{name: "charges, one holder", holders: 1, limit: perMicro(1, 3, 1), e: 1, tick: 2, want: 2, inflight: 2,
		moves: canDoAll&^canFlush | canCharge},
	{name: "limits of one version take turns", limit: perMicro(1, 42, 2), tick: 5, want: 2,
		alternative: []lease.Limit{perMicro(1, 1, 1)}, turns: true, moves: canWait | canRefund},
	{name: "draws and leases", limit: perMicro(1, 3, 2), tick: 4, inflight: 2,
		moves: canWait | canDraw | canGiveUp | canRepeat},
	{name: "draws, while T changes", limit: perMicro(1, 3, 1), ttl2: 28, tick: 7,
		moves: canWait | canDraw | canCancel},
	{name: "draws and the loss of the bucket", limit: perMicro(1, 3, 1), tick: 5,
		moves: canWait | canDraw | canRefund | canFlush},
	{name: "a sliding window", limit: halfMillis(lease.Sliding, 1, 4),
		moves: canWait | canGiveBack | canGiveUp},
	{name: "a sliding window: what comes back", limit: halfMillis(lease.Sliding, 2, 3), want: 2,
		moves: canWait | canRefund | canLeave | canCancel | lossless},
	{name: "a sliding window: everything, one holder", holders: 1, limit: halfMillis(lease.Sliding, 2, 3),
		e: 1, want: 2, inflight: 2, moves: canDoAll&^canFlush | canCharge | canDraw},
	{name: "a sliding window while T changes", limit: halfMillis(lease.Sliding, 1, 3), ttl2: 7000,
		moves: canWait | canEvict},
	{name: "a sliding window is lost", limit: halfMillis(lease.Sliding, 1, 2), startEmpty: true, once: true,
		moves:  canWait | canFlush,
		before: []event{{eventOpen, 0, askWaiting}, {eventDeliver, 0, 0}, {eventDeliver, 0, 0}, {}, {}, {}, {}}},
	{name: "a calendar", limit: halfMillis(calendarFrom0, 1, 4), moves: canWait | canGiveBack | canGiveUp},
	{name: "a calendar: what comes back", limit: halfMillis(calendarFrom0, 2, 3), want: 2,
		moves: canWait | canRefund | canLeave | canCancel | lossless},
	{name: "a calendar: charges, draws and evictions", limit: halfMillis(calendarFrom0, 2, 3),
		moves: canWait | canCharge | canDraw | canEvict | canRepeat},
	{name: "a calendar comes and goes beside a window", limit: halfMillis(lease.Sliding, 1, 3),
		moves:       canWait | canGiveBack,
		alternative: []lease.Limit{halfMillis(calendarFrom0, 1, 4), halfMillis(lease.Sliding, 1, 3)}},
	{name: "a window gives way to a bucket, and comes back", limit: halfMillis(lease.Sliding, 1, 4),
		moves: canWait | canGiveBack, instead: true, turns: true, alternative: []lease.Limit{perMicro(1, 500, 1)}},
	{name: "a calendar gives way to a window, and comes back", limit: halfMillis(calendarFrom0, 2, 6),
		moves: canWait | canGiveBack, instead: true, turns: true,
		alternative: []lease.Limit{halfMillis(lease.Sliding, 1, 2)}},
	{name: "a bucket gives way to a window, and comes back", limit: perMicro(1, 3000, 2), ttl: 3500,
		tick: 500, moves: canWait | canGiveBack, instead: true, turns: true,
		alternative: []lease.Limit{halfMillis(lease.Sliding, 1, 2)}},
	{name: "limits take turns, and leases come back", limit: perMicro(1, 42, 2), tick: 5, want: 2,
		alternative: []lease.Limit{perMicro(1, 1, 2)}, turns: true, instead: true,
		moves: canWait | canGiveBack},
	{name: "a calendar while the clock steps back", limit: halfMillis(calendarFrom0, 1, 4), back: 1000,
		moves: canWait},
	{name: "two holders, no faults but loss", limit: perMicro(1, 3, 1), tick: 2},
}

// shortModels are the instances of a short run: most faults, draws beside leases, a window.
var shortModels = []string{"everything, two holders", "draws and leases", "a sliding window: what comes back"}

// TestModel explores every instance breadth first: no order of events breaks (1), forges a token,
// or leaves the ledger below the truth.
func TestModel(t *testing.T) {
	if running := mutant.Running(); running != "" {
		i := slices.IndexFunc(mutations, func(m mutation) bool { return m.name == running })
		m := *mutations[i].model
		m.mutant = true
		r := m.explore(1_500_000)
		testkit.Must(t, r.violation == "", "%s: %s\n%s", r.summary(), r.violation, r.trace)
		t.Skip(r.summary())
	}
	long := testkit.Long(t, fmt.Sprint(len(shortModels)), fmt.Sprintf("%d instances", len(models)))
	for _, m := range mutations {
		if m.model == nil || !long && !m.short {
			continue
		}
		r := m.model.explore(testkit.PlainOrRace(5_000, 1_000))
		testkit.Check(t, r.violation == "", "%s, as designed: %s\n%s", m.name, r.violation, r.trace)
	}
	total, budget := 0, cmp.Or(*flagStates, testkit.PlainOrRace(100_000, 2_000))
	for _, m := range models {
		if !long && !slices.Contains(shortModels, m.name) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			r := m.explore(budget)
			total += r.states
			t.Logf("%s", r.summary())
			testkit.Check(t, r.violation == "", "%s\n%s", r.violation, r.trace)
		})
	}
	t.Logf("%d states in all; explore more with -lease.states=N", total)
}

type result struct {
	states    int
	depth     int  // every order of that many events was explored
	complete  bool // there are no more states
	violation string
	trace     string
	length    int // of the trace
}

func (r result) summary() string {
	switch {
	case r.violation != "":
		return fmt.Sprintf("%d states, broken after %d events", r.states, r.length)
	case r.complete:
		return fmt.Sprintf("%d states: complete, the longest way to one is %d events", r.states, r.depth)
	}
	return fmt.Sprintf("%d states: every order of %d events", r.states, r.depth)
}

// tree has the explored states: the states in the order in which they were found, each as the event that led
// to it from its parent.
type tree struct {
	model
	parents []uint32
	causes  []event
	// The worlds on the way to the state that was looked at last, by depth, and their numbers. States are
	// looked at in the order in which they were found, so the next one shares most of its way.
	worlds  []*world
	numbers []int
}

// world is the state of the given number and depth. It is valid until the next call.
func (x *tree) world(number, depth int) *world {
	if depth == len(x.worlds) {
		x.worlds, x.numbers = append(x.worlds, new(world)), append(x.numbers, -1)
	}
	if x.numbers[depth] != number {
		x.numbers[depth] = number
		if depth == 0 {
			x.worlds[0] = newWorld(x.model)
		} else {
			x.world(int(x.parents[number]), depth-1).copyTo(x.worlds[depth])
			x.worlds[depth].apply(x.causes[number])
		}
	}
	return x.worlds[depth]
}

// explore searches breadth first until budget states are known, so that the first violation found has the
// shortest trace. All that is kept of a state is a 64-bit hash of its description, and its place in the tree.
func (m model) explore(budget int) result {
	x := &tree{model: m, parents: []uint32{0}, causes: []event{{}}}
	var d describer
	var events []event
	var text []byte
	after, seed, seen := new(world), maphash.MakeSeed(), map[uint64]bool{}
	isNew := func(w *world) bool {
		text = d.describe(text[:0], w)
		before := len(seen)
		seen[maphash.Bytes(seed, text)] = true
		return len(seen) > before
	}
	isNew(x.world(0, 0))
	for depth, first := 0, 0; ; depth++ {
		end := len(x.parents) // of the states of this depth
		if first == end {
			return result{states: end, depth: depth - 1, complete: true}
		}
		for number := first; number < end; number++ {
			w := x.world(number, depth)
			events = w.events(events[:0])
			for _, e := range events {
				w.copyTo(after)
				violation := after.apply(e)
				if violation == "" && !isNew(after) {
					continue
				}
				x.parents, x.causes = append(x.parents, uint32(number)), append(x.causes, e)
				if violation != "" {
					trace := x.trace()
					return result{
						states: len(x.parents), violation: violation,
						trace: strings.Join(trace, "\n"), length: len(trace),
					}
				}
			}
			if len(x.parents) >= budget {
				return result{states: len(x.parents), depth: depth}
			}
		}
		first = end
	}
}

// trace tells what happened on the way to the last state.
func (x *tree) trace() (lines []string) {
	var way []event
	for i := uint32(len(x.parents) - 1); i != 0; i = x.parents[i] {
		way = append(way, x.causes[i])
	}
	slices.Reverse(way)
	w := newWorld(x.model)
	for i, e := range way {
		line := w.tell(e)
		w.apply(e)
		lines = append(lines, fmt.Sprintf("%3d  %-62s %s", i+1, line, w.sketch()))
	}
	return lines
}
