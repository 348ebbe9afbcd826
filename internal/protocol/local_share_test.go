package protocol

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// heardOf holds the parts of a reply that seed a local share.
type heardOf struct {
	left, others, active, counter int64
	next, leaseMax                time.Duration
}

// cutOff is a process of limit l. What it admits is in no meter: no bucket has granted it.
func cutOff(t *testing.T, l lease.Limit) *driven {
	d := newDriver(t, lease.PerSecond(1))
	return d.client(lease.Policy{}, l, nil)
}

// loses has n hear a reply and then lose the store.
func (n *driven) loses(h heardOf) {
	n.d.t.Helper()
	n.d.seq += 2
	r := n.Build(n.d.now, n.d.seq-1, 0)
	g := lease.Grant{Seq: r.Seq, LeaseMax: h.leaseMax, Expiry: time.Hour, Status: lease.Status{Config: r.Config,
		Epoch: 1, ActiveWeight: h.active, Ledger: h.others, Counter: h.counter}}
	for k := range r.Config.Limits {
		g.Levels[k], g.Next[k] = h.left, h.next
	}
	_, ok := n.Accept(n.d.now, &g)
	testkit.Must(n.d.t, ok, "a reply is not accepted")
	n.Build(n.d.now, n.d.seq, 0)
	n.Fail(n.d.now, lease.ErrUnavailable)
}

// stays lets time pass in which the store stays away: a probe fails at the end of it.
func (n *driven) stays(d time.Duration) {
	n.d.now = n.d.now.Add(d)
	n.d.seq++
	n.Build(n.d.now, n.d.seq, 0)
	n.Fail(n.d.now, lease.ErrUnavailable)
}

// shared takes all that the fallback gives now.
func (n *driven) shared() (took int64) {
	for n.fallback.take(n.d.now, 1, 1) > 0 {
		took++
	}
	return took
}

func TestTheLocalShareIsThePartOfTheBucketThatWasHeard(t *testing.T) {
	ten := lease.PerSecond(10).WithBurst(100)
	type at struct {
		after time.Duration
		more  int64
	}
	for name, c := range map[string]struct {
		limit lease.Limit
		heard heardOf
		takes []at
	}{
		"a part": {ten, heardOf{left: 60, active: 4}, []at{{0, 15}, {2 * time.Second, 5}}},
		"a part, in between": {ten, heardOf{left: 60, active: 4, next: 10 * milli},
			[]at{{200 * milli, 15}, {120 * milli, 1}}},
		"refilled since": {ten, heardOf{left: 60, active: 4}, []at{{2 * time.Second, 20}}},
		"full":           {ten, heardOf{left: 100, active: 4}, []at{{time.Minute, 25}}},
		"empty":          {ten, heardOf{active: 4, next: 100 * milli}, []at{{0, 0}, {time.Second, 2}}},
		"frozen": {ten, heardOf{active: 4, next: 3100 * milli}, []at{{3 * time.Second, 0},
			{400 * milli, 1}}},
		"owed": {ten, heardOf{left: -20, active: 4, next: 100 * milli},
			[]at{{2300 * milli, 0}, {100 * milli, 1}}},
		"leased by others": {ten, heardOf{left: 60, others: 72, active: 4, leaseMax: time.Second}, []at{{0, 7}}},
		"leases that ended": {ten, heardOf{left: 60, others: 72, active: 4, leaseMax: time.Second},
			[]at{{time.Second, 17}}},
		"more than tokens": {ten, heardOf{left: 100, active: 200}, []at{{0, 0}, {10 * time.Second, 1},
			{time.Minute, 1}}},
		"a window": {lease.Sliding(100, 10*time.Second), heardOf{left: 60, active: 4},
			[]at{{0, 15}, {9 * time.Second, 0}, {1200 * milli, 25}}},
		"a used window": {lease.Sliding(100, 10*time.Second), heardOf{left: -3, active: 4, next: 1},
			[]at{{9 * time.Second, 0}, {1200 * milli, 25}}},
		"a window, rounded": {lease.Sliding(10, 10*time.Second), heardOf{left: 7, active: 4},
			[]at{{0, 1}, {10200 * milli, 2}}},
		"a calendar": {lease.Calendar(100, 10*time.Second, 0), heardOf{left: 60, active: 4, next: 3 * time.Second},
			[]at{{0, 15}, {2900 * milli, 0}, {300 * milli, 10}, {6500 * milli, 0}, {600 * milli, 15}}},
	} {
		t.Run(name, func(t *testing.T) {
			n := cutOff(t, c.limit)
			n.loses(c.heard)
			for _, x := range c.takes {
				n.stays(x.after)
				took := n.shared()
				testkit.Check(t, took == x.more, "%v later it gives %d, want %d", x.after, took, x.more)
			}
		})
	}
}

