package engine

import (
	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/yuzhi-go/yuzhi/sim/arrival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// request is one question of a user to a process.
type request struct {
	p       *process
	key     int32
	user    int32 // of a closed loop, who waits for the answer; -1 for nobody
	n       int64
	at      int64
	central bool // one central bucket would have admitted it
}

// offer asks one request: of the fleet, of one central bucket, and of all rivals.
func (w *world) offer(p *process, key int32, n int64, user int32) {
	us := w.now / 1000
	r := request{p: p, key: key, user: user, n: n, at: w.now, central: w.central[key].Take(us, n)}
	w.requests++
	w.offered += n
	if r.central {
		w.centralAdmitted += n
	}
	if key == 0 {
		p.offered += n
	}
	for _, c := range w.rivals {
		ok := c.Decide(us, p.number, int(key), n)
		if ok {
			c.audit.admit(w.now, key, n)
		}
		c.tally.Decided(p.index, key, n, r.central, ok)
	}
	e := p.single
	if e == nil {
		e = p.entry(key)
	}
	if e.take(n) {
		w.audit.admit(w.now, key, n)
		w.answer(r, true, n)
		return
	}
	e.decide(r)
}

// answer tells a request what became of it; tokens is how many of the bucket's it was admitted with, as opposed to
// Policy.Fallback's.
func (w *world) answer(r request, ok bool, tokens int64) {
	w.tally.Decided(r.p.index, r.key, r.n, r.central, ok)
	if ok {
		w.books.toRequests += tokens
		w.served++
		if wait := w.now - r.at; wait > 0 {
			w.waited++
			_ = w.waits.RecordValue(min(wait/1000, w.waits.HighestTrackableValue()))
		}
	}
	if r.user >= 0 {
		w.told(r, ok)
	}
}

// newWaits covers every wait that there can be, to three digits.
func newWaits(s *scenario.Scenario) *hdrhistogram.Histogram {
	return hdrhistogram.New(1, max(int64(s.Duration)/1000, 2), 3)
}

// waitQuantile is the wait, in milliseconds, that percent of all admitted requests do not exceed.
func (w *world) waitQuantile(percent int64) float64 {
	rank := (w.served*percent + 99) / 100 // of the request whose wait it is
	rank -= w.served - w.waited           // those who did not wait come first
	if rank <= 0 {
		return 0
	}
	// The histogram computes the rank from a percentage, with a product and a sum that some processors round otherwise: one
	// in the middle of the rank is the rank's everywhere.
	return float64(w.waits.ValueAtQuantile(100*(float64(rank)-0.25)/float64(w.waited))) / 1000
}

func (w *world) verbOf(r request) string {
	if r.p.adversary {
		return scenario.VerbTry
	}
	return r.p.group.load.Verb
}

func (w *world) workloadOf(r request) *scenario.Workload { return r.p.group.load }

// drain spends everything that e holds, just before it reports or the lease ends: the worst that a process can do to the
// bound.
func (w *world) drain(e *entry) {
	for e.holder.Pool.Held() > 0 {
		w.offer(e.p, e.key, 1, -1)
	}
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

// seat lets p's users begin.
func (w *world) seat(p *process) {
	if p.usersOf == p.life {
		return // the load was divided anew, the users are the same
	}
	p.usersOf = p.life
	if p.users == nil {
		for range p.group.load.Clients {
			p.users = append(p.users, int32(len(w.users)))
			w.users = append(w.users, user{p: p})
		}
	}
	for _, id := range p.users {
		u := &w.users[id]
		u.life, u.attempts = p.life, 0
		u.next = w.at(w.now+p.group.load.Think.Sample(&p.arrivals), evUser, id)
	}
}

// think is a user's next step: a new request, or an old one again.
func (w *world) think(e event) {
	u := &w.users[e.who]
	p := u.p
	switch {
	case u.next != e.seq || !p.running || u.life != p.life:
		return
	case p.pausedUntil > 0:
		u.next = w.at(p.pausedUntil, evUser, e.who)
		return
	}
	if u.attempts == 0 {
		u.key, u.n = p.draw()
	}
	w.offer(p, u.key, u.n, e.who)
}

// told is a user's answer.
func (w *world) told(r request, ok bool) {
	u := &w.users[r.user]
	p, load := u.p, u.p.group.load
	if !p.running || u.life != p.life {
		return
	}
	if ok || u.attempts >= load.Retries {
		u.attempts = 0
		u.next = w.at(w.now+max(1, load.Think.Sample(&p.arrivals)), evUser, r.user)
		return
	}
	span := int64(load.Backoff) << min(u.attempts, 20)
	u.attempts++
	u.next = w.at(w.now+1+p.arrivals.Int64N(max(span, 1)), evUser, r.user)
}

// replayer is the part of the trace that is p's.
func (w *world) replayer(p *process) *arrival.Replayer {
	g := p.group
	return arrival.NewReplayer(g.recording, g.first+p.rank, w.now)
}

// replayed is what the request of the trace that r has come to asks for.
func (w *world) replayed(r *arrival.Replayer) (key int32, n int64) {
	return int32(r.Key % w.s.Keys.Count), min(r.Cost, w.config.Capacity())
}
