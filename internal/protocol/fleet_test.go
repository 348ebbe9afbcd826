package protocol

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// fleetStart is the server's time at the beginning, far from 0 so that it can step back.
const fleetStart = 1_000_000_000_000

// fleet is some holders, one bucket, the network between them and the audit of all. Time is a plain integer.
type fleet struct {
	rnd    *rand.Rand
	logf   func(string, ...any)
	faults faults
	now    int64           // real microseconds
	offset int64           // of the server's clock
	config lease.Config    // that processes propose
	newer  lease.Config    // of processes with the newer version, or with another configuration of the same
	were   [][]lease.Limit // that an operator had set

	bucket  *Bucket
	unfair  bool    // see shareNothing
	expires int64   // when the store forgets the bucket, by the server's clock
	copied  *Bucket // what a lagging replica knows
	nodes   []*node
	net     []packet
	bounds  bounds

	seq, names int64
	calm       int   // how rare misfortunes are
	slack      int64 // tokens that the documented excesses of this schedule may add to the bound
	quietUntil int64 // before it the ledger may know less than the truth, by a fault
	lost       error
}

// node is one process: its half of the protocol and its clock.
type node struct {
	holder
	index    int
	ppm      int64 // drift
	newer    bool  // proposes fleet.newer
	headroom float64
	spent    int64           // admitted and not refunded
	gone     map[int64]int64 // by seq: of the requests that waited, those that give up
	// overshot counts what was used beyond what there was, usedBefore by the seq of the first call that can
	// tell of it, and charged as far as a call with it was executed.
	overshot, charged int64
	usedBefore        map[int64]int64
	drawn             pool.Draw // of tokens that are taken from now on, as was said a while ago
	reserved          []reserved
	sent              []*lease.Request // the latest
}

// reserved are tokens that a request had and will give back, at some time; pooled of them were
// taken from the pool.
type reserved struct {
	n, pooled int64
	draw      pool.Draw
}

type packet struct {
	due     int64
	node    *node
	request *lease.Request
	grant   *lease.Grant // of a reply
	err     error        // of a reply
}

func newFleet(rnd *rand.Rand, faults faults, logf func(string, ...any)) *fleet {
	f := &fleet{rnd: rnd, logf: logf, now: fleetStart, faults: faults, bucket: new(Bucket),
		calm: 1 + rnd.IntN(8)}
	f.bounds.refunded, f.bounds.unreported = make(map[refund]bool), make(map[*node]int64)
	f.bounds.clock, f.bounds.held = f.server, f.held
	f.unfair = rnd.IntN(3) == 0
	limits := 1 + max(0, rnd.IntN(5)-2)
	for range limits {
		f.config.Limits = append(f.config.Limits, f.randomLimit())
	}
	f.config.Limits = switchAlone(f.config.Limits)
	f.config.Overcommit = max(0, rnd.Int64N(6)-2)
	f.config.TTL = f.randomTTL()
	f.config.Target = time.Microsecond
	f.config.StartEmpty = rnd.IntN(8) == 0
	if f.faults.Windows {
		f.config.StartEmpty = rnd.IntN(2) == 0
	}
	f.newer = f.config
	if f.faults.Versions {
		f.newer.Version.Deploy = 1
	}
	f.newer.Limits = f.otherLimits(f.config.Limits)
	if SwitchOf(f.config.Limits) == SwitchNone && rnd.IntN(2) == 0 && len(f.config.Limits) < lease.LimitsMax {
		f.newer.Limits = append(slices.Clone(f.config.Limits), lease.Limit{Tokens: 1, Per: time.Millisecond,
			Burst: 1 + rnd.Int64N(4)})
	}
	for range 1 + rnd.IntN(4) {
		ppm := int64(0)
		if f.faults.Drift {
			ppm = rnd.Int64N(125_001) - 62_500
		}
		f.nodes = append(f.nodes, f.process(len(f.nodes), ppm, f.name()))
	}
	if f.faults.SharedID {
		f.nodes = append(f.nodes, f.process(len(f.nodes), 0, f.nodes[0].id))
		f.slack = f.capacity()
	}
	f.log("limits %v, E %d, T %v, %d processes, faults: %v", f.config.Limits, f.config.Overcommit,
		f.config.TTL, len(f.nodes), f.faults)
	return f
}