// A bucket names the processes that call at least once in a T.
func TestAProcessThatCallsSeldomCountsTheCallsOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		after   time.Duration // between two replies
		counter int64         // of the second one; 0: none comes
		want    int64
	}{
		"often": {200 * milli, 6, 100}, "seldom": {4 * time.Second, 6, 20}, "alone": {4 * time.Second, 2, 100},
		"one reply, and a node with four": {0, 0, 25},
	} {
		n := cutOff(t, lease.PerHour(100))
		n.breaker.Heard(n.d.now, 4)
		n.loses(heardOf{left: 100, active: 1, counter: 1})
		if n.d.now = n.d.now.Add(c.after); c.counter > 0 {
			n.loses(heardOf{left: 100, active: 1, counter: c.counter})
		}
		// when it comes to rest and back into use, it has the same part
		n.Failures.inARow = 0
		n.Client.Holder.giveUp()
		m, ok := n.Rest()
		testkit.Must(t, ok, "it does not rest")
		n.starts(lease.Policy{}, lease.PerHour(100))
		n.recall(m)
		n.Fail(n.d.now, lease.ErrUnavailable)
		got := n.shared()
		testkit.Check(t, got == c.want, "%s: it has %d of 100, want %d", name, got, c.want)
	}
}

func TestAReplyOnlyLowersTheLocalShare(t *testing.T) {
	for _, l := range []lease.Limit{lease.PerHour(100), lease.Sliding(100, time.Hour),
		lease.Calendar(100, time.Hour, 0)} {
		// given a share that has been spent
		n := cutOff(t, l)
		n.loses(heardOf{left: 80, active: 4})
		first := n.shared()
		// when a reply says what the bucket had before it heard of that
		n.d.now = n.d.now.Add(time.Millisecond)
		n.loses(heardOf{left: 80, active: 4})
		second := n.shared()
		// then the share is spent
		testkit.Check(t, first == 20 && second == 0, "%v: %d, and after another reply %d more", l, first, second)
		// and one that has not been spent follows the bucket down
		n = cutOff(t, l)
		n.loses(heardOf{left: 80, active: 4})
		testkit.Must(t, n.fallback.take(n.d.now, 1, 1) == 1, "nothing is given")
		n.d.now = n.d.now.Add(time.Millisecond)
		n.loses(heardOf{left: 12, active: 4})
		got := n.shared()
		testkit.Check(t, got == 3, "%v: %d of 12 that are left for four", l, got)
	}
}

func TestLimitsOfWhichNothingWasHeardAreUsedUp(t *testing.T) {
	for _, l := range []lease.Limit{lease.PerSecond(100), lease.Sliding(100, 10*time.Second)} {
		// given a full bucket, of which other limits are set
		n := cutOff(t, lease.PerSecond(1000))
		n.loses(heardOf{left: 1000, active: 4})
		n.BucketChanged([]lease.Limit{l})
		// then these have what flows in from now on, or leaves the window
		at := n.shared()
		n.stays(10200 * milli)
		later := n.shared()
		testkit.Check(t, at == 0 && later == 25, "%v: %d at once, %d in the end", l, at, later)
	}
}

// Two configurations that take turns while a process has heard nothing get one share.
func TestALimitThatComesBackBeforeTheFirstReplyKeepsWhatWasSpent(t *testing.T) {
	n := cutOff(t, lease.PerHour(100))
	n.breaker = NewBreaker(time.Second, time.Second, 1)
	n.breaker.Heard(n.d.now, 4)
	n.Fail(n.d.now, lease.ErrUnavailable)
	testkit.Check(t, n.shared() == 25, "not a part of a new bucket")
	for _, l := range []lease.Limit{lease.PerHour(200), lease.PerHour(100)} {
		c := lease.Policy{}.ConfigFor([]lease.Limit{l}, 0, 0)
		n.Propose(n.d.now, &c)
		got := n.shared()
		testkit.Check(t, got == 0, "%v: %d more", l, got)
	}
}

func TestAKeyAtRestRemembersWhatItsBucketHadLeft(t *testing.T) {
	for _, c := range []struct {
		limit, then lease.Limit
		left, want  int64
	}{
		{lease.PerHour(100), lease.PerHour(100), 40, 10},
		{lease.PerHour(1000), lease.PerHour(1000), 500, 124}, // 127 of 255
		{lease.PerHour(1000), lease.PerHour(1000), 0, 0},
		{lease.PerHour(100), lease.PerHour(200), 40, 0}, // limits that nothing is known of
		{lease.Sliding(100, time.Hour), lease.Sliding(100, time.Hour), 40, 10},
	} {
		// given a key that comes to rest
		n := cutOff(t, c.limit)
		n.loses(heardOf{left: c.left, active: 4})
		n.Failures.inARow = 0
		n.Client.Holder.giveUp()
		m, ok := n.Rest()
		testkit.Must(t, ok, "it does not rest")
		// when it comes back into use in an outage
		n.starts(lease.Policy{}, c.then)
		n.recall(m)
		n.Fail(n.d.now, lease.ErrUnavailable)
		got := n.shared()
		// then its share is the part of what was left, rounded down
		testkit.Check(t, got == c.want, "%v with %d left, then %v: %d, want %d", c.limit, c.left, c.then, got,
			c.want)
	}
}

