package redisbucket

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// choose makes a few limits, of which all configurations of a round are made, so that limits leave
// and come back. Most are small and slow: what was used of them is not refilled when they do. Some
// differ in their tokens only.
func (x *trio) choose() {
	rng := x.rng
	x.many = rng.IntN(3) == 0
	size := 2 + rng.IntN(5)
	if x.many {
		size = 16
	}
	for len(x.few) < size {
		n, burst := 1+rng.Int64N(20), 1+rng.Int64N(20)
		per := []time.Duration{10 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, time.Hour,
			24 * time.Hour}[rng.IntN(6)]
		if x.many {
			per = 24 * time.Hour
		}
		l := lease.Limit{Tokens: n, Per: per, Burst: burst}
		switch p := rng.IntN(8); {
		case p == 0 && rng.IntN(2) == 0:
			l = lease.Blocked
		case p == 0:
			l = lease.Unlimited
		case p == 1:
			l = limit(rng)
		case p < 4 && x.windows:
			l = lease.Sliding(n, per)
		case p == 7 && !x.many: // under which more is leased than the others hold
			l = lease.PerSecond(1 + rng.Int64N(100_000)).WithBurst(1 + rng.Int64N(10_000))
		case p < 6 && x.windows:
			l = lease.Calendar(n, per, time.Duration(upTo(rng, per.Microseconds()-1))*time.Microsecond)
		}
		x.few = append(x.few, l)
		if l.Windowed() && rng.IntN(2) == 0 {
			l.Tokens = burst
			x.few = append(x.few, l)
		}
	}
}

// fewOf returns some of them.
func (x *trio) fewOf() (limits []lease.Limit) {
	for range 1 + max(0, x.rng.IntN(7)-3) {
		i := x.rng.IntN(len(x.few))
		if one := x.few[i : i+1]; protocol.SwitchOf(one) != protocol.SwitchNone {
			return one
		}
		limits = append(limits, x.few[i])
		next := x.few[(i+1)%len(x.few):][:1]
		if x.rng.IntN(6) == 0 && protocol.SwitchOf(next) == protocol.SwitchNone {
			limits = append(limits, next...) // what may differ in its tokens only
		}
	}
	return limits[:min(len(limits), lease.LimitsMax)]
}

// swap has h propose others of the few limits, of a newer version or the version in force, and all
// else as it is.
func (x *trio) swap(h *actor) {
	d := x.bucket.Dump()
	if !d.Exists {
		x.renew(h)
		return
	}
	c := d.Config
	c.TTL = max(c.TTL, 2*c.Target)
	c.Limits = x.fewOf()
	if x.rng.IntN(8) == 0 {
		c.Overcommit = upTo(x.rng, 40)
	}
	if x.rng.IntN(2) == 0 {
		x.version.Deploy = max(x.version.Deploy, c.Version.Deploy) + 1
		c.Version = x.version
	} else if x.clientTime {
		x.now = max(x.now, d.StoodAt+d.Clock-d.Now+2*exact.Micros(d.Config.TTL)+x.rng.Int64N(4)-1)
	}
	if c.Validate() != nil {
		return
	}
	x.configs = append(x.configs, c)
	for _, one := range x.holders { // most follow
		if one == h || x.rng.IntN(4) > 0 {
			one.config = len(x.configs) - 1
		}
	}
	x.renew(h)
}

// passBoundary lets time pass to about a boundary of a calendar, or has the clock step back: by less
// than a second, by less than 10, or by more.
func (x *trio) passBoundary(d *protocol.BucketDump) {
	rng := x.rng
	limits := slices.DeleteFunc(slices.Clone(d.Config.Limits),
		func(l lease.Limit) bool { return l.Kind != lease.KindCalendar })
	back := []int64{1_000_001, 10_000_001, 30_000_000}[rng.IntN(3)]
	if rng.IntN(8) == 0 {
		back = 10_000_000_000
	}
	switch p := rng.IntN(6); {
	case p < 2:
		x.now -= rng.Int64N(back)
	case len(limits) == 0:
	case p < 4: // to the boundary, from either side
		l := limits[rng.IntN(len(limits))]
		per, offset := exact.Micros(l.Per), exact.Micros(l.Offset)
		if per <= 60e6 || rng.IntN(4) == 0 {
			x.now = ((x.now-offset)/per+1)*per + offset - 1 + rng.Int64N(3)
		}
	case p == 4: // when the clock can step back no more
		l := limits[rng.IntN(len(limits))]
		per, offset := exact.Micros(l.Per), exact.Micros(l.Offset)
		x.now = (x.now-offset)/per*per + offset + 10_000_000 - 1 + rng.Int64N(3)
	default: // back over the boundary
		l := limits[rng.IntN(len(limits))]
		per, offset := exact.Micros(l.Per), exact.Micros(l.Offset)
		x.now = (x.now-offset)/per*per + offset - rng.Int64N(back)
		if rng.IntN(4) == 0 {
			x.now = (x.now-offset)/per*per + per + offset - 10_000_000 + rng.Int64N(3) - 1
		}
	}
	x.now = max(0, x.now)
}

