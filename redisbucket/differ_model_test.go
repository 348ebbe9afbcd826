package redisbucket

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// actor is a holder of the differential test: it spends, gives back, retries and, at times, lies.
type actor struct {
	name     string
	seq      int64
	held     int64 // unspent tokens of the last grant, by its own count
	weight   int64
	headroom float64
	config   int             // which of trio.configs it proposes
	drawn    [3]int64        // Grant.Running of the last replies
	heard    lease.Grant     // the last reply
	heardBy  int64           // when it came
	sent     []lease.Request // the last few, for retries and for copies that the network delivers late
}

// populate makes the holders and the configurations they propose.
func (x *trio) populate() {
	x.draws = []float64{0, 0, 0.2, 0.9, 1}[x.rng.IntN(5)]
	if (x.draws < 0.5 || x.clientTime) && x.rng.IntN(3) == 0 {
		x.draws = min(x.draws, 0.2)
		x.choose()
	}
	x.configs = []lease.Config{x.config()}
	x.calm = x.clientTime && x.draws > 0.5 && x.rng.IntN(4) > 0
	for i := range 1 + x.rng.IntN(6) {
		h := &actor{name: fmt.Sprintf("holder-%d", i), weight: 1}
		if x.rng.IntN(4) == 0 {
			h.weight = 1 + x.rng.Int64N(9)
		}
		switch x.rng.IntN(8) {
		case 0:
			h.headroom = x.rng.Float64()
		case 1:
			h.headroom = []float64{0.1, 0.5, 1 - 0x1p-53, 0x1p-1000}[x.rng.IntN(4)]
		}
		x.holders, x.names = append(x.holders, h), append(x.names, h.name)
	}
}

// step does one random thing to all three buckets.
func (x *trio) step() {
	x.t.Helper()
	h := x.holders[x.rng.IntN(len(x.holders))]
	x.pass()
	switch p := x.rng.IntN(1000); {
	case x.few != nil && p < 120, x.many && p < 300:
		x.swap(h)
	case p < 850, x.calm && p < 960:
		x.renew(h)
	case p < 900:
		x.retry(h)
	case p < 920:
		x.stale(h)
	case p < 935:
		x.evict(h.name)
	case p < 940:
		x.lose()
	case p < 948 || p < 954 && x.saved == nil:
		x.save()
	case p < 954:
		x.restore()
	case p < 972:
		x.propose(h)
	case p < 975:
		x.turn(h)
	case p < 979:
		h.held, h.heard = 0, lease.Grant{} // a process that starts again under its name
	default:
		ops := []lease.Op{lease.OpInspect, lease.OpInspect, lease.OpSet, lease.OpReset, lease.OpReplace, lease.OpClear}
		op, c := ops[x.rng.IntN(len(ops))], x.configs[x.rng.IntN(len(x.configs))]
		if (op == lease.OpSet || op >= lease.OpReplace) && x.rng.IntN(2) == 0 {
			c = x.config()
		}
		x.fresh()
		x.configure(op, c)
	}
}

// pass lets time go by, in client-time mode: mostly a little, at times to the edge of a slice, rarely back.
func (x *trio) pass() {
	if !x.clientTime {
		return
	}
	d := x.bucket.Dump()
	ttl := max(d.Config.TTL.Microseconds(), 10)
	switch p := x.rng.IntN(100); {
	case x.few != nil && p < 14:
		x.passBoundary(&d)
	case x.windows && d.Frozen > d.Now && p < 40:
		x.now = max(x.now, d.Clock+d.Frozen-d.Now-1+x.rng.Int64N(3)) // about the end of the wait after a loss
	case x.draws > 0 && p < 15, x.calm && p < 40:
		x.now += x.rng.Int64N(3 * ttl) // until leases have ended
	case p < 30:
	case p < 50:
		x.now += x.rng.Int64N(10)
	case p < 85:
		x.now += x.rng.Int64N(ttl/4 + 1)
	case p < 90 && d.Exists:
		// about the end of a slice
		x.now = max(x.now, d.Clock-d.Now+(d.Now/d.Width+x.rng.Int64N(9))*d.Width-1+x.rng.Int64N(3))
	case p < 93:
		x.now += x.rng.Int64N(3 * ttl)
	case p < 94:
		x.now += 2_900_000 + x.rng.Int64N(200_000) // about as long as T takes to shrink
	case p < 96 && (x.draws < 0.5 || x.calm) && !(x.few != nil && x.rng.IntN(16) > 0):
		x.now += x.rng.Int64N(40 * 24 * 3600 * 1e6) // a month
	case x.calm:
		x.now = max(0, x.now-x.rng.Int64N(1_000_000), d.Clock-1_000_000) // the running time waits for the clock
	case p < 98:
		x.now = max(0, x.now-x.rng.Int64N(2*ttl))
	case p < 99 && x.draws < 0.5:
		x.now = max(0, x.now-x.rng.Int64N(1e10))
	}
	if !d.Exists {
		x.fresh()
	}
}

