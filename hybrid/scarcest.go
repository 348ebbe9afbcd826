package hybrid

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// scarcest is the part to ask before the others are drawn from, of those that told does not admit;
// -1 where all are likely to have their tokens. A bucket credits what comes back less what it has
// refilled meanwhile, so a denial by one key would cost another one its refill. Those that are sure
// to deny come before those that are likely to, and then the one with the longest wait.
func (j *Joined) scarcest(r request, told []decision) (scarcest int, sure bool) {
	scarcest = -1
	longest := time.Duration(0)
	for i := range j.parts {
		if told[i].ok {
			continue
		}
		in, denies := j.parts[i].lacks(r)
		if in > 0 && (denies && !sure || denies == sure && in > longest) {
			scarcest, sure, longest = i, denies, in
		}
	}
	return scarcest, sure
}

// lacks is for how long p's key is likely to deny r: 0 where it is likely to admit it, or nothing
// is known. sure says that it denies r without a call.
func (p *part) lacks(r request) (in time.Duration, sure bool) {
	n := p.of(r.least())
	e := p.inUse()
	switch {
	case n <= 0:
		return 0, false
	case e != nil:
		return e.lacks(n)
	case p.l.keys.idle.denied(p.l.keys.load(p.name)):
		return 1, false
	}
	return 0, false
}

// lacks is part.lacks for a request for n tokens. What was heard of the bucket says less than the
// last denial where other processes draw from it too.
func (e *entry) lacks(n int64) (in time.Duration, sure bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.Now()
	in = e.client.ReadyIn(now, n)
	switch {
	case n > e.client.Capacity():
		return in, true
	case n > e.client.Pool.Held() && e.client.Degraded() && e.l.cfg.Policy.Fallback == FallbackDeny:
		return in, true
	case in == math.MaxInt64, in == 1 && !e.denied: // nothing is known, or they should be there by now
		return 0, false
	}
	return in, in > 1 && e.client.State(now) == protocol.StateDenied
}

// denies reports whether e is sure to deny a request that does not wait in line, whatever its n.
func (e *entry) denies() bool {
	return e != nil && e.client.Pool.Denies() && e.Now() < e.client.ShutUntil()
}

// rarest is the part that will have its tokens last, as far as is known: the first of those that
// are not known, because to ask is quicker than to give back.
func (j *Joined) rarest(n int64) (rarest int) {
	longest := time.Duration(-1)
	for i := range j.parts {
		p := &j.parts[i]
		in := time.Duration(math.MaxInt64)
		if e := p.inUse(); e != nil {
			in = e.readyIn(p.of(n))
		} else if p.l.keys.idle.admits(p.l.keys.load(p.name), p.l.cfg.Clock.Now()) {
			in = 0
		}
		if in > longest {
			rarest, longest = i, in
		}
	}
	return rarest
}

// readyIn is how long a request for n tokens is likely to wait in line; see protocol.Client.ReadyIn.
func (e *entry) readyIn(n int64) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.client.ReadyIn(e.Now(), n)
}
