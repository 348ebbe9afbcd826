package engine

import (
	"github.com/yuzhi-go/yuzhi/sim/arrival"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// demand is who asks: the streams of requests and the users of closed loops.
type demand struct {
	time  *agenda
	s     *scenario.Scenario
	seed  uint64
	fleet *fleet
	books *books

	keys    *random.Weights
	sources []source // of each process
	users   []user
	rates   []float64 // of each group: requests per second of all its processes
	traces  []tracePart
	largest int64 // tokens that one request may ask for
}

// source is the requests of one process.
type source struct {
	rate    float64 // requests per second
	stream  arrival.Stream
	at      int64  // when the next request was meant to come
	event   uint64 // that brings it; 0 for none
	moments random.Stream
	users   []int32 // of a closed loop
	usersOf int32   // the life in which they began
}

// tracePart is a group's part of a trace, which all groups that share a workload divide between
// them.
type tracePart struct {
	*arrival.Recording
	first int // the trace's number of the group's first process
}

// request is one question to a process.
type request struct {
	p       *process
	key     int32
	user    int32 // of a closed loop, who waits for the answer; -1 for nobody
	n       int64
	at      int64
	central bool // one central bucket would have admitted it
}

// user is one of a closed loop: it thinks, asks, and comes again when it is denied.
type user struct {
	p        *process
	life     int32
	next     uint64 // the event that is its next step
	key      int32
	n        int64
	attempts int
}

// prepare makes the sources of f's processes ready.
func (d *demand) prepare(f *fleet) {
	d.keys, d.largest = arrival.KeyWeights(d.s.Keys), f.processes[0].config.Capacity()
	shares := 0.0
	for _, g := range f.groups {
		if g.Workload == nil {
			shares += g.Share
		}
	}
	d.sources = make([]source, len(f.processes))
	sizes := map[*scenario.Workload]int{}
	for i, g := range f.groups {
		part := 1.0
		if g.Workload == nil {
			if part = 0; shares > 0 {
				part = g.Share / shares
			}
		}
		d.rates = append(d.rates, float64(part*d.s.RateOf(g.load)))
		d.traces = append(d.traces, tracePart{first: sizes[g.load]})
		sizes[g.load] += len(g.members)
		for rank, p := range g.members {
			d.sources[p.index].moments = random.New(d.seed, streamArrivals, uint64(i), uint64(rank))
		}
	}
	recordings := map[*scenario.Workload]*arrival.Recording{}
	for i, g := range f.groups {
		if g.load.Kind != scenario.Replay {
			continue
		}
		if recordings[g.load] == nil {
			recordings[g.load] = arrival.NewRecording(g.load.Trace, sizes[g.load], g.load.Repeated)
		}
		d.traces[i].Recording = recordings[g.load]
	}
}

// divide divides a group's load between those of its processes that are meant to run.
func (d *demand) divide(g *group) {
	shares := arrival.Shares(g.count, g.Skew)
	for i, p := range g.members[:g.count] {
		d.sources[p.index].rate = float64(d.rates[g.place] * shares[i])
		if p.state == running {
			d.begin(p)
		}
	}
}

// begin has p's requests come from now on.
func (d *demand) begin(p *process) {
	src, g := &d.sources[p.index], p.group
	src.event = 0
	switch g.load.Kind {
	case scenario.Closed:
		d.seat(p)
		return
	case scenario.Replay:
		part := d.traces[g.place]
		src.stream = arrival.NewReplayer(part.Recording, part.first+p.rank, d.time.now)
	case scenario.Adversary:
		src.stream = arrival.Every(p.config.Target / 4)
	default:
		if src.rate <= 0 {
			return
		}
		src.stream = arrival.New(arrival.Source{
			Workload: g.load, Rate: src.rate, Index: p.rank, Of: len(g.members),
			Start: d.time.now, Duration: int64(d.s.Duration),
			Stream: &src.moments, Common: random.SeedOf(d.seed, g.place),
		})
	}
	if src.at = src.stream.Next(d.time.now); src.at < int64(d.s.Duration) {
		src.event = d.time.at(max(src.at, d.time.now), evArrival, p.index)
	}
}

// stale reports whether an arrival belongs to a stream that has ended.
func (d *demand) stale(e event) bool {
	return d.sources[e.who].event != e.seq || d.fleet.processes[e.who].state != running
}

// arrive makes the request whose arrival is the agenda's first event, and puts the next arrival
// there.
func (d *demand) arrive() {
	e := d.time.heap[0]
	p, src := d.fleet.processes[e.who], &d.sources[e.who]
	if d.stale(e) {
		d.time.pop()
		return
	}
	if p.pausedUntil > 0 {
		d.time.pop()
		src.event = d.time.at(p.pausedUntil, evArrival, p.index)
		return
	}
	key, n := d.draw(p)
	src.at = src.stream.Next(src.at)
	if src.at < int64(d.s.Duration) {
		src.event = d.time.replace(max(src.at, d.time.now), evArrival, p.index)
	} else {
		d.time.pop()
		src.event = 0
	}
	d.ask(p, key, n, -1)
}

// draw is what p's next request asks for.
func (d *demand) draw(p *process) (key int32, n int64) {
	if r, ok := d.sources[p.index].stream.(*arrival.Replayer); ok {
		return int32(r.Key % d.s.Keys.Count), min(r.Cost, d.largest)
	}
	if d.s.Keys.Count > 1 {
		key = int32(d.keys.Draw(&p.stream))
	}
	n = p.group.load.Cost.Min
	if most := p.group.load.Cost.Max; most > n {
		n += p.stream.Int64N(most - n + 1)
	}
	return key, n
}

// ask makes one request.
func (d *demand) ask(p *process, key int32, n int64, user int32) {
	r := request{p: p, key: key, user: user, n: n, at: d.time.now}
	d.books.asked(&r)
	d.fleet.decide(r)
}

// drain spends everything that e holds, just before it reports or the lease ends: the worst that a
// process can do to the bound.
func (d *demand) drain(e *entry) {
	for e.client.Pool.Held() > 0 {
		d.ask(e.p, e.key, 1, -1)
	}
}

// seat lets p's users begin.
func (d *demand) seat(p *process) {
	src, load := &d.sources[p.index], p.group.load
	if src.usersOf == p.life {
		return // the load was divided anew, the users are the same
	}
	src.usersOf = p.life
	if src.users == nil {
		for range load.Clients {
			src.users = append(src.users, int32(len(d.users)))
			d.users = append(d.users, user{p: p})
		}
	}
	for _, id := range src.users {
		u := &d.users[id]
		u.life, u.attempts = p.life, 0
		u.next = d.time.at(d.time.now+load.Think.Sample(&src.moments), evUser, id)
	}
}

// step is a user's next step: a new request, or an old one again.
func (d *demand) step(e event) {
	u := &d.users[e.who]
	p := u.p
	switch {
	case u.next != e.seq || p.state != running || u.life != p.life:
		return
	case p.pausedUntil > 0:
		u.next = d.time.at(p.pausedUntil, evUser, e.who)
		return
	}
	if u.attempts == 0 {
		u.key, u.n = d.draw(p)
	}
	d.ask(p, u.key, u.n, e.who)
}

// told is a user's answer.
func (d *demand) told(user int32, ok bool) {
	u := &d.users[user]
	p := u.p
	load, moments := p.group.load, &d.sources[p.index].moments
	if p.state != running || u.life != p.life {
		return
	}
	if ok || u.attempts >= load.Retries {
		u.attempts = 0
		u.next = d.time.at(d.time.now+max(1, load.Think.Sample(moments)), evUser, user)
		return
	}
	span := int64(load.Backoff) << min(u.attempts, 20)
	u.attempts++
	u.next = d.time.at(d.time.now+1+moments.Int64N(max(span, 1)), evUser, user)
}