// process is one that has just started.
func (f *fleet) process(index int, ppm int64, id string) *node {
	n := &node{index: index, ppm: ppm, gone: make(map[int64]int64), usedBefore: make(map[int64]int64)}
	n.newer = (f.faults.Versions || f.faults.Turns) && f.rnd.IntN(2) == 0
	if f.faults.Headroom && f.rnd.IntN(2) == 0 {
		n.headroom = f.rnd.Float64()
	}
	n.init(id, 0)
	return n
}

func (f *fleet) proposes(n *node) lease.Config {
	if n.newer {
		return f.newer
	}
	return f.config
}

func (f *fleet) log(format string, args ...any) {
	if f.logf != nil {
		f.logf("%8d  "+format, append([]any{f.now - fleetStart}, args...)...)
	}
}

func (f *fleet) name() string { f.names++; return fmt.Sprintf("p%d", f.names) }

// switchAlone returns limits, or the first switch among them.
func switchAlone(limits []lease.Limit) []lease.Limit {
	for k := range limits {
		if one := limits[k : k+1]; SwitchOf(one) != SwitchNone {
			return one
		}
	}
	return limits
}

func (f *fleet) randomLimit() lease.Limit {
	switch {
	case f.faults.Windows && f.rnd.IntN(4) > 0:
		return f.randomWindow()
	case f.rnd.IntN(12) == 0:
		return lease.Blocked
	case f.rnd.IntN(24) == 0 && f.faults.SetLimits:
		return lease.Unlimited
	case f.rnd.IntN(12) == 0:
		return lease.Limit{Tokens: 1, Per: 100 * time.Millisecond, Burst: 1}
	}
	per := []time.Duration{1, 2, 10, 10, 100, 1000}[f.rnd.IntN(6)] * time.Microsecond
	return lease.Limit{Tokens: 1 + f.rnd.Int64N(4), Per: per, Burst: 1 + f.rnd.Int64N(12)}
}

func (f *fleet) randomTTL() time.Duration {
	ttl := time.Duration(5+f.rnd.IntN(8)*f.rnd.IntN(60)) * time.Microsecond
	if f.faults.Windows {
		ttl *= time.Duration(1 + f.rnd.IntN(4)*f.rnd.IntN(6)) // shorter than a window, and longer
	}
	return ttl
}

// capacity is the largest B + E of all limits that processes may propose.
func (f *fleet) capacity() int64 {
	most := int64(0)
	configs := []lease.Config{f.config}
	if f.faults.Versions || f.faults.Turns {
		configs = append(configs, f.newer)
	}
	for _, c := range configs {
		for _, l := range c.Limits {
			if !lease.Unlimited.Equal(l) {
				most = max(most, l.Capacity()+c.Overcommit)
			}
		}
	}
	return most
}

// clock is n's reading: its own origin, and a rate that may be off by 1/16.
func (f *fleet) clock(n *node) clock.Instant {
	passed := f.now - fleetStart
	return clock.Instant(1e15 + passed*1000 + passed*n.ppm/1000)
}

func (f *fleet) server() int64 { return f.now + f.offset }

// held returns the tokens that processes may still spend, including those of replies on their way.
func (f *fleet) held() (n int64) {
	seen := make(map[int64]bool)
	for _, one := range f.nodes {
		if f.clock(one) < one.Deadline() && !one.lent {
			n += one.Pool.Held()
		}
	}
	for _, p := range f.net {
		if p.grant != nil && !seen[p.grant.Seq] && p.node.isOpen && p.node.open.Seq == p.grant.Seq {
			seen[p.grant.Seq] = true
			n += p.grant.Granted - p.grant.Waited
		}
	}
	return n
}

