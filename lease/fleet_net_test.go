package lease

import (
	"errors"
	"slices"
)

func (f *fleet) send(n *node, r *Request) {
	content := *r
	f.log("process %d sends seq %d: remaining %d, returned %d, unused %d, refund %d, debt %d, want %d (need %d, waiting %d), epoch %d/%d",
		n.index, r.Seq, r.Remaining, r.Returned, r.Unused, r.Refund, r.Debt, r.Want, r.Need, r.Waiting,
		r.Epoch, r.Counter)
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
			p.due += f.rnd.Int64N(2 * micros(f.config.TTL))
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
	if f.bucket.state.exists && f.server() >= f.expires {
		f.log("the bucket expires")
		f.bucket = new(Bucket)
	}
	first := f.executes(r)
	if f.unfair {
		shareNothing(f.bucket)
	}
	var g Grant
	err := f.bucket.Call(f.server(), r, &g)
	f.log("bucket, seq %d of process %d: granted %d (waited %d), void %v, first %v, %v; level %v, ledger %d",
		r.Seq, p.node.index, g.Granted, g.Waited, g.Void, first, err, f.bucket.state.level,
		f.bucket.state.ring.ledger())
	if err == nil {
		f.expires = f.server() + micros(g.Expiry)
		f.bounds.follow(f.now, f.bucket)
	}
	if err == nil && first {
		f.bounds.credit(f.now, r, f.bucket)
		f.bounds.admit(f.now, max(0, g.Waited-p.node.gone[r.Seq]))
	}
	if err != nil && !errors.Is(err, ErrStale) {
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
	got, ok := n.Accept(f.clock(n), p.grant, 0)
	if ok {
		gone := min(got.Waited, n.gone[p.grant.Seq])
		if n.parked == 0 {
			n.drawn = got.Drawn
		}
		n.parked += gone
		n.spent += got.Waited - gone
		f.log("process %d accepts seq %d: %+v", n.index, p.grant.Seq, got)
	}
}

// executes says whether r would be executed now, rather than answered from the record or refused.
func (f *fleet) executes(r *Request) bool {
	b := f.bucket.Clone()
	if b.state.exists {
		b.settle(f.server())
	}
	b.follow(f.server(), r)
	rec := b.records[r.Holder]
	if rec == nil || rec.epoch != b.state.epoch {
		return true
	}
	_, live := b.state.ring.locate(rec.place, b.state.now)
	return !live || r.Seq > rec.seq
}
