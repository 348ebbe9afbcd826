package protocol

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A denial is counted to the limit that was the reason then.
func TestDenialsAreKnownByLimit(t *testing.T) {
	// given a key with two limits
	d, n := alone(t, lease.PerSecond(10), lease.Policy{}, nil)
	second, hour := lease.PerSecond(10), lease.PerHour(60)
	n.starts(lease.Policy{}, second, hour)
	collect := func() (got [2]int64) {
		n.Denials.Collect(func(l lease.Limit, tokens int64) {
			testkit.Check(t, l == second || l == hour, "%d tokens were denied for %v", tokens, l)
			if l == hour {
				got[1] += tokens
			} else {
				got[0] += tokens
			}
		})
		return got
	}
	ask := func(times int) {
		for range times {
			n.request()
			n.ask()
			d.run(2 * time.Millisecond)
		}
	}
	// when 50 requests come at once, the rate of a second denies
	ask(50)
	first, denied := collect(), n.denied
	testkit.Check(t, denied > 0 && first == [2]int64{denied, 0}, "%d denied, attributed %v", denied, first)
	// and what was told is not told again
	again := collect()
	testkit.Check(t, again == [2]int64{}, "told again: %v", again)
	// when they go on, the hour has been used up after a while
	for range 20 {
		d.run(time.Second)
		ask(20)
	}
	next := collect()
	testkit.Check(t, next[0] > 0 && next[1] > next[0] && next[0]+next[1] == n.denied-denied,
		"%d denied, attributed %v", n.denied-denied, next)
	// and a request that waits is not denied yet
	n.d.run(time.Hour)
	n.request()
	waiting := collect()
	testkit.Check(t, n.waiting == 1 && waiting == [2]int64{}, "%d wait, attributed %v", n.waiting, waiting)
}

// Denied counts what a request did not get, such as the rest of one that took fewer, but nothing of one that
// asks for more than the burst.
func TestDeniedCountsWhatWasNotGot(t *testing.T) {
	d, n := alone(t, slowly.WithBurst(10), lease.Policy{}, nil)
	ask := func(tokens int64, p Patience) Decision {
		n.told = n.Decide(d.now, Ask{N: tokens, Patience: p, Deadline: Never})
		if n.told.Verdict == VerdictWait {
			n.Enqueue(d.now, &Waiter{Ask: Ask{N: tokens, Patience: p, Deadline: Never}})
			n.ask()
			d.run(20 * time.Millisecond)
		}
		return n.told
	}
	// given ten tokens, of which four are gone
	testkit.Must(t, ask(4, OneCall).OK() && n.Denials.Count() == 0, "%+v, %d denied", n.told, n.Denials.Count())
	// when a request takes those that are left of ten, then the rest of it is denied
	took := ask(10, UpTo).Took
	testkit.Check(t, took == 6 && n.Denials.Count() == 4, "%d taken, %d denied", took, n.Denials.Count())
	more := ask(11, OneCall)
	testkit.Check(t, more.Verdict == VerdictExceedsBurst && n.Denials.Count() == 4, "%+v, %d denied", more, n.Denials.Count())
	one := ask(1, OneCall)
	testkit.Check(t, one.Verdict == VerdictDeny && n.Denials.Count() == 5, "%+v, %d denied", one, n.Denials.Count())
}

// A process that leaves headroom asks so in every call, and knows what it can be granted at most.
func TestHeadroomTravels(t *testing.T) {
	d, n := alone(t, lease.PerSecond(10), lease.Policy{Headroom: 0.25}, nil)
	testkit.Check(t, n.Capacity() == 7, "a burst of 10 less 2.5 grants %d", n.Capacity())
	n.request()
	n.ask()
	testkit.Check(t, n.last.Headroom == 0.25, "the request says %v", n.last.Headroom)
	d.run(time.Second)
	testkit.Check(t, n.Capacity() == 7, "%d after the reply", n.Capacity())
	refused := n.Decide(d.now, Ask{N: 8, Patience: OneCall, Deadline: Never})
	testkit.Check(t, refused.Verdict == VerdictExceedsBurst, "a request for 8: %v", refused.Verdict)
	// The rest is shown as part of that.
	h := n.Heard()
	h.levels[0], h.next[0] = 3, 100*time.Millisecond
	o := h.Outlook(h.at, 1, 0, true)
	testkit.Check(t, o.Remaining == 3 && o.ResetAfter == 400*time.Millisecond &&
		o.Limit == lease.PerSecond(10), "%+v", o)
	// Where others have used that up, or more is owed than there is, nothing remains; a token takes
	// until all of it is there again.
	h.levels[0] = -2
	o = h.Outlook(h.at, 1, 0, false)
	testkit.Check(t, o.Remaining == 0 && o.RetryAfter == 300*time.Millisecond &&
		o.ResetAfter == 900*time.Millisecond, "%+v", o)
}