// step is one event of one process, of the network, of the store, or of time.
func (f *fleet) step() {
	n := f.nodes[f.rnd.IntN(len(f.nodes))]
	switch r := f.rnd.IntN(100); {
	case r < 12 && f.faults.Windows && f.rnd.IntN(4) == 0:
		f.passToABoundary()
	case r < 12:
		f.pass(1 + f.rnd.Int64N(3))
	case r < 13:
		most := 2*exact.Micros(f.config.TTL) + 10
		if f.rnd.IntN(6) == 0 {
			most *= 20 // nobody calls for so long that the bucket may expire
		}
		f.pass(1 + f.rnd.Int64N(most))
	case r < 15:
		f.pass(1 + f.rnd.Int64N(exact.Micros(f.config.Limits[0].Per)))
	case f.faults.Windows && r < 16:
		f.pass(1 + f.rnd.Int64N(500))
	case r < 55:
		f.deliver()
	case r < 68:
		f.open(n)
	case r < 72:
		f.resend(n)
	case r < 80:
		f.take(n, 1+f.rnd.Int64N(3))
	case r < 88:
		f.drain(n)
	case r < 94:
		f.user(n)
	case f.rnd.IntN(f.calm) == 0:
		f.misfortune(n)
	}
}

// pass lets time pass: 40 days at most, though Blocked fills in 100 years.
func (f *fleet) pass(us int64) { f.now += min(us, exact.Micros(40*24*time.Hour)) }

func (f *fleet) take(n *node, tokens int64) {
	n.Expire(f.clock(n))
	if f.rnd.IntN(3) > 0 { // otherwise much has happened since
		n.drawn = n.Pool.Drawn()
	}
	switch {
	case !n.Pool.TakeN(tokens).OK():
	case f.faults.PutBack && f.rnd.IntN(3) == 0:
		f.log("process %d takes %d for a request that will give up", n.index, tokens)
		n.reserved = append(n.reserved, reserved{tokens, tokens, n.drawn})
	default:
		f.log("process %d spends %d", n.index, tokens)
		f.admit(n, tokens)
	}
}

func (f *fleet) drain(n *node) {
	n.Expire(f.clock(n))
	if held := n.Pool.Held(); held > 0 && n.Pool.TakeN(held).OK() {
		f.log("process %d drains %d", n.index, held)
		f.admit(n, held)
	}
}

func (f *fleet) admit(n *node, tokens int64) {
	n.spent += tokens
	if !n.lent { // Unlimited was in force when the process last heard of it
		f.bounds.admit(f.now, tokens)
	}
}

func (f *fleet) open(n *node) {
	busy := n.IsOpen() && f.clock(n).Sub(n.firstSent) < f.config.TTL/2
	if busy && !(f.faults.GiveUp && f.rnd.IntN(4) == 0) {
		return
	}
	f.send(n, f.opens(n))
}

// opens has n build its next call, and decides which of the requests that wait for it will have gone when
// the reply comes.
func (f *fleet) opens(n *node) *lease.Request {
	ask := f.ask(n)
	seq := f.nextSeq()
	if f.faults.GiveUpWaiting && f.rnd.IntN(2) == 0 {
		n.gone[seq] = f.rnd.Int64N(ask.Waiting + 1)
	}
	r := n.openCall(f.clock(n), seq, ask)
	n.usedBefore[seq] = n.overshot
	r.Draw = f.faults.Draws && r.Remaining+r.Returned == 0 && len(r.Late) == 0 && r.Want == r.Waiting
	return r
}

func (f *fleet) nextSeq() int64 { f.seq++; return f.seq }

func (f *fleet) ask(n *node) ask {
	a := ask{Config: f.proposes(n), Want: f.rnd.Int64N(10), Weight: 1 + f.rnd.Int64N(2), Headroom: n.headroom}
	if a.Want > 0 {
		a.Need = min(a.Want, max(0, f.rnd.Int64N(6)-4))
		a.Waiting = max(0, f.rnd.Int64N(2*a.Want)-a.Want)
	}
	if f.faults.Draws && n.Pool.Held() == 0 && f.rnd.IntN(4) > 0 {
		a.Waiting = a.Want
	}
	if f.faults.GiveBack && f.rnd.IntN(2) == 0 {
		share := 1 + f.rnd.Int64N(2)
		a.Return = func(held int64) int64 { return held / share }
	}
	return a
}