// fresh makes sure that a bucket created now begins at a time of its own.
func (x *trio) fresh() {
	for x.clientTime && !x.bucket.Dump().Exists && x.births[x.now] {
		x.now++
	}
}

// renew makes one lease call of h.
func (x *trio) renew(h *actor) {
	x.t.Helper()
	x.fresh()
	rng := x.rng
	spent := upTo(rng, h.held)
	if rng.IntN(3) == 0 {
		spent = h.held
	}
	remaining := h.held - spent
	returned := int64(0)
	if rng.IntN(4) == 0 {
		returned = upTo(rng, remaining)
		remaining -= returned
	}
	c := x.configs[h.config]
	if x.calm && h.heard.Epoch > 0 && rng.IntN(16) > 0 {
		c = h.heard.Config // as processes follow what is in force
		c.TTL = max(c.TTL, 2*c.Target)
	}
	top := c.Limits[0].Capacity() + c.Overcommit
	h.seq += 1 + rng.Int64N(2)
	r := lease.Request{
		Holder: h.name, Seq: h.seq, Config: c, Remaining: remaining, Returned: returned, Weight: h.weight,
		Want: 1 + upTo(rng, max(1, top/4)), Epoch: h.heard.Epoch, Counter: h.heard.Counter,
	}
	if h.heard.Epoch > 0 {
		r.LeaseMax, r.HeardAt = max(h.heard.LeaseMax, h.heard.Frozen), h.heard.ServerTime
		r.HeardAge = time.Duration(max(0, x.now-h.heardBy)) * time.Microsecond
		r.HeardExpiry = h.heard.Expiry
	}
	for range 4 {
		if rng.IntN(5) == 0 {
			report(&r, lease.LateRefund, upTo(rng, spent), h.drawn[rng.IntN(len(h.drawn))])
		}
		if rng.IntN(8) == 0 { // requests gave up
			report(&r, lease.LateUnused, upTo(rng, spent), h.drawn[rng.IntN(len(h.drawn))])
		}
		if rng.IntN(40) == 0 {
			report(&r, lease.LateDebt, upTo(rng, top/8+1), upTo(rng, x.edge(1<<uint(rng.IntN(40)))))
		}
		if rng.IntN(120) == 0 { // used more than was reserved: a little, or what takes long to pay
			n := 1 + upTo(rng, top/8+1)
			if rng.IntN(32) == 0 {
				n = x.edge(1 << 40)
			}
			report(&r, lease.LateCharge, n, upTo(rng, x.edge(1<<uint(rng.IntN(40)))))
		}
	}
	r.Headroom = h.headroom
	if rng.IntN(3) == 0 {
		r.Need = upTo(rng, r.Want)
	}
	if rng.IntN(3) == 0 {
		r.Waiting = upTo(rng, r.Want+1)
	}
	if rng.IntN(3) == 0 {
		r.Denied = upTo(rng, 1000)
	}
	if rng.Float64() < x.draws {
		r.Draw, r.Remaining, r.Returned, r.Waiting = true, 0, 0, r.Want
		r.Late = slices.DeleteFunc(r.Late, func(l lease.Late) bool { return l.Kind <= lease.LateRefund })
		if rng.IntN(8) != 0 {
			r.Late, r.Headroom, r.Want, r.Waiting = nil, 0, 1, 1
			r.Need = min(r.Need, 1)
		}
	}
	if x.draws < 0.5 || !x.calm && rng.IntN(8) == 0 { // a loss proven, or a charge, is felt for long
		x.odd(h, &r)
	} else {
		r.Headroom = 0
		r.Late = slices.DeleteFunc(r.Late, func(l lease.Late) bool { return l.Kind > lease.LateRefund })
	}
	if x.few != nil && r.Epoch > 0 && rng.IntN(80) == 0 && !(x.many && rng.IntN(4) > 0) {
		x.proves(&r)
	}
	r.Draw = r.Draw && r.Want == r.Waiting && r.Remaining+r.Returned+protocol.Reported(r.Late, lease.LateRefund)+protocol.Reported(r.Late, lease.LateUnused) == 0
	x.send(h, r)
}