func TestAProcessDoesNotOweWhatItsShareHasRefilled(t *testing.T) {
	for _, c := range []struct {
		takes int64
		after time.Duration
		debt  int64
	}{{10, 10 * time.Second, 0}, {10, time.Second, 8}, {25, time.Second, 25}} {
		// given a share of 25 that refills at 2.5/s, and serves in an outage
		n := cutOff(t, lease.PerSecond(10).WithBurst(100))
		n.loses(heardOf{left: 100, active: 4})
		testkit.Must(t, n.fallback.take(n.d.now, c.takes, c.takes) == c.takes, "the share is not full")
		// when a call is built later
		n.d.now = n.d.now.Add(c.after)
		r := n.Build(n.d.now, n.d.seq+1, 0)
		// then it reports what the share lacks, or all where that is most of it
		testkit.Check(t, Reported(r.Late, lease.LateDebt) == c.debt, "%d taken, %v later %v are owed, want %d",
			c.takes, c.after, r.Late, c.debt)
	}
}

func TestAKeyDoesNotRestWhileItsBucketOwesOrWaits(t *testing.T) {
	for name, c := range map[string]struct {
		level  int64
		frozen time.Duration
		rests  bool
	}{"full": {100, 0, true}, "owed": {-900, 0, false}, "frozen": {0, 10 * time.Second, false},
		"no longer": {0, time.Second, true}} {
		// given a reply that says so
		n := cutOff(t, lease.PerSecond(10).WithBurst(100))
		n.d.seq++
		r := n.Build(n.d.now, n.d.seq, 0)
		g := lease.Grant{Seq: r.Seq, Status: lease.Status{Config: r.Config, Epoch: 1, ActiveWeight: 1},
			LeaseMax: time.Second, Expiry: time.Hour, Frozen: c.frozen}
		g.Levels[0], g.Next[0] = c.level, c.frozen+100*milli
		_, ok := n.Accept(n.d.now, &g)
		testkit.Must(t, ok, "a reply is not accepted")
		// then what a key at rest would forget keeps it in use
		n.d.now = n.d.now.Add(time.Second)
		_, ok = n.Rest()
		testkit.Check(t, ok == c.rests, "%s: it rests: %v", name, ok)
	}
}

func TestTokensOfAColdStartAreReported(t *testing.T) {
	// given a key whose cold start has admitted 90, and whose share 1 more when its first call had failed
	d := newDriver(t, lease.PerSecond(1))
	n := d.client(lease.Policy{ColdStart: lease.ColdStartAllow}, lease.PerSecond(100), nil)
	n.breaker = NewBreaker(100*milli, 400*milli, 1)
	n.breaker.Heard(d.now, 1)
	took := n.fallback.take(d.now, 90, 90)
	n.breaker.Admit(d.now)
	d.seq++
	n.Build(d.now, d.seq, 0)
	n.breaker.Failed(d.now, d.now)
	n.Fail(d.now, lease.ErrUnavailable)
	took += n.fallback.take(d.now, 1, 1)
	// when the next call goes out
	d.now = d.now.Add(300 * milli)
	d.seq++
	r := n.Build(d.now, d.seq, 0)
	// then it tells of all of them
	testkit.Check(t, took == 91 && Reported(r.Late, lease.LateDebt) == 91, "%d admitted, %v reported", took, r.Late)
}

// A window that an unheard key has beside a slow bucket is free again when a window has passed.
func TestAnUnheardKeyWithAWindowAndABucket(t *testing.T) {
	p := lease.Policy{}
	c := p.ConfigFor([]lease.Limit{lease.Sliding(10, time.Second), lease.PerHour(1000)}, 0, 0)
	terms, u, now, took := Terms{Policy: &p, Proposed: &c}, Unheard{}, clock.Instant(1<<60), int64(0)
	for range 60 {
		took += u.take(now, 1, 5, &terms, 1)
		now = now.Add(1100 * milli)
	}
	testkit.Check(t, took == 300, "%d of 300 admitted", took)
	// and no count of it overflows
	p.Fallback = lease.FallbackAllowAll
	for range 3 {
		u.take(now, 1, 1<<63-1, &terms, 1)
	}
	testkit.Check(t, u.debt > 0 && u.windows[0].sum > 0, "%+v", u)
}
