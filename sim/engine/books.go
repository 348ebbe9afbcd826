package engine

import (
	"fmt"
	"math"
	"slices"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// books record what is asked and decided. They hold every admission against the promise, compare
// the fleet with one central bucket and with its rivals, and follow every token from the bucket
// that granted it to where it ended. At the end of a run, a holder has accepted what a bucket
// granted to it in that call, and once; what it accepted was admitted, returned, burnt or is held;
// and what holders admitted went to requests.
type books struct {
	time    *agenda
	central []rival.Central // of each key
	score                   // the fleet's
	waits   report.Waits
	rivals  []*contender
	numbers []int // of each process, its number as rivals know it

	requests   int64 // ever
	granted    int64 // tokens, by all buckets
	taken      int64 // of it: accepted by holders
	toRequests int64 // tokens that requests were admitted with, and have kept
	unadmitted int64 // tokens that they were admitted with, and that were cancelled
	ended      protocol.Account
	wrong      error // the first thing that is

	// What follows is counted since the warm-up, in tokens.
	offered, centralAdmitted int64
	offeredBy                []int64
	spans                    report.Spans // of the fleet and its rivals, in this order
	degraded                 int64        // admitted without the store
	shadowed                 int64        // denied, and admitted all the same
	charged, refunded        int64        // cost more than was reserved; reserved and given back
	classes                  []class
	burntBefore              int64 // in the warm-up
	faults                   int
}

// newBooks opens the books of a fleet. The rivals number those processes first that run at the
// start.
func newBooks(now *agenda, s *scenario.Scenario, f *fleet, seed uint64) (books, error) {
	keys, processes := s.Keys.Count, len(f.processes)
	b := books{
		time: now, score: newScore(s, f, s.Policy.Overcommit), waits: report.NewWaits(s.Duration),
		numbers: make([]int, processes), offeredBy: make([]int64, processes),
	}
	b.classes = classesOf(f.groups)
	limits := fromStart(s.Limits)
	central, err := rival.NewCentral(limits)
	if err != nil {
		return books{}, err
	}
	b.central = slices.Repeat([]rival.Central{central}, keys)
	var order, later []*process
	for _, g := range f.groups {
		order, later = append(order, g.members[:g.Count]...), append(later, g.members[g.Count:]...)
	}
	known := rival.Fleet{Processes: len(order), Limits: limits, Keys: keys}
	for i, p := range append(order, later...) {
		b.numbers[p.index] = i
		known.Weights = append(known.Weights, p.group.Weight)
	}
	for _, name := range s.Rivals {
		c := &contender{score: newScore(s, f, 0)}
		its := known
		if rival.IsRemote(name) {
			c.remote = &remote{network: f.network, stream: random.New(seed, streamRivals), waits: report.NewWaits(s.CallTimeout)}
			c.remote.settle = func(a *ask, at int64, ok bool) { c.decided(&a.request, at, ok) }
			its.Local, its.Store, its.Keys = c.remote.local, c.remote.store, (keys+s.Redis.Shards-1)/s.Redis.Shards
		}
		a, err := rival.New(name, its)
		if err != nil {
			return books{}, fmt.Errorf("%w: rivals: %w", scenario.ErrInvalidScenario, err)
		}
		if c.remote != nil {
			c.remote.start(a.(rival.Remote))
		} else {
			c.Algorithm = a
		}
		b.rivals = append(b.rivals, c)
	}
	weights := make([]int64, processes)
	for i, p := range f.processes {
		weights[i] = p.group.Weight
	}
	b.spans = report.NewSpans(weights, 1+len(b.rivals))
	return b, nil
}

// runs books that p begins to run, or ends.
func (b *books) runs(p *process, yes bool) {
	b.advance()
	b.spans.Runs(p.index, yes, b.time.now, b.count)
}

// advance brings the rivals that ask Redis to the present. It comes before whatever changes their
// world, or looks at them.
func (b *books) advance() {
	for _, c := range b.rivals {
		if c.remote != nil {
			c.remote.advance(b.time.now)
		}
	}
}

// fault begins a fault of the rivals' Redis.
func (b *books) fault(f *scenario.RedisFault) {
	for _, c := range b.rivals {
		if c.remote != nil {
			c.remote.fault(f)
		}
	}
}

// snapshot is the last that the replicas of the rivals' Redis hear which a failover promotes.
func (b *books) snapshot(f *scenario.RedisFault) {
	b.advance()
	for _, c := range b.rivals {
		if c.remote != nil {
			c.remote.snapshot(f)
		}
	}
}

// count is what spans are made of.
func (b *books) count() report.Count {
	c := report.Count{Asked: b.offeredBy, Admitted: []int64{b.tally.OfFirst()}}
	for _, r := range b.rivals {
		c.Admitted = append(c.Admitted, r.tally.OfFirst())
	}
	return c
}

// asked books a request, which one central bucket decides at once, and so do the rivals that do not
// ask Redis for it.
func (b *books) asked(r *request) {
	us := b.time.now / 1000
	r.central = b.central[r.key].Take(us, r.n)
	b.requests++
	b.offered += r.n
	if r.central {
		b.centralAdmitted += r.n
	}
	if r.key == 0 {
		b.offeredBy[r.p.index] += r.n
	}
	if b.classes != nil {
		b.classes[r.p.group.class].offered += r.n
	}
	for _, c := range b.rivals {
		if n := b.numbers[r.p.index]; c.remote != nil {
			c.remote.send(r, n)
		} else {
			c.decided(r, b.time.now, c.Decide(us, n, int(r.key), r.n))
		}
	}
}

// answered books what became of a request. tokens is how many of the bucket's it was admitted with:
// none where that was done without the store.
func (b *books) answered(r *request, ok bool, tokens int64) {
	b.tally.Decided(r.p.index, r.key, r.n, r.central, ok)
	if !ok {
		return
	}
	if b.classes != nil {
		b.classes[r.p.group.class].admitted += r.n
	}
	if tokens == 0 {
		b.degraded += r.n
		b.audit.Admit(b.time.now, r.key, r.n)
	}
	b.toRequests += tokens
	b.waits.Add(b.time.now - r.at)
}

// shadow books a request that was denied, and goes on all the same. It takes no token, so it is no
// admission.
func (b *books) shadow(r *request) {
	b.shadowed += r.n
	if b.classes != nil {
		b.classes[r.p.group.class].shadowed += r.n
	}
}

// chargedBy books that a request to e has used n tokens more than it reserved.
func (b *books) chargedBy(e *entry, n int64) {
	e.charged += n
	b.charged += n
}

// owing holds a client to telling the bucket, in each call, all that was charged and that no reply
// has confirmed. A call that is sent again is what it was.
func (b *books) owing(e *entry, r *lease.Request) {
	if owed := e.charged - e.paid; r.Charge > owed || r.Charge < owed && r.Seq == e.p.seq {
		b.complain("process %d, key %d owes %d tokens and tells the bucket of %d", e.p.index, e.key, owed, r.Charge)
	}
}

// cancelled books that an admitted request did not happen.
func (b *books) cancelled(r *request) {
	b.toRequests -= r.n
	b.unadmitted += r.n
	b.refunded += r.n
}

// left holds a process and its bucket to the headroom of the process's group: a call that was
// granted anything has left that part of every burst in the bucket.
func (b *books) left(c *call, levels []int64) {
	headroom := c.entry.p.group.Headroom
	for k, l := range c.grant.Config.Limits {
		keeps := int64(math.Ceil(float64(l.Capacity()) * headroom))
		if c.grant.Granted > 0 && levels[k] < keeps {
			b.complain("process %d, key %d: a call that leaves %v of the burst was granted %d, and the level of %v is %d",
				c.entry.p.index, c.entry.key, headroom, c.grant.Granted, l, levels[k])
		}
	}
}

// scores are the fleet's and its rivals'.
func (b *books) scores() []*score {
	all := []*score{&b.score}
	for _, c := range b.rivals {
		all = append(all, &c.score)
	}
	return all
}

// point is for each point of the series.
func (b *books) point() {
	b.advance()
	b.spans.Point(b.time.now, b.count)
	for _, s := range b.scores() {
		s.accuracy.Point(s.decided(b.centralAdmitted))
	}
}

// turn begins a phase.
func (b *books) turn(to report.Phase) {
	b.advance()
	for _, s := range b.scores() {
		s.accuracy.Turn(to, s.decided(b.centralAdmitted))
	}
}

// warm ends the warm-up.
func (b *books) warm(entries []*entry) {
	b.advance()
	b.burntBefore = b.burnt(entries)
	for _, s := range b.scores() {
		s.accuracy.Warm(s.decided(b.centralAdmitted))
	}
	b.offered, b.centralAdmitted, b.degraded, b.shadowed, b.charged, b.refunded = 0, 0, 0, 0, 0, 0
	clear(b.offeredBy)
	b.spans.Reset(b.time.now)
	for i := range b.classes {
		c := &b.classes[i]
		c.offered, c.admitted, c.shadowed = 0, 0, 0
	}
	b.tally.Reset()
	b.waits.Reset()
	for _, c := range b.rivals {
		c.tally.Reset()
		if c.remote != nil {
			c.remote.warm()
		} else {
			c.tripsWarm = c.RoundTrips()
		}
	}
}