// proves makes r a proof that writes were lost, heard of from a clock that may have been ahead.
func (x *trio) proves(r *lease.Request) {
	d := x.bucket.Dump()
	r.Epoch, r.Counter = d.Epoch, d.Counter+1+x.rng.Int64N(3)
	r.HeardAt, r.HeardAge = max(0, x.now-5_000_000+x.rng.Int64N(20_000_000)), 0
	if x.rng.IntN(8) == 0 {
		r.HeardAt = x.now + 10_000_000 + x.rng.Int64N(3) - 1
	}
	x.late(r)
}

// late has r claim to an earlier bucket, which may just have expired when this one was created, and
// may have been waiting out a loss of its own.
func (x *trio) late(r *lease.Request) {
	created := x.bucket.Dump().Created
	if !x.bucket.Dump().Exists {
		created = x.now
	}
	if x.rng.IntN(2) == 0 {
		r.Epoch = max(1, r.Epoch-1-x.rng.Int64N(1000))
	}
	r.HeardExpiry = time.Duration(max(0, created-r.HeardAt+x.rng.Int64N(3)-1)) * time.Microsecond
	if x.rng.IntN(2) == 0 {
		r.HeardExpiry = time.Duration(x.rng.Int64N(3_000_000)) * time.Microsecond
	}
}

// sawChanges counts what became of limits that changed, from before to after.
func (x *trio) sawChanges(before, after *protocol.BucketDump) {
	changed := !slices.Equal(before.Config.Limits, after.Config.Limits)
	newer := after.Config.Version != before.Config.Version
	for k, l := range after.Config.Limits {
		had := func(fits func(lease.Limit) bool) bool { return slices.ContainsFunc(before.Config.Limits, fits) }
		sameKind := had(func(o lease.Limit) bool { return o.Kind == l.Kind })
		goesOn := had(func(o lease.Limit) bool { return o.Kind == l.Kind && o.Per == l.Per && o.Offset == l.Offset })
		x.saw("a window went on", changed && goesOn && l.Windowed())
		x.saw("a new limit of a newer version", changed && !sameKind && newer)
		x.saw("a new limit in a turn", changed && !sameKind && !newer)
		x.saw("a bucket of another per", changed && sameKind && !goesOn && !l.Windowed())
		starts := after.Windows[k].Period*exact.Micros(l.Per) + exact.Micros(l.Offset)
		x.saw("ahead", l.Kind == lease.KindCalendar && starts > x.now && starts-x.now <= 10_000_000)
	}
}