// report has r report n tokens of this kind, drawn at this time or of this age, in microseconds.
func report(r *lease.Request, kind lease.LateKind, n, at int64) {
	l := lease.Late{Kind: kind, Tokens: n}
	if kind <= lease.LateRefund {
		l.Drawn = at
	} else {
		l.Age = time.Duration(at) * time.Microsecond
	}
	if n > 0 {
		r.Late = append(r.Late, l)
	}
}

// odd makes few requests strange: lies, extremes, other proposals of T.
func (x *trio) odd(h *actor, r *lease.Request) {
	d := x.bucket.Dump()
	switch x.rng.IntN(128) {
	case 0:
		r.Remaining += 1 + upTo(x.rng, 5) // more than was ever given
	case 1:
		r.Want, r.Need = 0, 0
	case 2:
		r.Want = 1 << 51
	case 3:
		r.Returned = lease.WaitingMax
		report(r, lease.LateRefund, lease.WaitingMax, d.Now)
	case 4:
		report(r, lease.LateRefund, lease.WaitingMax, x.edge(d.Now))
	case 5:
		report(r, lease.LateDebt, lease.WaitingMax, 0)
	case 6:
		r.Counter += x.rng.Int64N(3) // heard of calls that this bucket may not know
	case 7, 8:
		if x.rng.IntN(2) == 0 {
			r.LeaseMax = time.Duration(x.edge(7200e6)) * time.Microsecond
		}
		if r.Epoch > 0 {
			r.Epoch += x.rng.Int64N(3) - 1
		}
	case 9:
		r.Epoch = x.edge(x.now + day) // more than a server can have said, or just not
	case 10:
		r.Counter = x.edge(d.Now - d.Created + day)
	case 11:
		r.Epoch, r.Counter = upTo(x.rng, lease.WaitingMax), upTo(x.rng, lease.WaitingMax)
	case 12:
		r.HeardAt, r.HeardAge = max(0, x.now-x.rng.Int64N(20e6)+x.rng.Int64N(1e6)),
			time.Duration(x.rng.Int64N(2e10)).Truncate(time.Microsecond)
		r.Counter += 1 + x.rng.Int64N(3)
		x.proves(r)
	case 13, 14:
		report(r, lease.LateUnused, x.edge(lease.WaitingMax), x.edge(lease.WaitingMax))
	case 15, 16, 17:
		report(r, lease.LateKind(x.rng.IntN(2)), 1+upTo(x.rng, 1000), max(0, []int64{d.SetAt, d.Now, x.now,
			d.Now - x.rng.Int64N(1e6)}[x.rng.IntN(4)]+x.rng.Int64N(3)-1))
	case 18, 19, 20, 21, 22, 23:
		// The network got slower: a longer T, or the old one again.
		longer := time.Duration(x.rng.Int64N(int64(3 * r.Config.TTL)))
		r.Config.TTL = min(time.Hour, 2*r.Config.Target+longer).Truncate(time.Microsecond)
	case 25:
		report(r, lease.LateCharge, x.edge(lease.WaitingMax), x.edge(lease.WaitingMax))
	case 26:
		r.Headroom = []float64{-0.1, 1, math.NaN(), math.Inf(1)}[x.rng.IntN(4)]
	case 27, 28, 29:
		r.Denied = x.edge(lease.WaitingMax)
	case 24:
		h.weight = 1 + x.rng.Int64N(5)
	}
}