func (f *fleet) resend(n *node) {
	if !f.faults.Retry {
		return
	}
	if r := n.resend(f.clock(n)); r != nil && !r.Draw {
		f.send(n, r)
	}
}

// user has the actions of the callers of the limiter beside taking.
func (f *fleet) user(n *node) {
	switch {
	case len(n.reserved) > 0 && f.rnd.IntN(3) > 0:
		for len(n.reserved) > 0 && f.rnd.IntN(4) > 0 {
			f.giveBack(n, f.rnd.IntN(len(n.reserved)))
		}
	case f.faults.PutBack && !n.isOpen && n.here() == 0 && f.rnd.IntN(4) == 0:
		f.rest(n)
	case f.faults.Refund && n.spent > 0:
		back := 1 + f.rnd.Int64N(n.spent)
		n.spent -= back
		f.log("process %d refunds %d", n.index, back)
		n.Refund(back, nil)
	case f.faults.Debt && f.rnd.IntN(4) == 0:
		n.debt.add(f.rnd.Int64N(5), int64(f.clock(n)), f.dates(n))
	case f.faults.Charge && f.rnd.IntN(6) == 0:
		f.overshoot(n, 1+f.rnd.Int64N(4))
	}
}

// overshoot is a request of n that needs more than was reserved for it.
func (f *fleet) overshoot(n *node, tokens int64) {
	f.log("process %d uses %d more than it had", n.index, tokens)
	n.charge.add(tokens, int64(f.clock(n)), f.dates(n))
	for _, m := range f.bounds.all() {
		m.overshoots(f.now, tokens)
	}
	f.bounds.unreported[n] += tokens
	n.overshot += tokens
	f.bounds.overshot = true
}

// dates returns for how long the limits in force count what n uses now.
func (f *fleet) dates(n *node) dating { return usedBy(f.clock(n), f.server(), f.bucket.config.Limits) }

// giveBack has n give back what it has reserved, in the i-th place.
func (f *fleet) giveBack(n *node, i int) {
	r := n.reserved[i]
	n.reserved = slices.Delete(n.reserved, i, i+1)
	f.log("process %d gives back %d, drawn at %d, %d of them from the pool", n.index, r.n,
		r.draw.Running-fleetStart, r.pooled)
	n.sendBack(r.n-r.pooled, r.draw)
	n.putBack(f.clock(n), r.pooled, r.draw)
}

// rest has n forget all but what a key at rest remembers (see Client.Rest), and begin again. Tokens taken
// from the pool cannot go back there.
func (f *fleet) rest(n *node) {
	f.log("process %d goes to rest", n.index)
	id, debt, charge, account, heard := n.id, n.debt, n.charge, n.Account(), n.heard.Memory
	n.holder = holder{}
	n.init(id, 0)
	n.heard.Memory = heard
	n.debt, n.charge, n.account = debt, charge, account
	for i := range n.reserved {
		n.reserved[i].pooled = 0
	}
}

func (f *fleet) send(n *node, r *lease.Request) {
	content := *r
	f.log("process %d sends seq %d: remaining %d, returned %d, late %v, "+
		"want %d (need %d, waiting %d), epoch %d/%d", n.index, r.Seq, r.Remaining, r.Returned, r.Late, r.Want, r.Need, r.Waiting, r.Epoch, r.Counter)
	if n.sent = append(n.sent, &content); len(n.sent) > 6 {
		n.sent = n.sent[1:]
	}
	f.travel(packet{node: n, request: &content})
}

// travel puts a packet on its way, once, never, or twice.
func (f *fleet) travel(p packet) {
	times := 1
	if f.faults.Lossy && f.rnd.IntN(5) == 0 {
		times = 0
	}
	if f.faults.Twice && f.rnd.IntN(4) == 0 {
		times++
	}
	for range times {
		p.due = f.now + f.rnd.Int64N(3)
		if f.faults.Slow && f.rnd.IntN(3) == 0 {
			p.due += f.rnd.Int64N(2 * exact.Micros(f.config.TTL))
		}
		f.net = append(f.net, p)
	}
}

