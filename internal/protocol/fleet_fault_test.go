package protocol

import (
	"fmt"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// misfortune is a fault of processes, the store or its configuration. n is a process taken at random.
func (f *fleet) misfortune(n *node) {
	kind, on, exists := f.rnd.IntN(18), &f.faults, f.bucket.exists
	among := func(kinds ...int) bool { return slices.Contains(kinds, kind) }
	switch {
	case on.Restart && among(0):
		f.restart(n)
	case on.Evict && among(1, 2):
		f.log("the record of process %d is evicted", n.index)
		delete(f.bucket.records, n.id)
	case (on.SetLimits || on.SetTTL) && among(3, 4):
		f.configure()
	case on.Flush && f.knows(n) && among(5):
		if f.rnd.IntN(3) == 0 {
			f.loseBeforeALateCall(n)
			return
		}
		f.lose(n)
	case on.Failover && among(6, 7):
		f.failover(n, false)
	case on.Flush && on.Windows && f.knows(n) && among(0, 8):
		f.loseAWindow(n)
	case on.StepBack && among(8):
		back := f.rnd.Int64N(3 * exact.Micros(f.config.TTL))
		if f.faults.Windows && f.rnd.IntN(3) == 0 { // so far that the running time does not wait
			back = exact.Micros(clockSwing) + f.rnd.Int64N(10_000)
		}
		if f.faults.Windows && f.rnd.IntN(2) == 0 {
			f.passToABoundary()
			f.asksForEverything(n)
		}
		if f.faults.Windows && f.rnd.IntN(8) == 0 { // by some periods
			back = exact.Micros(10*time.Second) + f.rnd.Int64N(10_000)
		}
		f.stepsBack(back)
		f.asksForEverything(n)
	case on.BlindFlush && f.slack == 0 && exists && among(9):
		f.slack = f.capacity()
		f.lose(f.restart(n))
	case on.StepForward && f.slack == 0 && exists && among(10):
		f.log("the server's clock steps forward")
		f.bounds.owe(f.bucket, f.server())
		f.bounds.forgivesAll(f.now) // as time pays it
		f.offset += f.rnd.Int64N(1_000_000)
		f.slack = 2 * f.capacity() // one refill and all holdings
		f.quietUntil = f.bounds.leasesEnd
	case on.Again && len(n.sent) > 0 && among(11, 12):
		f.pass(exact.Micros(f.config.TTL) * (2 + f.rnd.Int64N(3)) / 2)
		for _, r := range n.sent[f.rnd.IntN(len(n.sent)):] {
			f.log("seq %d of process %d arrives again", r.Seq, n.index)
			f.execute(packet{node: n, request: r})
		}
	case on.Absurd && among(13):
		f.absurd()
	case on.BlindFailover && among(14):
		f.failover(n, true)
	case on.Flush && f.knows(n) && on.SetTTL && among(15):
		f.loseLongLeases(n)
	case on.Flush && f.knows(n) && on.Versions && !n.newer && among(15):
		f.loseNewerLimits(n)
	case on.Turns && exists && among(17):
		f.takesTurns(n)
	case on.Versions && exists && among(16):
		f.expireNewerLimits(n)
	}
}

// stepsBack has the server's clock step back, before what it shows now.
func (f *fleet) stepsBack(back int64) {
	f.log("the server's clock steps back by %d", back)
	f.bounds.owe(f.bucket, f.server())
	for _, m := range f.bounds.all() {
		m.expire(f.now)
	}
	f.offset -= back
	for _, m := range f.bounds.all() {
		m.stepsBack(f.now, f.bounds.ledger+f.bounds.reports())
	}
}

// loseLongLeases has T grow when n has just heard of it, others lease, and the bucket be lost then;
// n knows that it was, and asks for everything once the leases that it knows of have ended.
func (f *fleet) loseLongLeases(n *node) {
	f.config.TTL = min(f.config.TTL*time.Duration(2+f.rnd.IntN(10)), 10*time.Minute)
	f.log("processes propose T %v", f.config.TTL)
	for range 2 {
		for _, other := range f.nodes {
			if other != n || f.rnd.IntN(4) == 0 {
				f.calls(other, ask{Want: f.rnd.Int64N(10)})
			}
		}
		f.receiveAll()
		f.pass(f.rnd.Int64N(f.bucket.leaseMax()))
	}
	if !f.knows(n) {
		return
	}
	f.lose(n)
	f.pass(max(0, f.bucket.frozen-f.bucket.now) + f.rnd.Int64N(exact.Micros(f.config.Limits[0].TimeToFull())+1))
	f.asksForEverything(n)
	for _, other := range f.nodes {
		f.drain(other)
	}
}

func (f *fleet) receiveAll() {
	for i := 0; i < len(f.net); i++ {
		if p := f.net[i]; p.grant != nil {
			f.net = slices.Delete(f.net, i, i+1)
			f.receive(p)
			i--
		}
	}
}

// loseNewerLimits has a process with the newer version use up its limits and the bucket be lost
// then; n, which has the older version, knows that it was, and the newer version comes again.
func (f *fleet) loseNewerLimits(n *node) {
	newer := f.process(n.index, n.ppm, f.name())
	newer.newer = true
	f.asksForEverything(newer)
	f.lose(n)
	f.pass(max(0, f.bucket.frozen-f.bucket.now) + f.rnd.Int64N(1000))
	if f.rnd.IntN(4) == 0 { // as long as it would be remembered if nothing had been lost
		f.pass(2*f.bucket.ttl + exact.Micros(f.config.Limits[0].TimeToFull()))
	}
	f.asksForEverything(newer)
}

// expireNewerLimits has a process with the older version use up its limits, if they are in force, and one
// with the newer version replace them. Then no call comes until the bucket expires, and n starts again with
// the older version.
func (f *fleet) expireNewerLimits(n *node) {
	older, newer := f.process(n.index, n.ppm, f.name()), f.process(n.index, n.ppm, f.name())
	older.newer, newer.newer = false, true
	f.asksForEverything(older)
	f.asksForEverything(newer)
	f.log("nobody calls until the bucket expires, and process %d starts again with the older version",
		n.index)
	f.pass(max(0, f.expires-f.server()))
	n = f.restart(n)
	n.newer = false
	f.asksForEverything(n)
}

// takesTurns has processes of two configurations of one version use up what there is, each when the
// others have not called for 2 T, so that its own comes into force. One of them leases, renews what it
// has until its turn comes, and gives it back then, or spends it. In between the bucket may be lost.
func (f *fleet) takesTurns(n *node) {
	keeper := f.process(n.index, n.ppm, f.name())
	for turn := range 2 + f.rnd.IntN(6) {
		one := f.process(n.index, n.ppm, f.name())
		one.newer = turn%2 == 0
		if keeper.newer == one.newer && f.rnd.IntN(2) == 0 {
			f.pass(f.bucket.ttl / 4)
			f.calls(keeper, ask{Want: 20})
			f.receiveAll()
			for f.bucket.now-f.bucket.stoodAt <= 2*f.bucket.ttl && f.rnd.IntN(20) > 0 {
				f.pass(max(1, f.bucket.ttl/2))
				f.calls(keeper, ask{Want: f.rnd.Int64N(3)})
				f.receiveAll()
				f.bucket.settle(f.server())
			}
			keeper.Expire(f.clock(keeper))
			f.calls(keeper, ask{Want: 20, Waiting: 20,
				Return: func(held int64) int64 { return held * f.rnd.Int64N(2) }})
			f.receiveAll()
			f.drain(keeper)
			continue
		}
		f.pass(2*f.bucket.ttl + 1 + f.rnd.Int64N(20))
		f.asksForEverything(one)
		f.receiveAll()
		if f.faults.Flush && f.rnd.IntN(4) == 0 && f.knows(one) {
			f.lose(one)
			f.pass(max(0, f.bucket.frozen-f.bucket.now) + f.rnd.Int64N(100))
			f.asksForEverything(one)
		}
	}
}

func (f *fleet) restart(n *node) *node {
	f.log("process %d is killed and starts again", n.index)
	f.bounds.forgives(f.bounds.unreported[n]) // nobody will report it
	delete(f.bounds.unreported, n)
	f.nodes[n.index] = f.process(n.index, n.ppm, f.name())
	return f.nodes[n.index]
}

// lose loses the bucket, and first is the first to call then.
func (f *fleet) lose(first *node) {
	f.log("the bucket is lost; process %d comes first, which has heard of epoch %d", first.index,
		first.heard.epoch)
	f.bounds.owe(f.bucket, f.server())
	f.bucket = new(Bucket)
	f.bounds.forgivesAll(f.now)
	f.first(first)
}

// loseBeforeALateCall has n call, and others lease while that call travels. Then the bucket is lost, and
// the call comes just before the bucket of which n had heard would have expired.
func (f *fleet) loseBeforeALateCall(n *node) {
	late := *f.opens(n)
	left := late.HeardAt + exact.Micros(late.HeardExpiry) - f.server()
	f.pass(max(0, left-1-f.rnd.Int64N(exact.Micros(f.config.TTL))*f.rnd.Int64N(2)))
	for _, other := range f.nodes {
		if other != n {
			f.calls(other, ask{Want: f.rnd.Int64N(20)})
		}
	}
	f.receiveAll()
	if f.bucket.epoch == late.Epoch && late.Counter <= f.bucket.counter {
		f.log("the bucket is lost; a call comes first that process %d has sent long ago", n.index)
		f.bounds.owe(f.bucket, f.server())
		f.bucket = new(Bucket)
		f.bounds.forgivesAll(f.now)
		f.quietUntil = max(f.quietUntil, f.bounds.leasesEnd)
	}
	f.execute(packet{node: n, request: &late})
	for _, other := range f.nodes {
		if f.rnd.IntN(2) == 0 {
			f.drain(other)
			f.asksForEverything(other)
		}
	}
}

// asksForEverything has n call for more requests that wait than there can be tokens.
func (f *fleet) asksForEverything(n *node) { f.calls(n, ask{Want: 20, Waiting: 20}) }

// calls has n make a call that arrives at once; its reply may be on its way for longer.
func (f *fleet) calls(n *node, a ask) {
	a.Config, a.Weight = f.proposes(n), 1
	r := *n.openCall(f.clock(n), f.nextSeq(), a)
	n.usedBefore[r.Seq] = n.overshot
	f.execute(packet{node: n, request: &r})
}

// absurd is a call of a process that claims to have heard the impossible. It takes nothing and must change
// nothing for anybody else.
func (f *fleet) absurd() {
	r := lease.Request{Holder: "absurd", Seq: f.nextSeq(), Config: f.config, Weight: 1,
		Epoch: lease.WaitingMax - f.rnd.Int64N(2), Counter: lease.WaitingMax - f.rnd.Int64N(2)}
	if s := f.bucket; s.exists && f.rnd.IntN(2) == 0 {
		r.Epoch = s.epoch
	}
	f.log("somebody claims epoch %d/%d", r.Epoch, r.Counter)
	before := *f.bucket.Clone()
	f.execute(packet{node: &node{gone: map[int64]int64{}}, request: &r})
	f.net = slices.DeleteFunc(f.net, func(p packet) bool { return p.request == &r })
	s, was := f.bucket, &before
	if s.created == was.created && (s.epoch != was.epoch || s.frozen > was.frozen) {
		f.lost = fmt.Errorf("an absurd claim was believed: %+v", *s)
	}
}

// knows says whether n can prove that the bucket was lost, if it was.
func (f *fleet) knows(n *node) bool {
	return f.bucket.exists && n.heard.epoch == f.bucket.epoch && !n.heard.expired(f.clock(n)) &&
		f.server() < n.heard.serverTime+exact.Micros(n.heard.expiry)
}

// first makes n the first to call after the bucket changed.
func (f *fleet) first(n *node) {
	f.quietUntil = max(f.quietUntil, f.bounds.leasesEnd)
	r := *f.opens(n)
	f.execute(packet{node: n, request: &r})
}

// failover promotes a replica that knows only the copied state, which may lack grants and renewals;
// now and then the copy is brought up to date. Either n comes first, which knows of everything, or,
// once in a schedule, nobody knows of it who comes first.
func (f *fleet) failover(n *node, blind bool) {
	if f.copied == nil || f.rnd.IntN(2) == 0 {
		f.copied = f.bucket.Clone()
		return
	}
	was, is := f.bucket, f.copied
	switch {
	case blind && f.slack == 0 && !f.faults.Charge && is.exists && is.created == was.created:
		// Draws since then count once more; a holding that was renewed since is forgotten at its old end.
		f.slack = f.capacity()
		f.quietUntil = f.now + 1_000_000_000
	case !blind && f.knows(n) && n.heard.counter == f.bucket.counter && // it knows of all that was executed
		is.epoch <= n.heard.epoch: // else its clock has stepped back since
	default:
		return
	}
	f.log("a replica at counter %d is promoted at %d; blind %v", is.counter, was.counter, blind)
	f.bounds.owe(f.bucket, f.server())
	f.bounds.forgivesAll(f.now)
	f.bucket, f.copied = f.copied, nil
	if !blind {
		f.first(n)
	}
}

// configure changes the limits for everybody, as SetLimits does.
func (f *fleet) configure() {
	c := f.config
	if f.faults.SetLimits {
		f.were = append(f.were, c.Limits)
		switch f.rnd.IntN(3) {
		case 0:
			c.Limits = f.were[f.rnd.IntN(len(f.were))]
		case 1:
			c.Limits = []lease.Limit{f.randomLimit()}
		default:
			c.Limits = f.otherLimits(c.Limits)
		}
		if f.rnd.IntN(2) == 0 {
			c.Overcommit = max(0, f.rnd.Int64N(6)-2)
		}
	}
	if f.faults.SetTTL {
		c.TTL = f.randomTTL()
	}
	if f.faults.SetTTL && f.rnd.IntN(2) == 0 {
		// A longer T may also come as a proposal, with the same version.
		f.config.TTL = max(f.config.TTL, c.TTL)
		f.log("processes propose T %v", f.config.TTL)
		return
	}
	f.sets(c)
}

func (f *fleet) sets(c lease.Config) {
	op := lease.OpSet
	if IsSet(f.bucket.config.Version) && f.rnd.IntN(3) == 0 {
		op = lease.OpClear
	}
	f.log("%v %v, E %d, T %v", op, c.Limits, c.Overcommit, c.TTL)
	if f.bucket.exists && f.server() >= f.expires {
		f.bucket = new(Bucket)
	}
	f.bounds.owe(f.bucket, f.server())
	if _, err := f.bucket.Configure(f.server(), op, c); err != nil {
		f.lost = err
		return
	}
	f.expires = f.bucket.clock + f.bucket.keep - f.bucket.now
	f.config = c
	f.config.Version = lease.Version{} // the stored one has a higher revision
	f.bounds.follow(f.now, f.bucket)
}

// otherLimits are limits with some changed, put in front, taken away or in another order.
func (f *fleet) otherLimits(limits []lease.Limit) []lease.Limit {
	limits = slices.Clone(limits)
	for k := range limits {
		if f.rnd.IntN(3) == 0 {
			limits[k] = f.randomLimit()
		}
	}
	if f.rnd.IntN(3) == 0 && len(limits) < lease.LimitsMax {
		limits = slices.Insert(limits, f.rnd.IntN(len(limits)+1), f.randomLimit())
	}
	if f.rnd.IntN(3) == 0 && len(limits) > 1 {
		at := f.rnd.IntN(len(limits))
		limits = slices.Delete(limits, at, at+1)
	}
	if f.rnd.IntN(3) == 0 {
		f.rnd.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
	}
	return switchAlone(limits)
}

// check asserts the rules that hold after every step.
func (f *fleet) check() error {
	if f.lost != nil {
		return fmt.Errorf("refused: %w", f.lost)
	}
	live := int64(0)
	for _, n := range f.nodes {
		a := n.Account()
		if !a.Conserved() || a.Admitted < 0 || a.Burnt < 0 || a.Returned < 0 || a.Refunded < 0 ||
			a.Refunded > a.Admitted {
			return fmt.Errorf("process %d lost or forged tokens: %+v", n.index, a)
		}
		if f.clock(n) < n.Deadline() && !n.lent {
			live += n.Pool.Held()
		}
	}
	b := settled(f.bucket, f.server())
	if f.now < f.quietUntil || f.faults.SharedID {
		live = 0
	}
	if err := sound(&b, live); err != nil {
		return err
	}
	f.bounds.owe(f.bucket, f.server())
	for _, m := range f.bounds.all() {
		m.advance(f.now)
		if owed := m.owed + f.bounds.reports()*meterUnit; m.excess() > f.slack*meterUnit+owed {
			return fmt.Errorf("(1) is broken: %v, slack %d, %d billionths owed", m, f.slack, owed)
		}
	}
	return nil
}

// Random schedules do this to windows: times of some milliseconds, which is as short as they are.

// randomWindow is a sliding window or a calendar. Lengths are few, so that limits of one length meet.
func (f *fleet) randomWindow() lease.Limit {
	length := []time.Duration{1000, 1500, 2000, 3000, 3000, 7001, 90_000}[f.rnd.IntN(7)] * time.Microsecond
	n := 1 + f.rnd.Int64N(12)
	if f.rnd.IntN(3) == 0 {
		return lease.Calendar(n, length, time.Duration(f.rnd.IntN(3))*length/5/time.Microsecond*time.Microsecond)
	}
	return lease.Sliding(n, length)
}

// passToABoundary lets time pass to a moment that matters to a window: the end of a cell, the
// moment at which one is dropped, or the boundary of a calendar; or to just before or after it.
func (f *fleet) passToABoundary() {
	for k := range f.bucket.limits {
		w := f.bucket.windowOf(k)
		if w == nil || f.rnd.IntN(2) == 0 {
			continue
		}
		at := int64(0)
		if w.cells == nil {
			at = w.boundary() - f.server()
		} else {
			at = (f.bucket.now/w.Cell+1)*w.Cell - f.bucket.now
			if drops := w.dropAt(1 + f.rnd.Int64N(3)); drops > 0 && f.rnd.IntN(2) == 0 {
				at = drops - f.bucket.now
			}
		}
		if at += f.rnd.Int64N(3) - 1; at > 0 && at < 10*w.Tick {
			f.pass(at)
		}
		return
	}
}

// loseAWindow has all but n lease what there is, and spend it late, after the bucket was lost; n
// knows that it was, and asks for everything when something is dropped.
func (f *fleet) loseAWindow(n *node) {
	for range 2 { // first they hear of the bucket; then what was charged has been dropped
		for _, other := range f.nodes {
			f.calls(other, ask{Want: 20 * flags(other != n)})
			f.receiveAll()
		}
		for _, l := range f.bucket.config.Limits {
			f.pass(f.rnd.Int64N(2) * exact.Micros(l.TimeToFull()) * flags(f.rnd.IntN(2) == 0))
		}
	}
	for _, other := range f.nodes {
		f.calls(other, ask{Want: 20 * flags(other != n)})
		f.receiveAll()
	}
	if !f.knows(n) {
		return
	}
	f.lose(n)
	f.pass(f.rnd.Int64N(f.bucket.ttl))
	for _, other := range f.nodes {
		f.drain(other)
	}
	for range 6 {
		f.passToABoundary()
		f.asksForEverything(n)
	}
}
