package protocol

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

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
		decision := n.Decide(n.d.now, 1, p, Never)
		if decision.Verdict != VerdictWait {
			n.count(decision)
			continue
		}
		n.waiting++
		w := &Waiter{N: 1, Patience: p, Deadline: Never}
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
		{"unlimited and blocked", []lease.Limit{lease.Unlimited, lease.Blocked}, laxest, false},
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
			testkit.Check(t, !n.Degraded() && n.heard.replied, "no reply")
			d.down = true
			d.run(10 * time.Second)
			check("the lease has ended, and the call fails")
			testkit.Check(t, n.Degraded(), "not degraded")
			check("degraded")
			testkit.Check(t, n.debt == 0, "%d tokens are owed", n.debt)
			// and while a loss is waited out, the bucket grants nothing
			d.down = false
			d.run(10 * time.Second)
			check("well again")
			d.bucket = Bucket{}
			d.run(time.Millisecond)
			n.burn()
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
	n.Recall(Memory{replied: true, ttl: time.Second})
	testkit.Check(t, n.heard.level() == 0 && slices.Equal(n.Limits(), []lease.Limit{lease.Blocked}),
		"level %d", n.heard.level())
}