// deliver hands over any packet that is due: the network does not keep the order.
func (f *fleet) deliver() {
	var due []int
	for i, p := range f.net {
		if p.due <= f.now {
			due = append(due, i)
		}
	}
	if len(due) == 0 {
		f.pass(1)
		return
	}
	i := due[f.rnd.IntN(len(due))]
	p := f.net[i]
	f.net = slices.Delete(f.net, i, i+1)
	if p.grant == nil && p.err == nil {
		f.execute(p)
		return
	}
	f.receive(p)
}

// execute has the bucket answer one request, and books what that admits.
func (f *fleet) execute(p packet) {
	r := p.request
	if f.bucket.exists && f.server() >= f.expires {
		f.log("the bucket expires")
		f.bucket = new(Bucket)
	}
	first := f.executes(r)
	if f.unfair {
		shareNothing(f.bucket)
	}
	var g lease.Grant
	f.bounds.owe(f.bucket, f.server())
	uncharged := f.uncharged(r)
	err := f.bucket.Call(f.server(), r, &g)
	f.log("bucket, seq %d of process %d: granted %d (waited %d), void %v, first %v, %v; %v, level %v, ledger %d",
		r.Seq, p.node.index, g.Granted, g.Waited, g.Void, first, err, f.bucket.config.Limits, f.bucket.Dump().Level,
		f.bucket.ring.ledger())
	if err == nil {
		f.expires = g.ServerTime + exact.Micros(g.Expiry)
		f.bounds.follow(f.now, f.bucket)
	}
	if err == nil && first {
		f.bounds.credit(f.now, r, f.bucket)
		if Reported(r.Late, lease.LateCharge) > 0 {
			f.bounds.charge(p.node, r, uncharged)
		}
		if n := f.bucket.available(r.Headroom); g.Granted > 0 && n < 0 && f.bucket.switched != SwitchUnlimited {
			f.lost = fmt.Errorf("a grant went %d tokens into the headroom of %v", -n, r.Headroom)
		}
		f.bounds.admit(f.now, max(0, g.Waited-p.node.gone[r.Seq]))
	}
	if err != nil && !errors.Is(err, lease.ErrStale) {
		f.lost = err
		return
	}
	f.travel(packet{node: p.node, request: r, grant: &g, err: err})
}

func (f *fleet) receive(p packet) {
	n := p.node
	if p.err != nil {
		if n.isOpen && n.open.Seq == p.request.Seq {
			f.log("process %d learns that somebody else uses its id", n.index)
			n.rename(f.name())
		}
		return
	}
	got, ok := n.accept(f.clock(n), p.grant, 0, false)
	if ok {
		gone := min(got.Waited, n.gone[p.grant.Seq])
		if gone > 0 {
			n.reserved = append(n.reserved, reserved{gone, 0, got.draw})
		}
		n.spent += got.Waited - gone
		f.log("process %d accepts seq %d: %+v", n.index, p.grant.Seq, got)
	}
}

// uncharged returns the bucket as r would leave it without charge and grant; nil where r charges nothing.
func (f *fleet) uncharged(r *lease.Request) *Bucket {
	if Reported(r.Late, lease.LateCharge) == 0 {
		return nil
	}
	b, without, g := f.bucket.Clone(), *r, lease.Grant{}
	without.Want, without.Need, without.Waiting = 0, 0, 0
	without.Late = slices.DeleteFunc(slices.Clone(r.Late), func(l lease.Late) bool { return l.Kind == lease.LateCharge })
	_ = b.Call(f.server(), &without, &g) // r fails for the same reason
	return b
}

// executes says whether r would be executed now, rather than answered from the record or refused.
func (f *fleet) executes(r *lease.Request) bool {
	b := f.bucket.Clone()
	was := b.now
	if b.exists {
		b.settle(f.server())
	}
	b.follow(f.server(), was, r)
	rec := b.records[r.Holder]
	if rec == nil || rec.epoch != b.epoch {
		return true
	}
	_, live := b.ring.locate(rec.Ends)
	return !live || r.Seq > rec.Seq
}
