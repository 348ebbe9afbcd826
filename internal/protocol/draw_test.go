package protocol

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// terms are those of a process with default settings, for keys with these limits.
func terms(p lease.Policy, limits ...lease.Limit) *Terms {
	c := p.ConfigFor(limits, 0, 0)
	return &Terms{ID: "a", Policy: &p, Proposed: &c}
}

// drawing is the draw of n tokens that k begins now.
func (s *scene) drawing(k *Key, seq, n int64, on *Terms) *Draw {
	d := &Draw{For: &Waiter{Ask: Ask{N: n, Patience: OneCall, Deadline: Never}}, Request: new(lease.Request)}
	k.Draw(s.instant(), seq, on, d)
	return d
}

// drawn is a key at rest after draws with these pauses between them.
func drawn(t *testing.T, s *scene, on *Terms, pauses ...time.Duration) (k Key) {
	t.Helper()
	for i, pause := range append(pauses, 0) {
		d := s.drawing(&k, int64(i+1), 1, on)
		testkit.NoErr(t, d.Request.Validate())
		g := s.executes(*d.Request)
		_, ok := k.Drew(s.instant(), d, newBreaker(), &g)
		testkit.Must(t, ok, "draw %d: %+v", i, g)
		s.now += pause.Microseconds()
	}
	return k
}

// TestWhichKeysDraw: those that are asked too seldom for a lease to pay, and those that cannot
// lease ahead anyway.
func TestWhichKeysDraw(t *testing.T) {
	limit := lease.PerSecond(1000)
	seldom, often := []time.Duration{time.Second, time.Second}, make([]time.Duration, 40)
	for i := range often {
		often[i] = 10 * time.Millisecond
	}
	for _, c := range []struct {
		name   string
		policy lease.Policy
		limit  lease.Limit
		n      int64
		pauses []time.Duration // nil: the key is not known yet
		rtt    time.Duration
		want   bool
	}{
		{"unknown", lease.Policy{}, limit, 1, nil, 0, true},
		{"unknown, with a batch to begin with", lease.Policy{MinBatch: 5}, limit, 1, nil, 0, false},
		{"slow, with a batch", lease.Policy{MinBatch: 5}, limit, 1, seldom, 0, false},
		{"slow", lease.Policy{}, limit, 1000, seldom, 0, true},
		{"above the burst", lease.Policy{}, limit, 1001, seldom, 0, false},
		{"within the burst, but for the headroom", lease.Policy{Headroom: 0.5}, limit, 501, seldom, 0, false},
		{"100/s", lease.Policy{}, limit, 1, often, 0, false},
		{"100/s of a burst of 3", lease.Policy{}, limit.WithBurst(3), 1, often, 0, true},
		{"100/s of a burst that one round trip refills", lease.Policy{}, limit.WithBurst(50), 1, often,
			20 * time.Millisecond, true},
		{"blocked", lease.Policy{}, lease.Blocked, 1, nil, 0, false},
		{"unlimited", lease.Policy{}, lease.Unlimited, 1, nil, 0, false},
	} {
		s := newScene(t, limit, 400*time.Millisecond)
		on := terms(c.policy, c.limit)
		var k Key
		if c.pauses != nil {
			k = drawn(t, s, on, c.pauses...)
		}
		on.RTT = c.rtt
		testkit.Check(t, k.memory.draws(s.instant(), c.n, on) == c.want, "%s: draws is not %t", c.name, c.want)
	}
}

// TestADrawTakesOnlyAPlainReply changes nothing: a Client has to take it in.
func TestADrawTakesOnlyAPlainReply(t *testing.T) {
	s := newScene(t, lease.PerSecond(10), 400*time.Millisecond)
	on := terms(lease.Policy{}, lease.PerSecond(10))
	k := drawn(t, s, on)
	draw := s.drawing(&k, 7, 2, on)
	good := s.executes(*draw.Request)
	for name, change := range map[string]func(g *lease.Grant){
		"another seq":      func(g *lease.Grant) { g.Seq++ },
		"short":            func(g *lease.Grant) { g.Granted-- },
		"nothing waited":   func(g *lease.Grant) { g.Waited = 0 },
		"more than wanted": func(g *lease.Grant) { g.Granted++ },
		"no T":             func(g *lease.Grant) { g.Config.TTL = 0 },
		"negative epoch":   func(g *lease.Grant) { g.Epoch = -1 },
		"negative counter": func(g *lease.Grant) { g.Counter = -1 },
		"negative running": func(g *lease.Grant) { g.Running = -1 },
		"other limits":     func(g *lease.Grant) { g.Config.Limits = []lease.Limit{lease.PerSecond(5)} },
		"another version":  func(g *lease.Grant) { g.Config.Version.Revision++ },
	} {
		g, before := good, k
		change(&g)
		_, ok := k.Drew(s.instant(), draw, newBreaker(), &g)
		testkit.Check(t, !ok && k == before, "%s is taken for a plain reply", name)
	}
	d, ok := k.Drew(s.instant(), draw, newBreaker(), &good)
	testkit.Check(t, ok && d == pool.Draw{Epoch: good.Epoch, Running: good.Running}, "%+v", d)
}