// A denied caller that sleeps until RetryAt and asks again is served then, where no other asks: so a token
// costs at most one denial, and hardly any token is left lying.
func TestACallerThatSleepsUntilRetryAtIsDeniedOncePerToken(t *testing.T) {
	for _, c := range []struct {
		limit lease.Limit
		rtt   time.Duration
		least int64 // admitted in 20 s
	}{
		{lease.PerSecond(10).WithBurst(1), 0, 199},
		{lease.PerSecond(10).WithBurst(1), time.Millisecond, 199},
		{lease.PerSecond(10).WithBurst(1), 20 * time.Millisecond, 199},
		{lease.PerSecond(100), time.Millisecond, 2090},
		{lease.PerSecond(1000).WithBurst(50), time.Millisecond, 20_000},
	} {
		d, n := alone(t, c.limit, lease.Policy{}, nil)
		d.rtt = c.rtt
		for end := d.now.Add(20 * time.Second); d.now < end; {
			before := n.denied
			n.request()
			n.ask()
			for n.waiting > 0 {
				d.run(10 * time.Microsecond)
			}
			if n.denied > before {
				d.run(n.RetryAt(d.now, 1, lease.SourceStore).Sub(d.now))
			}
		}
		testkit.Check(t, n.denied <= n.admitted+1 && n.admitted >= c.least,
			"%v, %v: %d denials for %d tokens, want at least %d", c.limit, c.rtt, n.denied, n.admitted, c.least)
	}
}

// RetryAt never names the present or the past, whatever the request was denied for: a caller that sleeps
// until then and asks again would spin.
func TestRetryAtIsAheadOfNow(t *testing.T) {
	ahead := func(n *driven, d Decision, of int64) {
		t.Helper()
		testkit.Must(t, !d.OK() && d.Verdict != VerdictWait, "not denied: %+v", d)
		at := n.RetryAt(n.d.now, of, d.Source)
		testkit.Check(t, at > n.d.now && at < n.d.now.Add(time.Second), "to be asked again in %v", at.Sub(n.d.now))
	}
	// One that does not wait, where nothing is known yet, and where nothing is held;
	d, n := alone(t, lease.PerSecond(100), lease.Policy{}, nil)
	ahead(n, n.Decide(d.now, Ask{N: 1, Patience: NoWait, Deadline: Never}), 1)
	n.ask()
	d.run(time.Second)
	ahead(n, n.Decide(d.now, Ask{N: 1, Patience: NoWait, Deadline: Never}), 1)
	// and where the local share, which has tokens, is for one that waits in line.
	d, n = alone(t, lease.PerSecond(100), lease.Policy{}, nil)
	n.degrade()
	for n.fallback.take(d.now, 1, 1) > 0 {
	}
	d.run(100 * time.Millisecond)
	in := n.Decide(d.now, Ask{N: 50, Patience: InLine, Deadline: Never})
	testkit.Must(t, in.Verdict == VerdictWait, "%+v", in)
	n.Enqueue(d.now, &Waiter{Ask: Ask{N: 50, Patience: InLine, Deadline: Never}})
	ahead(n, n.Decide(d.now, Ask{N: 1, Patience: OneCall, Deadline: Never}), 1)
}

