package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// books records all requests and decisions. The books audit every admission against the promise, and compare
// the fleet with one central bucket and with the rivals. The books also check that no token is lost or
// forged: a holder accepts the grant of a call once; accepted tokens are admitted, returned, burnt or held;
// and every token that holders admitted belongs to a request.
type books struct {
	time    *agenda
	central []rival.Central // one central bucket per key
	score                   // score of the fleet
	audit   audit.Auditor
	waits   report.Waits // waiting times of admitted requests
	denials report.Waits // waiting times of denied requests
	rivals  []*contender

	requests   int64 // number of requests in the whole run
	granted    int64 // tokens granted by all buckets
	taken      int64 // tokens of granted that holders accepted
	toRequests int64 // tokens admitted for requests
	ended      protocol.Account
	wrong      error // error of the first failed check

	// Tokens since the warm-up:
	offered, centralAdmitted int64
	offeredBy                []int64
	spans                    report.Spans // admissions of the fleet, and then of its rivals
	degraded                 int64        // tokens admitted without the store
	shadowed                 int64        // tokens denied, but used in shadow mode
	charged, refunded        int64        // final costs beyond reservations; reserved tokens given back
	classes                  []class
	burntBefore              int64 // tokens burnt in the warm-up
	faults                   int
}

// newBooks opens the books of a fleet. Rivals number the processes that run at the start before all others.
func newBooks(now *agenda, s *scenario.Scenario, f *fleet, seed uint64) (books, error) {
	keys, processes := s.Keys.Count, len(f.processes)
	b := books{
		time: now, score: score{tally: report.NewTally(processes, keys)}, audit: newAuditor(s, s.Policy.Overcommit),
		waits: report.NewWaits(s.Duration), denials: report.NewWaits(s.Duration),
		offeredBy: make([]int64, processes), classes: classesOf(f.groups),
	}
	limits := fromStart(s.Limits)
	central, err := rival.NewCentral(limits)
	if err != nil {
		return books{}, err
	}
	b.central = slices.Repeat([]rival.Central{central}, keys)
	var order, later []*process
	weights := make([]int64, processes)
	for _, g := range f.groups {
		order, later = append(order, g.members[:g.Count]...), append(later, g.members[g.Count:]...)
	}
	known := rival.Fleet{Processes: len(order), Limits: limits, Keys: keys}
	for i, p := range append(order, later...) {
		p.number = i
		known.Weights = append(known.Weights, p.group.Weight)
		weights[p.index] = p.group.Weight
	}
	for _, name := range s.Rivals {
		c := &contender{score: score{tally: report.NewTally(processes, keys)}, audit: newAuditor(s, 0)}
		its := known
		if rival.IsRemote(name) {
			c.remote = &remote{network: f.network, contender: c, stream: random.New(seed, streamRivals),
				waits: report.NewWaits(s.CallTimeout)}
			its.Local, its.Keys = c.remote.local, (keys+s.Redis.Shards-1)/s.Redis.Shards
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
	b.spans = report.NewSpans(weights, 1+len(b.rivals))
	return b, nil
}

func (b *books) runs(p *process, yes bool) {
	b.advance()
	b.spans.Runs(p.index, yes, b.time.now, b.count)
}

// advance advances the remote rivals to the present. Every change and use of the state of remote rivals needs
// an advance before it.
func (b *books) advance() {
	for _, c := range b.rivals {
		if c.remote != nil {
			c.remote.advance(b.time.now)
		}
	}
}

func (b *books) count() report.Count {
	c := report.Count{Asked: b.offeredBy, Admitted: []int64{b.tally.OfFirst()}}
	for _, r := range b.rivals {
		c.Admitted = append(c.Admitted, r.tally.OfFirst())
	}
	return c
}

// asked records a request. The central bucket and the local rivals decide the request at once. At the central
// bucket, the request may wait in line as long as in the fleet.
func (b *books) asked(r *request) {
	us := b.time.now / 1000
	r.central = b.central[r.key].TakeWithin(us, r.n, r.p.group.inLine)
	b.requests++
	b.offered += r.n
	if r.central {
		b.centralAdmitted += r.n
	}
	if r.key == 0 {
		b.offeredBy[r.p.index] += r.n
	}
	b.classes[r.p.group.class].offered += r.n
	for _, c := range b.rivals {
		if c.remote != nil {
			c.remote.send(r)
		} else {
			c.decided(r, b.time.now, c.Decide(us, r.p.number, int(r.key), r.n))
		}
	}
}

// answered records the decision about a request. tokens is the number of bucket tokens that admitted the
// request: 0 for an admission without the store.
func (b *books) answered(r *request, ok bool, tokens int64) {
	b.tally.Decided(r.p.index, r.key, r.n, r.central, ok)
	if !ok {
		b.denials.Add(b.time.now - r.at)
		return
	}
	b.classes[r.p.group.class].admitted += r.n
	if tokens == 0 {
		b.degraded += r.n
		b.audit.Admit(b.time.now, r.key, r.n)
	}
	b.toRequests += tokens
	b.waits.Add(b.time.now - r.at)
}

// shadow records a denied request that proceeds in shadow mode. A shadow request takes no token.
func (b *books) shadow(r *request) {
	b.shadowed += r.n
	b.classes[r.p.group.class].shadowed += r.n
}

// owing checks that each new call of a client reports all charges that no reply has confirmed. A call that is
// sent again is unchanged, so it may report less than all charges.
func (b *books) owing(e *entry, r *lease.Request) {
	reported := protocol.Reported(r.Late, lease.LateCharge)
	if owed := e.charged - e.paid; reported > owed || reported < owed && r.Seq == e.p.seq {
		b.complain("process %d, key %d owes %d tokens, but reports %d", e.p.index, e.key, owed, reported)
	}
}

// centralServed returns the number of tokens that the central bucket has given to requests, without requests
// that still wait in line at the central bucket.
func (b *books) centralServed() int64 {
	n := b.centralAdmitted
	for i := range b.central {
		n -= b.central[i].Waiting(b.time.now / 1000)
	}
	return n
}

// compare advances the remote rivals, and records for the fleet and each rival how its decisions compare with
// those of the central bucket. compare returns centralServed.
func (b *books) compare(record func(a *report.Accuracy, d report.Decided)) (central int64) {
	b.advance()
	central = b.centralServed()
	record(&b.accuracy, b.decided(central))
	for _, c := range b.rivals {
		record(&c.accuracy, c.score.decided(central))
	}
	return central
}

func (b *books) turn(to report.Phase) {
	b.compare(func(a *report.Accuracy, d report.Decided) { a.Turn(to, d) })
}

func (b *books) warm(entries []*entry) {
	central := b.compare((*report.Accuracy).Warm)
	b.burntBefore = b.burnt(entries)
	b.centralAdmitted -= central // without requests that the central bucket will serve after the warm-up
	b.offered, b.degraded, b.shadowed, b.charged, b.refunded = 0, 0, 0, 0, 0
	clear(b.offeredBy)
	b.spans.Reset(b.time.now)
	for i := range b.classes {
		c := &b.classes[i]
		c.offered, c.admitted, c.shadowed = 0, 0, 0
	}
	b.tally.Reset()
	b.waits.Reset()
	b.denials.Reset()
	for _, c := range b.rivals {
		c.tally.Reset()
		c.tripsWarm += c.trips()
		if c.remote != nil {
			c.remote.waits.Reset()
		}
	}
}

// ErrNotConserved is wrapped by the error of a run whose books do not balance, a programming error.
var ErrNotConserved = errors.New("sim: tokens lost or forged")

// execution records the last call of an entry that a bucket has executed.
type execution struct {
	seq, granted int64
	accepted     bool          // the holder has accepted the grant; granted is then 0, and drawn empty
	drawn        []audit.Drawn // draws for waiting requests: one for each execution of the call
}

// executed records the grant of a call. A stored answer repeats an earlier grant.
func (b *books) executed(c *call, stored bool) {
	x := &c.entry.last
	if stored {
		c.time = int32(len(x.drawn))
		return
	}
	b.granted += c.grant.Granted
	if n := protocol.Reported(c.request.Late, lease.LateRefund); n > 0 && !c.grant.Void {
		b.audit.Refund(b.time.now, c.key, n)
	}
	if n := protocol.Reported(c.request.Late, lease.LateCharge); n > 0 {
		b.audit.Charge(b.time.now, c.key, n)
	}
	switch {
	case !c.entry.alive || c.request.Seq < x.seq || c.request.Seq == x.seq && x.accepted:
		return // the tokens are lost: a later call has closed this call, or the holder has accepted an answer
	case c.request.Seq == x.seq:
		x.granted += c.grant.Granted // the bucket had forgotten the first execution
	default:
		b.audit.Close(c.key, false, x.drawn...)
		*x = execution{seq: c.request.Seq, granted: c.grant.Granted, drawn: x.drawn[:0]}
	}
	x.drawn = append(x.drawn, b.audit.Open(b.time.now, c.key, c.grant.Waited))
	c.time = int32(len(x.drawn))
	b.lapse(c.entry)
}

// lapse closes the draws of e's last call when the holder no longer waits for the reply.
func (b *books) lapse(e *entry) {
	if x := &e.last; !e.state.AtRest() && len(x.drawn) > 0 && (x.seq != e.asked || !e.client.Holder.IsOpen()) {
		b.audit.Close(e.key, false, x.drawn...)
		x.drawn = x.drawn[:0]
	}
}

// accepted records a grant that has reached its holder, and returns the draws for waiting requests. accepted
// checks that the bucket made the grant, and that the holder accepts the grant only once.
func (b *books) accepted(c *call) (handed audit.Drawn) {
	e, g, x := c.entry, &c.grant, &c.entry.last
	b.taken += g.Granted
	e.paid += protocol.Reported(c.request.Late, lease.LateCharge)
	made := x.seq == g.Seq && !x.accepted && g.Granted <= x.granted
	if !made || c.time == 0 || int(c.time) > len(x.drawn) || x.drawn[c.time-1].N != g.Waited {
		b.complain("process %d accepted %d tokens of key %d, %d for waiting requests, in answer to call %d, "+
			"which was granted %+v",
			e.p.index, e.key, g.Granted, g.Waited, g.Seq, *x)
		return b.audit.Open(b.time.now, e.key, g.Waited)
	}
	handed = x.drawn[c.time-1]
	x.drawn[c.time-1].N = 0
	b.audit.Close(e.key, false, x.drawn...)
	x.granted, x.accepted, x.drawn = 0, true, x.drawn[:0]
	return handed
}

func (b *books) close(e *entry) {
	b.audit.Close(e.key, false, e.last.drawn...)
	b.ended = b.ended.Plus(b.accountOf(e))
}

func (b *books) accountOf(e *entry) protocol.Account {
	a := e.client.Holder.Account()
	if !a.Conserved() {
		b.complain("process %d, key %d: %+v", e.p.index, e.key, a)
	}
	return a
}

func (b *books) complain(format string, args ...any) {
	if b.wrong == nil {
		b.wrong = fmt.Errorf("%w: "+format, append([]any{ErrNotConserved}, args...)...)
	}
}

func (b *books) balance(entries []*entry) error {
	total, waiting := b.ended, int64(0)
	for _, e := range entries {
		if e.alive {
			total = total.Plus(b.accountOf(e))
			e.client.Line.Waiters(func(x *protocol.Waiter) { waiting += x.Got() })
		}
	}
	if total.Granted != b.taken {
		b.complain("holders were granted %d, and have accepted %d", total.Granted, b.taken)
	}
	if total.Admitted != b.toRequests+waiting {
		b.complain("holders admitted %d, requests got %d and hold %d while they wait", total.Admitted, b.toRequests,
			waiting)
	}
	return b.wrong
}

// burnt returns the number of leased tokens that were lost, by holders or on the way to a holder.
func (b *books) burnt(entries []*entry) int64 {
	n := b.ended.Burnt + b.granted - b.taken
	for _, e := range entries {
		if e.alive {
			n += e.client.Holder.Account().Burnt - e.last.granted // tokens of the last grant may still arrive
		}
	}
	return n
}

// class counts the tokens of the requests of all groups with the same headroom, since the warm-up.
type class struct {
	headroom                    float64
	groups                      []string
	offered, admitted, shadowed int64
}

type contender struct {
	score
	audit           audit.Auditor
	rival.Algorithm         // decides a request at once; nil for a remote rival
	remote          *remote // asks Redis for each request; nil for a local rival
	tripsWarm       int64   // number of round trips in the warm-up
}

// trips returns the number of round trips since the warm-up.
func (c *contender) trips() int64 {
	if c.remote != nil {
		return c.remote.sent - c.tripsWarm
	}
	return c.RoundTrips() - c.tripsWarm
}

func (c *contender) decided(r *request, at int64, ok bool) {
	if ok {
		c.audit.Admit(at, r.key, r.n)
	}
	c.tally.Decided(r.p.index, r.key, r.n, r.central, ok)
}

func classesOf(groups []*group) (classes []class) {
	for _, g := range slices.SortedStableFunc(slices.Values(groups), func(a, b *group) int {
		return cmp.Compare(a.Headroom, b.Headroom)
	}) {
		if n := len(classes); n == 0 || classes[n-1].headroom != g.Headroom {
			classes = append(classes, class{headroom: g.Headroom})
		}
		g.class = len(classes) - 1
		classes[g.class].groups = append(classes[g.class].groups, g.Name)
	}
	return classes
}