func (x *trio) send(h *actor, r lease.Request) {
	x.t.Helper()
	if n := len(h.sent); n == 0 || h.sent[n-1].Seq != r.Seq {
		h.sent = append(h.sent[max(0, n-3):], r)
	}
	g, err := x.call(r)
	x.saw("call", true)
	x.saw("error", err != nil)
	h.held = 0
	if err != nil {
		return
	}
	x.saw("void", g.Void)
	x.saw("known", !g.Void)
	x.saw("granted", g.Granted > 0)
	x.saw("short", g.Delay > 0)
	if !g.Void {
		h.held = r.Remaining
	}
	h.held += g.Granted - g.Waited
	h.heard, h.heardBy = g, x.now
	h.drawn = [3]int64{h.drawn[1], h.drawn[2], g.Running}
}

// saw counts what happened.
func (x *trio) saw(what string, happened bool) {
	if happened {
		x.count[what]++
	}
}

// retry sends the last request once more; what it adds up to is the holder's business, so it is
// only compared.
func (x *trio) retry(h *actor) {
	x.t.Helper()
	if n := len(h.sent); n > 0 {
		x.fresh()
		x.saw("retry", true)
		held := h.held
		x.send(h, h.sent[n-1])
		h.held = held
	}
}

// stale delivers a copy of an earlier call of h, and drops the reply.
func (x *trio) stale(h *actor) {
	x.t.Helper()
	if len(h.sent) < 2 {
		return
	}
	x.fresh()
	r := h.sent[x.rng.IntN(len(h.sent)-1)]
	if !x.clientTime {
		// A refusal carries no time. Whether it is one must not depend on the microsecond.
		a, b := x.bucket.Clone(), x.bucket.Clone()
		var g lease.Grant
		if a.Call(x.now, &r, &g) == nil || b.Call(x.now+20_000, &r, &g) == nil {
			return
		}
	}
	x.saw("stale", true)
	_, _ = x.call(r) // it compares by itself
}

// propose gives h another configuration: with a higher version, or at times one that differs at the
// same version.
func (x *trio) propose(h *actor) {
	c := x.config()
	if x.rng.IntN(3) != 0 {
		x.version.Deploy++
		c.Version = x.version
		if x.rng.IntN(16) == 0 {
			c.Version.Revision = lease.WaitingMax // the last: no limits can be set at run time any more
		}
		old := x.configs[h.config]
		old.Version = c.Version
		switch x.rng.IntN(3) {
		case 0: // T alone, up or down
			old.TTL = min(time.Hour, max(2*old.Target,
				time.Duration(x.rng.Int64N(int64(2*old.TTL))).Truncate(time.Microsecond)))
			c = old
		case 1: // the same limits in another order, fewer of them, one more, one changed
			old.Limits = x.rearrange(old.Limits)
			if old.Validate() == nil {
				c = old
				x.saw("rearranged", true)
			}
		}
	}
	x.configs = append(x.configs, c)
	h.config = len(x.configs) - 1
}

// turn has h propose another configuration of the version in force, or the limits in force changed,
// about when these have not been proposed for 2 T.
func (x *trio) turn(h *actor) {
	d := x.bucket.Dump()
	c := x.config()
	if d.Exists {
		c.Version = d.Config.Version
		if x.rng.IntN(2) == 0 {
			c.Limits = x.rearrange(d.Config.Limits)
		}
		if x.clientTime {
			x.now = max(x.now, d.StoodAt+d.Clock-d.Now+2*exact.Micros(d.Config.TTL)+x.rng.Int64N(4)-1)
		}
	}
	if c.Validate() != nil {
		return
	}
	x.configs = append(x.configs, c)
	h.config = len(x.configs) - 1
	x.renew(h)
}

