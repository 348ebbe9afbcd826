package protocol

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// driver runs Clients over one Bucket as a limiter does, in a loop over events: arrivals, ticks, replies.
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

// driven is one process. It is its Client's Host.
type driven struct {
	Client
	d   *driver
	gap func() time.Duration // between arrivals; nil: none

	breaker       *Breaker
	arrival, tick clock.Instant
	reply         clock.Instant // Never: none on its way
	grant         lease.Grant
	err           error

	waiting, admitted, denied int64    // requests
	told                      Decision // to the latest
	calls                     []clock.Instant
	last                      lease.Request
}

func newDriver(t *testing.T, l lease.Limit) *driver {
	d := &driver{t: t, now: 1_000_000_000_000, rtt: time.Millisecond}
	d.meter = newMeter(l, 0, int64(d.now)/1000)
	return d
}

// client adds a process whose requests come so far apart.
func (d *driver) client(p lease.Policy, l lease.Limit, gap func() time.Duration) *driven {
	n := &driven{d: d, gap: gap, arrival: Never, tick: Never, reply: Never, breaker: newBreaker()}
	n.starts(p, l)
	if gap != nil {
		n.arrival = d.now.Add(gap())
	}
	d.nodes = append(d.nodes, n)
	return n
}

// starts makes n a cold client, under the name of a process that comes next.
func (n *driven) starts(p lease.Policy, limits ...lease.Limit) {
	n.Client = Client{}
	id, config := len(n.d.nodes), p.ConfigFor(limits, 0, 0)
	n.Start(n.d.now, n, ClientConfig{
		ID: fmt.Sprint("h", id), Seed: uint64(id),
		Policy: &p, Proposed: &config, CallTimeout: lease.DefaultCallTimeout,
	})
}

func alone(t *testing.T, l lease.Limit, p lease.Policy, gap func() time.Duration) (*driver, *driven) {
	d := newDriver(t, l)
	return d, d.client(p, l, gap)
}

// degrade has n, which has no arrivals, hear of the bucket and then lose the store.
func (n *driven) degrade() {
	n.d.t.Helper()
	n.request()
	n.ask()
	n.d.run(50 * time.Millisecond)
	n.d.down = true
	n.d.run(2 * time.Second)
	n.Refuse(1)
	n.ask()
	n.d.run(10 * time.Millisecond)
	testkit.Must(n.d.t, n.Failures.Degraded(), "not degraded after a failed call")
}

// steady is one request every 1/rate seconds; random is a Poisson stream of them.
func steady(rate float64) func() time.Duration {
	return func() time.Duration { return time.Duration(float64(time.Second) / rate) }
}

func random(rate float64, seed uint64) func() time.Duration {
	rnd := rand.New(rand.NewPCG(seed, 77))
	return func() time.Duration { return time.Duration(rnd.ExpFloat64() * float64(time.Second) / rate) }
}

func (d *driver) run(span time.Duration) {
	d.t.Helper()
	end := d.now.Add(span)
	for {
		var first *driven
		at := end
		for _, n := range d.nodes {
			if next := min(n.arrival, n.tick, n.reply); next < at {
				first, at = n, next
			}
		}
		d.now = max(d.now, at)
		if first == nil {
			break
		}
		switch at {
		case first.reply:
			first.replied()
		case first.arrival:
			first.arrival = d.now.Add(first.gap())
			first.request()
		}
		first.ask()
		a := first.Holder.Account()
		testkit.Must(d.t, a.Conserved(), "tokens lost or forged: %+v", a)
		testkit.Must(d.t, d.meter.excess() <= 0, "(1) is broken: %v", d.meter)
	}
}

// request asks for one token, and waits for one call.
func (n *driven) request() {
	n.Holder.Expire(n.d.now)
	t := n.Holder.Pool.Take()
	if t == pool.TookLow {
		n.Low()
	}
	decision := Decision{Verdict: VerdictAdmit}
	if !t.OK() {
		decision = n.Decide(n.d.now, Ask{N: 1, Patience: OneCall, Deadline: Never})
	}
	if decision.Verdict == VerdictWait {
		n.waiting++
		n.Enqueue(n.d.now, &Waiter{Ask: Ask{N: 1, Patience: OneCall}})
		return
	}
	n.count(decision)
}

// count books the answer to a request. Admissions of the fallback are outside of the promise.
func (n *driven) count(decision Decision) {
	n.told = decision
	if !decision.OK() {
		n.denied++
		return
	}
	n.admitted++
	if decision.Source != lease.SourceFallback {
		n.d.meter.admit(int64(n.d.now)/1000, 1)
	}
}

// ask ticks, and sends the call that is due.
func (n *driven) ask() {
	d := n.d
	due := n.Tick(d.now, d.rtt)
	n.tick = due.At
	if !due.Call {
		return
	}
	d.seq++
	r := n.Build(d.now, d.seq, d.rtt)
	n.last = *r
	n.calls = append(n.calls, d.now)
	n.reply = d.now.Add(d.rtt)
	n.tick = Never
	n.err = lease.ErrUnavailable
	if !d.down {
		if n.err = d.bucket.Call(int64(d.now.Add(d.rtt/2))/1000, r, &n.grant); n.err != nil {
			d.t.Fatal(n.err)
		}
	}
}

func (n *driven) replied() {
	n.reply = Never
	if n.err != nil {
		n.Fail(n.d.now, n.err)
		return
	}
	got, ok := n.Accept(n.d.now, &n.grant)
	if !ok {
		n.d.t.Fatal("a reply was not accepted")
	}
	n.Serve(n.d.now, got)
}

// callsIn is how many calls n made in the last span.
func (n *driven) callsIn(span time.Duration) (count int) {
	for _, at := range n.calls {
		if n.d.now.Sub(at) <= span {
			count++
		}
	}
	return count
}

func (n *driven) Now() clock.Instant            { return n.d.now }
func (n *driven) Wake(bool)                     { n.tick = n.d.now }
func (n *driven) DeniesOne(clock.Instant)       {}
func (n *driven) Handed(*Waiter, int64, Origin) {}
func (n *driven) Passed(_, _ *Waiter, _ int64)  {}
func (n *driven) Forfeited(*Waiter)             {}
func (n *driven) Breaker() *Breaker             { return n.breaker }
func (n *driven) NewID() string                 { return "another" }

func (n *driven) Settled(_ *Waiter, decision Decision) {
	n.waiting--
	n.count(decision)
}
