package engine

import (
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/sim/arrival"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// demand makes the requests of the fleet, and settles the reservations of admitted requests.
type demand struct {
	time  *agenda
	s     *scenario.Scenario
	seed  uint64
	fleet *fleet
	books *books

	keys    *random.Weights
	sources []source // one source per process
	loads   map[*scenario.Workload]*shared
	first   []int // for each group, its first process's number among those that share the workload

	reservations slots[reservation]
}

type source struct {
	rate    float64 // rate in requests per second
	stream  arrival.Stream
	at      int64 // planned time of the next request
	moments random.Stream
}

// shared is the state of groups that share a workload.
type shared struct {
	shares    float64 // sum of the shares of the groups
	processes int
	recording *arrival.Recording // recorded requests, divided between all processes
}

type request struct {
	p       *process
	key     int32
	n       int64
	at      int64
	central bool // the central bucket has admitted the request

	reservation *reservation // nil for a request that reserves nothing
}

// reservation is a request that reserves its tokens until its final cost is known. If the central bucket also
// admits the request, it has a second reservation, for the central bucket.
type reservation struct {
	id        int32
	ofCentral bool // a central reservation has no tokens and no draw
	request   request
	actual    int64 // final cost in tokens
	hold      int64 // nanoseconds from the admission until the final cost is known

	life   int32 // life of the process that admitted the request
	tokens int64 // bucket tokens in the reservation; 0 for an admission without the store
	draw   pool.Draw
}

func (d *demand) prepare(f *fleet) {
	d.keys = random.NewWeights(arrival.Shares(d.s.Keys.Count, d.s.Keys.Zipf))
	d.sources, d.loads = make([]source, len(f.processes)), map[*scenario.Workload]*shared{}
	for i, g := range f.groups {
		l := d.loads[g.load]
		if l == nil {
			l = &shared{}
			d.loads[g.load] = l
		}
		d.first = append(d.first, l.processes)
		l.processes += len(g.members)
		l.shares += g.Share
		for rank, p := range g.members {
			d.sources[p.index].moments = random.New(d.seed, streamArrivals, uint64(i), uint64(rank))
		}
	}
	for workload, l := range d.loads {
		if workload.Kind == scenario.Replay {
			l.recording = arrival.NewRecording(workload.Trace, l.processes)
		}
	}
}

// divide divides a group's load between the processes of the group that should run.
func (d *demand) divide(g *group) {
	rate := float64(g.Share / d.loads[g.load].shares * d.s.RateOf(g.load))
	shares := arrival.Shares(g.count, g.Skew)
	for i, p := range g.members[:g.count] {
		d.sources[p.index].rate = float64(rate * shares[i])
		if p.state == running {
			d.begin(p)
		}
	}
}

func (d *demand) begin(p *process) {
	src, g := &d.sources[p.index], p.group
	d.time.cancel(evArrival, p.index)
	switch g.load.Kind {
	case scenario.Replay:
		src.stream = arrival.NewReplayer(d.loads[g.load].recording, d.first[g.place]+p.rank, d.time.now)
	case scenario.Adversary:
		src.stream = arrival.Every(p.config.Target / 4)
	default:
		src.stream = arrival.New(arrival.Source{
			Workload: g.load, Rate: src.rate, Index: p.rank, Of: len(g.members),
			Start: d.time.now, Duration: int64(d.s.Duration),
			Stream: &src.moments, Common: random.SeedOf(d.seed, g.place),
		})
	}
	if src.at = src.stream.Next(d.time.now); src.at < int64(d.s.Duration) {
		d.time.at(max(src.at, d.time.now), evArrival, p.index)
	}
}

// next draws the request of the agenda's first event, and replaces the event by p's next arrival.
func (d *demand) next(p *process) (key int32, n int64) {
	src := &d.sources[p.index]
	key, n = d.draw(p)
	src.at = src.stream.Next(src.at)
	if src.at < int64(d.s.Duration) {
		d.time.replace(max(src.at, d.time.now), evArrival, p.index)
	} else {
		d.time.pop()
	}
	return key, n
}

func (d *demand) draw(p *process) (key int32, n int64) {
	if r, ok := d.sources[p.index].stream.(*arrival.Replayer); ok {
		return int32(r.Key % d.s.Keys.Count), r.Cost
	}
	if d.s.Keys.Count > 1 {
		key = int32(d.keys.Draw(&p.stream))
	}
	return key, p.group.load.Cost.Sample(&p.stream)
}

func (d *demand) ask(p *process, key int32, n int64) {
	r := request{p: p, key: key, n: n, at: d.time.now}
	d.books.asked(&r)
	if p.group.reserves {
		d.reserve(&r)
	}
	e := p.single
	if e == nil {
		if e = d.fleet.entryFor(&r); e == nil {
			return
		}
	}
	e.decide(r)
}

// drain spends all tokens that e holds, just before e reports or the lease ends: the worst case of the bound.
func (d *demand) drain(e *entry) {
	for e.client.Holder.Pool.Held() > 0 {
		d.ask(e.p, e.key, 1)
	}
}

// reserve draws the final cost of r, and the time at which the cost becomes known.
func (d *demand) reserve(r *request) {
	load, stream := r.p.group.load, &r.p.reservations
	id, x := d.reservations.take()
	*x = reservation{id: id, request: *r, actual: load.Actual.Sample(stream)}
	x.hold = load.Hold.Sample(stream)
	r.reservation = x
	if r.central {
		id, c := d.reservations.take()
		*c = reservation{id: id, ofCentral: true, request: *r, actual: x.actual, hold: x.hold}
		d.hold(c)
	}
}

// hold schedules the settlement of x, whose request is admitted now.
func (d *demand) hold(x *reservation) {
	x.life = x.request.p.life
	d.time.at(d.time.now+x.hold, evSettle, x.id)
}

// settle charges or refunds the difference between the final cost and the reservation x. A paused process
// settles when it continues; a process that has ended does not.
func (d *demand) settle(x *reservation) {
	r, p, b := &x.request, x.request.p, d.books
	if p.life == x.life && p.pausedUntil > 0 {
		d.time.at(p.sees(evSettle), evSettle, x.id)
		return
	}
	more := x.actual - r.n
	switch {
	case p.state != running || p.life != x.life || more == 0:
	case x.ofCentral:
		b.central[r.key].Settle(d.time.now/1000, more)
	case more > 0 || x.tokens > 0: // tokens admitted without the store cannot come back
		e := d.fleet.entry(p, r.key)
		if more > 0 {
			n := e.client.Charge(e.Now(), more)
			e.charged, b.charged = e.charged+n, b.charged+n
		} else {
			e.client.Holder.Refund(-more, &x.draw)
			b.refunded -= more
		}
		e.Wake(false)
	}
	d.reservations.give(x.id)
}