// hears answers n's next call as a bucket does in which this configuration is in force.
func (n *driven) hears(c lease.Config) {
	n.d.t.Helper()
	n.request()
	n.ask()
	testkit.Must(n.d.t, n.reply != Never, "no call is made")
	c.TTL = n.grant.Config.TTL
	n.grant.Config = c
	n.d.now = n.reply
	n.replied()
	n.d.now = n.d.now.Add(time.Second) // past any delay
}

// A stored configuration of an equal version is obeyed and not proposed: it would be in force for
// ever. One of a higher version is, so that it survives the loss of its bucket.
func TestAClientProposesItsConfig(t *testing.T) {
	own, other := lease.PerSecond(100), lease.PerSecond(5)
	for _, c := range []struct {
		name     string
		version  lease.Version
		proposed lease.Limit
		conflict bool
	}{
		{"the same version", lease.Version{}, own, true},
		{"a higher deploy", lease.Version{Deploy: 1}, other, false},
		{"limits that were set", lease.Version{Revision: 1}, other, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			// given a process, and a bucket in which another configuration is in force
			_, n := alone(t, own, lease.Policy{}, nil)
			stored := n.settings.config
			stored.Limits, stored.Version = []lease.Limit{other}, c.version
			for range 2 { // and again after the key was at rest
				n.hears(stored)
				// then it is obeyed
				testkit.Check(t, slices.Equal(n.Limits(), stored.Limits) && n.Capacity() == 5,
					"the limits are %v, the largest request %d", n.Limits(), n.Capacity())
				testkit.Check(t, n.Conflict() == c.conflict, "conflict: %v", n.Conflict())
				// and the next call proposes the newer one of the two
				r := n.Build(n.d.now, n.d.seq+1, 0)
				testkit.Check(t, r.Config.Limits[0] == c.proposed, "%v is proposed", r.Config.Limits)
				n.d.seq++
				n.Fail(n.d.now, lease.ErrUnavailable)
				n.Holder.giveUp()
				n.Failures.inARow = 0
				m, ok := n.Rest()
				testkit.Must(t, ok, "the key cannot rest")
				n.starts(lease.Policy{}, own)
				n.recall(m)
				testkit.Check(t, slices.Equal(n.Limits(), stored.Limits) && n.Conflict() == c.conflict,
					"after a rest the limits are %v, conflict: %v", n.Limits(), n.Conflict())
			}
			// and when its own are in force again, that is over
			stored.Limits, stored.Version = []lease.Limit{own}, lease.Version{}
			n.hears(stored)
			testkit.Check(t, !n.Conflict() && n.Capacity() == 100, "conflict: %v, capacity %d", n.Conflict(),
				n.Capacity())
		})
	}
}

func TestAClientIsToldToProposeOtherLimits(t *testing.T) {
	propose := func(n *driven, l lease.Limit) lease.Config {
		c := lease.Policy{}.ConfigFor([]lease.Limit{l}, 0, 0)
		n.Propose(n.d.now, &c)
		return c
	}
	// given a process that has not heard of its bucket yet: what it is told is in force at once
	_, n := alone(t, lease.PerSecond(100), lease.Policy{}, nil)
	before := propose(n, lease.PerSecond(50))
	testkit.Check(t, n.Capacity() == 50 && n.Limits()[0] == before.Limits[0], "capacity %d", n.Capacity())
	// afterwards the bucket decides
	n.hears(before)
	after := propose(n, lease.PerSecond(7))
	testkit.Check(t, n.Capacity() == 50, "capacity %d before the bucket has said so", n.Capacity())
	r := *n.Build(n.d.now, n.d.seq+1, 0)
	n.d.seq++
	testkit.Check(t, r.Config.Limits[0] == lease.PerSecond(7), "%v is proposed", r.Config.Limits)
	n.Fail(n.d.now, lease.ErrUnavailable)
	n.Holder.giveUp()
	n.Failures.inARow = 0
	// Its own proposal of a moment ago is no conflict, but is one where it stays.
	n.hears(before)
	testkit.Check(t, !n.Conflict(), "a conflict with itself")
	n.d.now = n.settings.conflictsFrom
	n.hears(before)
	testkit.Check(t, n.Conflict(), "no conflict after 3 T")
	n.hears(after)
	testkit.Check(t, !n.Conflict() && n.Capacity() == 7, "conflict %v, capacity %d", n.Conflict(), n.Capacity())
}

