package protocol

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// crowdOf is a bucket of 1000/s with this burst, and budget, that a number of holders have called, the last
// reply, and a function that makes one more call.
func crowdOf(t *testing.T, holders int, burst, budget int64) (b *Bucket, last lease.Grant) {
	t.Helper()
	b = new(Bucket)
	policy := lease.Policy{CallsPerSecond: budget}
	config := policy.ConfigFor([]lease.Limit{lease.PerSecond(1000).WithBurst(burst)}, 0, 0)
	for i := range holders {
		r := lease.Request{Holder: string(rune('a' + i)), Seq: 1, Config: config, Want: 1, Weight: 1}
		if err := b.Call(1_700_000_000_000_000+int64(i), &r, &last); err != nil {
			t.Fatal(err)
		}
	}
	return b, last
}

// TestTheTargetInForceKeepsTheBudget: as long as holders may call by the budget, as far as the
// burst goes; and the burst that would do is told.
func TestTheTargetInForceKeepsTheBudget(t *testing.T) {
	for _, x := range []struct {
		holders       int
		burst, budget int64
		want          time.Duration
		wanted        int64
	}{
		{9, 100_000, 0, 100 * time.Millisecond, 0},     // so few calls are worth nothing
		{20, 1000, 0, 125 * time.Millisecond, 0},       // by default an eighth of the burst,
		{12, 100_000, 0, 133333 * time.Microsecond, 0}, // 90 calls a second,
		{20, 100_000, 0, 222222 * time.Microsecond, 0},
		{40, 100_000, 0, 250 * time.Millisecond, 0},  // and a second's T are enough
		{20, 1000, 200, 100 * time.Millisecond, 0},   // as many as make it with the Target
		{20, 1000, 100, 200 * time.Millisecond, 0},   // twice as many
		{20, 1000, 10, 250 * time.Millisecond, 8000}, // 2 s are wanted
		{20, 8000, 10, 2 * time.Second, 0},
		{1, 10_000, 5, 200 * time.Millisecond, 0},
	} {
		_, g := crowdOf(t, x.holders, x.burst, x.budget)
		if g.Target != x.want || BurstWanted(&g, 1) != x.wanted {
			t.Errorf("%d holders, burst %d, %d calls/s: Target %v, want %v; burst wanted %d, want %d",
				x.holders, x.burst, x.budget, g.Target, x.want, BurstWanted(&g, 1), x.wanted)
		}
	}
}

// TestAHolderGoesByTheTargetInForce, but where its TTL is explicit by no more than half of that.
func TestAHolderGoesByTheTargetInForce(t *testing.T) {
	for _, x := range []struct {
		ttl, want, proposes time.Duration
	}{
		{0, 500 * time.Millisecond, 2 * time.Second},
		{600 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond},
	} {
		policy := lease.Policy{TTL: x.ttl, CallsPerSecond: 10}
		config := policy.ConfigFor([]lease.Limit{lease.PerSecond(1000)}, 0, 0)
		c := Client{policy: &policy, own: config}
		c.adopt(config)
		c.hearTarget(&lease.Grant{Config: config, Target: 500 * time.Millisecond})
		if got := c.proposal().TTL; c.target != x.want || got != x.proposes {
			t.Errorf("TTL %v: the Target in force is %v, want %v; T is proposed as %v, want %v",
				x.ttl, c.target, x.want, got, x.proposes)
		}
	}
}

// TestABusyNodeIsLeftAlone: after answers that are late, a process of a large fleet makes no calls
// for eight times as long as they were late; one of a small fleet does not notice.
func TestABusyNodeIsLeftAlone(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		longest     time.Duration
		least, most time.Duration
	}{
		{2 * time.Second, 180 * ms, 305 * ms}, // 30 ms late: 240 ms and a quarter
		{100 * ms, 75 * ms, 126 * ms},
		{0, 0, 0},
	} {
		b := NewBreaker(100*ms, 400*ms, 1)
		now := clock.Instant(time.Hour)
		b.Took(now, ms, x.longest)
		if !b.Admit(now) {
			t.Errorf("a node that answers at once is left alone until %v", b.RestsUntil())
		}
		for range 40 {
			now = now.Add(time.Second)
			b.Took(now, 33*ms, x.longest)
		}
		rests := max(0, b.RestsUntil().Sub(now))
		if rests < x.least || rests > x.most {
			t.Errorf("of at most %v the node is left alone for %v, want %v to %v", x.longest, rests, x.least, x.most)
		}
		if b.Admit(now) != (x.longest == 0) || !b.Admit(now.Add(x.most)) {
			t.Errorf("at most %v: calls are not held back for %v", x.longest, rests)
		}
		if turn := b.Turn(now); x.longest > 0 && turn != b.RestsUntil() {
			t.Errorf("the turn is %v, want %v", turn, b.RestsUntil())
		}
	}
}