// TestATakenOverDrawIsNeverSentAgain and carries no right to bring back anything at once: the
// bucket does not know who drew.
func TestATakenOverDrawIsNeverSentAgain(t *testing.T) {
	s := newScene(t, lease.PerSecond(10), 400*time.Millisecond)
	on := terms(lease.Policy{}, lease.PerSecond(10))
	rested := drawn(t, s, on)
	for _, answered := range []bool{false, true} {
		k := rested
		draw := s.drawing(&k, 11, 2, on)
		d := newDriver(t, lease.PerSecond(10))
		d.now = s.instant()
		c := &d.client(lease.Policy{}, lease.PerSecond(10), nil).Client
		k.Activate(s.instant(), c)
		testkit.Check(t, c.Line.HasWaiters() && c.Holder.IsOpen() && c.Holder.resend(s.instant()) == nil,
			"the draw would be sent again")
		if !answered {
			c.Fail(s.instant(), lease.ErrUnavailable)
			again := c.Build(s.instant(), 12, 0)
			testkit.Check(t, again.Seq == 12 && !again.Draw, "%+v", again)
			continue
		}
		g := s.executes(*draw.Request)
		got, ok := c.Accept(s.instant(), &g)
		testkit.Must(t, ok && got.Waited == 2, "%+v, %t", got, ok)
		c.Cancel(s.instant(), draw.For)
		c.Serve(s.instant(), got)
		first := *c.Build(s.instant(), 13, 0)
		testkit.Check(t, len(first.Late) == 0, "%v come back to a bucket that does not know the holder", first.Late)
		g = s.executes(first)
		_, ok = c.Accept(s.instant(), &g)
		testkit.Must(t, ok, "refused")
		second := c.Build(s.instant(), 14, 0)
		testkit.Check(t, Reported(second.Late, lease.LateUnused) == 2, "%v come back with the second call", second.Late)
	}
}

// TestTheCallsOfABucketShowItsProcesses, though no reply to their draws names another process.
func TestTheCallsOfABucketShowItsProcesses(t *testing.T) {
	for _, c := range []struct {
		limit  lease.Limit
		weight int64
	}{{lease.PerHour(1000), 1}, {lease.PerHour(1000), 16},
		{lease.PerSecond(10), 1}} { // of which a process that draws so seldom proves nothing any more
		// given five processes that draw in turn
		s := newScene(t, lease.PerSecond(10), 400*time.Millisecond)
		on := terms(lease.Policy{Weight: c.weight}, c.limit)
		nodes, of := make([]*Breaker, 5), make([]Key, 5) // as each of them sees the node and the key
		for i := range nodes {
			nodes[i] = newBreaker()
		}
		turn := func(processes int) (active []int64) {
			for i := range of[:processes] {
				s.seq++
				d := s.drawing(&of[i], s.seq, 1, on)
				g := s.executes(*d.Request)
				_, ok := of[i].Drew(s.instant(), d, nodes[i], &g)
				testkit.Must(t, ok && g.ActiveWeight == c.weight, "%+v", g)
				active = append(active, of[i].memory.byCalls(c.weight)/c.weight)
				s.now += 4_000_000 / int64(len(of))
			}
			return active
		}
		check := func(what string, got []int64, want ...int64) {
			t.Helper()
			testkit.Check(t, slices.Equal(got, want), "%v, weight %d, %s: %d processes, want %d", c.limit, c.weight,
				what, got, want)
		}
		// then the first replies count the calls of ten TTLs, and the others those since,
		check("first", turn(5), 0, 2, 3, 4, 5)
		check("second", turn(5), 5, 5, 5, 5, 5)
		testkit.Check(t, nodes[0].Active() == 5*c.weight, "the node has %d", nodes[0].Active())
		// and what they show fades.
		check("alone", append(append(turn(1), turn(1)...), turn(1)...), 5, 4, 3)
	}
}
