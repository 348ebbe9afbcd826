package lease

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// driver runs Holders over one Bucket as a limiter does, in a loop over events: arrivals, timers, replies. A request
// that finds nothing waits for one call, unless the bucket is known to be empty; then it is denied.
type driver struct {
	t      *testing.T
	now    clock.Instant
	bucket Bucket
	rtt    time.Duration
	down   bool // the store cannot be reached
	seq    int64
	nodes  []*driven
	meter  *meter
}

type driven struct {
	*Holder
	gap func() time.Duration // between arrivals; nil: none

	arrival, poll clock.Instant
	reply         clock.Instant // Never: none on its way
	grant         Grant
	err           error

	waiting, joined  int64 // requests in the queue; of them, those that the call in flight counts
	admitted, denied int64
	calls            []clock.Instant
	last             Request
}

func newDriver(t *testing.T, l Limit) *driver {
	d := &driver{t: t, now: 1_000_000_000_000, rtt: time.Millisecond}
	d.meter = newMeter(l, 0, int64(d.now)/1000)
	return d
}

func (d *driver) holder(p Policy, l Limit, gap func() time.Duration) *driven {
	h, err := NewHolder(d.now, HolderConfig{ID: fmt.Sprint("h", len(d.nodes)), Limits: []Limit{l}, Policy: p, Seed: uint64(len(d.nodes))})
	if err != nil {
		d.t.Fatal(err)
	}
	n := &driven{Holder: h, gap: gap, arrival: Never, poll: Never, reply: Never}
	if gap != nil {
		n.arrival = d.now.Add(gap())
	}
	d.nodes = append(d.nodes, n)
	return n
}

// steady is one request every 1/rate seconds; random is a Poisson stream of them.
func steady(rate float64) func() time.Duration {
	return func() time.Duration { return time.Duration(float64(time.Second) / rate) }
}

func random(rate float64, seed uint64) func() time.Duration {
	rnd := rand.New(rand.NewPCG(seed, 77))
	return func() time.Duration { return time.Duration(rnd.ExpFloat64() * float64(time.Second) / rate) }
}

// run lets span pass.
func (d *driver) run(span time.Duration) {
	d.t.Helper()
	end := d.now.Add(span)
	for {
		var first *driven
		at := end
		for _, n := range d.nodes {
			if next := min(n.arrival, n.poll, n.reply); next < at {
				first, at = n, next
			}
		}
		d.now = max(d.now, at)
		if first == nil {
			break
		}
		switch at {
		case first.reply:
			d.replied(first)
		case first.arrival:
			first.arrival = d.now.Add(first.gap())
			d.request(first)
		default:
			first.poll = Never
		}
		d.ask(first)
		if !first.Account().Conserved() {
			d.t.Fatalf("tokens lost or forged: %+v", first.Account())
		}
		if d.meter.excess() > 0 {
			d.t.Fatalf("(1) is broken: %v", d.meter)
		}
	}
}

func (d *driver) admit(n *driven, tokens int64) {
	n.admitted += tokens
	d.meter.admit(int64(d.now)/1000, tokens)
}

func (d *driver) request(n *driven) {
	n.Expire(d.now)
	t := n.Pool.Take()
	if t == TookLow {
		n.low = true
	}
	switch {
	case t.Ok():
		d.admit(n, 1)
	case d.now < n.deniedUntil || n.Degraded():
		n.denied++
	default:
		n.waiting++
	}
}

func (d *driver) input(n *driven) Input {
	return Input{Waiting: n.waiting, Need: min(n.waiting, 1), RTT: d.rtt}
}

// ask polls, and sends the call that is due.
func (d *driver) ask(n *driven) {
	n.Advance(d.now, d.input(n))
	call, next := n.Due(d.now, d.input(n))
	n.poll = next
	if !call {
		return
	}
	d.seq++
	r := n.Build(d.now, d.seq, d.input(n))
	n.last = *r
	n.joined = n.waiting
	n.calls = append(n.calls, d.now)
	n.reply = d.now.Add(d.rtt)
	n.err = ErrUnavailable
	if !d.down {
		n.err = d.bucket.Call(int64(d.now.Add(d.rtt/2))/1000, r, &n.grant)
		if n.err != nil {
			d.t.Fatal(n.err)
		}
	}
	n.poll = Never
}

func (d *driver) replied(n *driven) {
	n.reply = Never
	joined := n.joined
	n.joined = 0
	n.waiting -= joined
	if n.err != nil {
		n.Fail(d.now, n.err)
		n.denied += joined
		return
	}
	got, ok := n.Accept(d.now, &n.grant, 0)
	if !ok {
		d.t.Fatal("a reply was not accepted")
	}
	d.admit(n, got.Waited)
	joined -= got.Waited
	// What went to the pool serves the queue first, those who came during the call included.
	for joined+n.waiting > 0 {
		if _, ok := n.Pool.TakeQueued(1); !ok {
			break
		}
		n.servedLater++
		d.admit(n, 1)
		if joined > 0 {
			joined--
		} else {
			n.waiting--
		}
	}
	n.denied += joined
}

// callsIn is how many calls n made in the last span.
func (d *driver) callsIn(n *driven, span time.Duration) (count int) {
	for _, at := range n.calls {
		if d.now.Sub(at) <= span {
			count++
		}
	}
	return count
}