// config returns a random valid configuration, extremes included.
func (x *trio) config() lease.Config {
	rng := x.rng
	for {
		c := lease.Config{
			Target:     time.Duration(1+rng.Int64N(100)) * time.Millisecond,
			StartEmpty: rng.IntN(8) == 0 || x.windows && rng.IntN(3) == 0,
			Version:    lease.Version{Deploy: x.version.Deploy},
		}
		if x.clientTime && rng.IntN(8) == 0 {
			c.Target = time.Duration(1+rng.Int64N(100)) * time.Microsecond
		}
		if !x.clientTime {
			// slices must end while the test runs
			c.Target = time.Duration(1+rng.Int64N(10)) * time.Millisecond
		}
		c.TTL = c.Target * time.Duration(2+rng.Int64N(6))
		if rng.IntN(2) == 0 { // few enough for a longer Target in force
			c.CallsPerSecond = 1 + rng.Int64N(1+int64(6*time.Second/c.Target))
		}
		for range 1 + max(0, rng.IntN(8)-4) {
			c.Limits = append(c.Limits, x.limit())
		}
		if x.few != nil {
			c.Limits = x.fewOf()
		}
		if rng.IntN(3) == 0 {
			c.Overcommit = upTo(rng, c.Limits[0].Capacity())
		}
		if c.Validate() == nil {
			return c
		}
	}
}

// rearrange changes limits as operators do.
func (x *trio) rearrange(limits []lease.Limit) []lease.Limit {
	rng := x.rng
	out := slices.Clone(limits)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	i := rng.IntN(len(out))
	switch rng.IntN(6) {
	case 0:
		out = slices.Delete(out, i, i+1)
	case 1, 2:
		out = slices.Insert(out, i, x.limit())
	case 3:
		out[i].Burst = 1 + upTo(rng, 2*out[i].Capacity())
	case 4:
		out[i].Tokens = 1 + upTo(rng, 2*out[i].Tokens)
	case 5:
		out = slices.Insert(out, i, out[i]) // twice the same
	}
	return out
}

func limit(rng *rand.Rand) lease.Limit {
	switch rng.IntN(16) {
	case 12:
		if rng.IntN(4) == 0 {
			return lease.Blocked
		}
		return lease.Unlimited
	case 13: // levels at the edge of what is exact
		return lease.Limit{Tokens: 1 << 51, Per: time.Microsecond, Burst: 1<<52 - 1}
	case 0:
		return lease.PerSecond(1_000_000_000)
	case 1:
		return lease.Every(30 * 24 * time.Hour)
	case 2:
		return lease.Every(time.Duration(1 + rng.Int64N(1e9)))
	case 3: // needs a coarse tick
		return lease.Limit{Tokens: 1 + rng.Int64N(1e6), Per: time.Duration(1 + rng.Int64N(1e12)),
			Burst: 1 + rng.Int64N(1e9)}
	case 4:
		return lease.Limit{Tokens: 999_983, Per: 86_399 * time.Second, Burst: 1 + rng.Int64N(1e11)}
	case 5:
		return lease.Limit{Tokens: 7, Per: 13 * time.Microsecond, Burst: 1 + rng.Int64N(100)}
	case 6:
		return lease.PerSecond(1 + rng.Int64N(1000)).WithBurst(1)
	case 7:
		return lease.Limit{Tokens: 1, Per: time.Second, Burst: 1 + rng.Int64N(1e9)}
	default:
		return lease.PerSecond(1 + rng.Int64N(100_000)).WithBurst(1 + rng.Int64N(10_000))
	}
}

// day is the claimSlack of protocol.Bucket.
const day = 24 * 3600 * 1_000_000

// edge returns a number close to n, below n, or the largest of a request.
func (x *trio) edge(n int64) int64 {
	switch x.rng.IntN(4) {
	case 0:
		return lease.WaitingMax
	case 1:
		return upTo(x.rng, n)
	}
	return max(0, min(lease.WaitingMax, n+x.rng.Int64N(3)-1))
}

// upTo returns a number from 0 to n, small ones as likely as large ones.
func upTo(rng *rand.Rand, n int64) int64 {
	if n <= 0 {
		return 0
	}
	if rng.IntN(2) == 0 {
		n = min(n, 8)
	}
	return rng.Int64N(n + 1)
}

// oneLate is a list of n tokens of this kind, drawn or used now.
func oneLate(kind lease.LateKind, n int64) []lease.Late { return []lease.Late{{Kind: kind, Tokens: n}} }