// TestChangesAtTheEdgesAgree compares states that random calls rarely meet: the longest steps back of a
// clock, the beginning of time, debts as deep as can be, and more leased than can be multiplied.
func TestChangesAtTheEdgesAgree(t *testing.T) {
	const noon = 1_700_000_000_000_000
	calendar, fast := lease.Calendar(10, 10*time.Second, 0), lease.PerSecond(1000)
	wide := lease.Limit{Tokens: 1 << 51, Per: time.Microsecond, Burst: 1<<52 - 1}
	slow := lease.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 20_000}
	type step struct {
		passes int64
		limit  lease.Limit
		change func(*lease.Request)
	}
	owes := func(r *lease.Request) {
		r.Late = oneLate(lease.LateCharge, lease.WaitingMax)
	}
	leases := func(r *lease.Request) { r.Want, r.Waiting = 1<<50, 0 }
	late, early := lease.Calendar(10, 10*time.Second, 5*time.Second), lease.Sliding(10, time.Second)
	servers := startServers(t)
	for name, c := range map[string]struct {
		start int64
		steps []step
	}{
		"kept for a calendar that has left": {noon, []step{{0, calendar, nil}, {1, fast, nil},
			{-100_000_000, fast, nil}, {-1_000_000, fast, nil}, {100_000_000, calendar, nil}}},
		"back by 10 s": {noon, []step{{0, calendar, nil}, {-10_000_000, calendar, nil}}},
		"back by a little less": {noon, []step{{0, calendar, nil}, {-9_999_999, calendar, nil},
			{9_999_999, calendar, nil}}},
		"back by a little more": {noon, []step{{0, calendar, nil}, {-10_000_001, calendar, nil}}},
		"gone for 10 s": {noon, []step{{0, calendar, nil}, {0, fast, nil}, {19_999_999, fast, nil},
			{-1, fast, nil}, {1, fast, nil}, {1, fast, nil}, {1, calendar, nil}}},
		"before the first period": {0, []step{{0, late, nil}, {1, fast, nil},
			{1, lease.Calendar(9, 10*time.Second, 5*time.Second), nil}, {5_000_000, fast, nil}, {1, late, nil}}},
		"a window at the beginning": {0, []step{{0, early, nil}, {1, fast, nil},
			{999_999, lease.Sliding(7, time.Second), nil}, {1, fast, nil}, {20_000, early, nil}}},
		"deep in debt": {noon, []step{{0, wide, owes}, {0, wide, owes}, {0, wide, owes}, {0, fast, owes},
			{0, wide, nil}, {0, slow, owes}, {0, slow, owes}, {0, fast, nil}, {1_000_000, slow, nil},
			{0, lease.Blocked, owes}, {0, slow, owes}}},
		"leased without end": {noon, []step{{0, slow, nil}, {0, wide, nil}, {1, wide, leases}, {1, slow, nil},
			{0, wide, nil}, {500_000, slow, nil}}},
	} {
		for _, turns := range []bool{false, true} {
			x := servers.trio(t, rand.New(rand.NewPCG(1, 1)), true, true)
			x.names, x.now = []string{"a"}, c.start
			r := lease.Request{Holder: "a", Weight: 1}
			for i, s := range c.steps {
				r.Seq++
				r.Config = lease.Config{Limits: []lease.Limit{s.limit}, Target: time.Millisecond, TTL: briefTTL,
					Version: lease.Version{Deploy: 1}}
				if turns {
					x.now += 2*exact.Micros(briefTTL) + 1
				} else {
					r.Config.Version.Deploy = int64(1 + i)
				}
				r.Want, r.Waiting, r.Late = 7, 7, nil
				if s.change != nil {
					s.change(&r)
				}
				x.now = max(0, x.now+s.passes)
				g, err := x.call(r)
				testkit.Check(t, err == nil, "%s, call %d: %+v, %v", name, i, g, err)
				r.Epoch, r.Counter = g.Epoch, g.Counter
				r.LeaseMax, r.HeardAt = g.LeaseMax, g.ServerTime
			}
		}
	}
}

// TestLateClaimsAgree compares what a claim to an earlier bucket proves at the edge: where that bucket had
// just expired when the present one was created.
func TestLateClaimsAgree(t *testing.T) {
	const age = 700_000
	servers := startServers(t)
	for i := range 3 * 3 * 2 * 2 {
		expiry, aged, draws, newcomer := i%3-1, i/3%3, i/9%2 == 0, i/18 == 0
		// given a bucket that may be there, of a newcomer
		x := servers.trio(t, rand.New(rand.NewPCG(1, uint64(i))), true, false)
		x.names, x.now = []string{"a", "b"}, 1_700_000_000_000_000
		c := lease.Config{Limits: []lease.Limit{lease.PerSecond(10)}, Target: time.Millisecond, TTL: briefTTL}
		created := x.now
		if newcomer {
			_, err := x.call(lease.Request{Holder: "b", Seq: 1, Config: c, Weight: 1, Want: 3})
			testkit.NoErr(t, err)
			x.now += 5000
		} else {
			x.now += 5000
			created = x.now
		}
		// when a call comes of a holder that has heard of an earlier one
		r := lease.Request{Holder: "a", Seq: 1, Config: c, Weight: 1, Want: 3, Waiting: 3, Draw: draws,
			Epoch: created - age - 1000, Counter: 5, LeaseMax: briefTTL, HeardAt: created - age,
			HeardAge:    time.Duration(x.now-created+age+[]int64{0, -age, age}[aged]) * time.Microsecond,
			HeardExpiry: time.Duration(age+expiry) * time.Microsecond,
		}
		_, err := x.call(r)
		// then all servers believe the same
		testkit.Check(t, err == nil, "%+v: %v", r, err)
	}
}