// strictest and laxest admit as little and as much as a policy can without the store.
var (
	strictest = lease.Policy{Fallback: lease.FallbackDeny, ColdStart: lease.ColdStartDeny}
	laxest    = lease.Policy{Fallback: lease.FallbackAllowAll, ColdStart: lease.ColdStartAllow}
)

// answers counts the answers of n to a request of each patience, for ones that wait the final ones.
func (n *driven) answers() (admitted, denied int64) {
	n.d.t.Helper()
	a, b := n.admitted, n.denied
	for _, p := range []Patience{NoWait, OneCall, UpTo, InLine} {
		decision := n.Decide(n.d.now, Ask{N: 1, Patience: p, Deadline: Never})
		if decision.Verdict != VerdictWait {
			n.count(decision)
			continue
		}
		n.waiting++
		w := &Waiter{Ask: Ask{N: 1, Patience: p, Deadline: Never}}
		n.Enqueue(n.d.now, w)
		n.ask()
		n.d.run(n.d.rtt + time.Millisecond)
		if p != InLine {
			n.TimeOut(n.d.now, w)
		} else if w.waiting {
			n.Cancel(n.d.now, w)
		}
	}
	testkit.Check(n.d.t, n.waiting == 0, "%d still wait", n.waiting)
	return n.admitted - a, n.denied - b
}

// Where nothing is limited, no request is denied for the lack of a store, whatever the policy; and
// where everything is, none is admitted.
func TestUnlimitedAndBlockedNeedNoStore(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits []lease.Limit
		policy lease.Policy
		admits bool
	}{
		{"unlimited", []lease.Limit{lease.Unlimited}, strictest, true},
		{"blocked", []lease.Limit{lease.Blocked}, laxest, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, n := alone(t, lease.PerSecond(10), lease.Policy{}, nil)
			d.meter = newMeter(lease.PerSecond(1e6), 0, int64(d.now)/1000) // for what the store admits
			check := func(when string) {
				t.Helper()
				yes, no := n.answers()
				testkit.Check(t, yes == 4 && no == 0 && c.admits || yes == 0 && no == 4 && !c.admits,
					"%s: %d admitted, %d denied", when, yes, no)
			}
			n.starts(c.policy, c.limits...)
			d.down = true
			check("before the first reply, which is a failure")
			n.starts(c.policy, c.limits...)
			d.rtt = time.Hour
			check("before the first reply, which does not come")
			// once the bucket was heard
			n.starts(c.policy, c.limits...)
			d.down, d.rtt, n.reply = false, time.Millisecond, Never
			d.run(10 * time.Second)
			check("with a store")
			testkit.Check(t, !n.Failures.Degraded() && n.Holder.heard.replied, "no reply")
			d.down = true
			d.run(10 * time.Second)
			check("the lease has ended, and the call fails")
			testkit.Check(t, n.Failures.Degraded(), "not degraded")
			check("degraded")
			testkit.Check(t, n.Holder.debt == nil, "%v tokens are owed", n.Holder.debt)
			// and while a loss is waited out, the bucket grants nothing
			d.down = false
			d.run(10 * time.Second)
			check("well again")
			d.bucket = Bucket{}
			d.run(time.Millisecond)
			n.Holder.burn()
			check("a bucket that was lost")
			if c.admits {
				testkit.Check(t, d.bucket.frozen > int64(d.now)/1000, "the bucket grants")
			}
			check("the same, as known")
		})
	}
	// One that was blocked when it came to rest is known to be empty.
	_, n := alone(t, lease.PerSecond(10), lease.Policy{}, nil)
	n.starts(lease.Policy{}, lease.Blocked)
	n.recall(Memory{replied: true, ttl: time.Second})
	testkit.Check(t, n.Holder.heard.level() == 0 && slices.Equal(n.Limits(), []lease.Limit{lease.Blocked}),
		"level %d", n.Holder.heard.level())
}
