package protocol

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Tests of the audit of audit_test.go.

func TestMeterCountsTheWorstWindow(t *testing.T) {
	// given one token per microsecond and room for two
	m := newMeter(lease.Limit{Tokens: 1, Per: time.Microsecond, Burst: 2}, 0, 0)
	// when two are admitted at once, one a microsecond later, and one more at the same moment
	m.admit(0, 2)
	m.admit(1, 1)
	testkit.Check(t, m.excess() <= 0, "three tokens in a microsecond are B + R*w: %v", m)
	m.admit(1, 1)
	// then only the last one exceeds the bound
	testkit.Check(t, m.excess() == meterUnit, "four tokens in a microsecond exceed B + R*w by one: %v", m)
	m.refund(1, 1)
	testkit.Check(t, m.excess() == 0, "a refund takes the excess back: %v", m)
}

func TestMeterKnowsWhichBoundHoldsFromWhenToWhen(t *testing.T) {
	// given a burst of 5 that becomes one of 2 at 100, while leases of 4 tokens last until 110
	for _, c := range []struct {
		at, admits, exceeds int64
	}{{99, 5, 0}, {100, 4, 0}, {100, 5, 1}, {109, 4, 0}, {110, 2, 0}, {110, 3, 1}} {
		m := newMeter(lease.Limit{Tokens: 1, Per: time.Microsecond, Burst: 5}, 0, 0)
		m.advance(99)
		if c.at >= 100 {
			m.change(100, lease.Limit{Tokens: 1, Per: time.Second, Burst: 2}, 0, 4, 110)
		}
		// when c.admits are admitted at one moment
		m.admit(c.at, c.admits)
		// then the window that begins there has the bound of its beginning
		testkit.Check(t, max(0, m.excess()) == c.exceeds*meterUnit,
			"%d at %d: exceeded by %d units, want %d tokens", c.admits, c.at, m.excess(), c.exceeds)
	}
	// A window that begins before the change has the old burst, and the rate of each part.
	m := newMeter(lease.Limit{Tokens: 1, Per: time.Microsecond, Burst: 5}, 0, 0)
	m.admit(98, 5)
	m.change(100, lease.Limit{Tokens: 1, Per: time.Second, Burst: 2}, 0, 4, 110)
	m.admit(105, 2)
	testkit.Check(t, m.excess() <= 0, "5 + 2 are the burst and two microseconds of the old rate: %v", m)
	m.admit(105, 1)
	testkit.Check(t, m.excess() > 0, "the old rate ended at the change: %v", m)
}

// TestTheAuditForgivesOnlyWhatBlockedCannotOwe compares it with a look at every window of a story in which
// tokens are refunded after an overshoot that Blocked cannot owe.
func TestTheAuditForgivesOnlyWhatBlockedCannotOwe(t *testing.T) {
	open := lease.Limit{Tokens: 2, Per: time.Microsecond, Burst: 8}
	for more := range int64(4) {
		// given a limit that is blocked at 10, while 3 more than was reserved are used and charged
		f := newFleet(rand.New(rand.NewPCG(1, 1)), faults{}, nil)
		f.config = lease.Config{Limits: []lease.Limit{open}, Overcommit: 1, TTL: 100 * time.Microsecond,
			Target: time.Microsecond}
		f.unfair = true
		n := f.process(0, 0, "a")
		f.nodes = []*node{n}
		draws := func(us, tokens int64) int64 {
			f.now = fleetStart + us
			before := n.spent
			f.calls(n, ask{Want: tokens, Waiting: tokens})
			f.receiveAll()
			return n.spent - before
		}
		set := func(us int64, l lease.Limit) {
			f.now = fleetStart + us
			c := f.config
			c.Limits = []lease.Limit{l}
			f.sets(c)
		}
		all := []admission{{5, draws(5, 1)}}
		set(10, lease.Blocked)
		f.now = fleetStart + 20
		f.overshoot(n, 3)
		draws(20, 0)
		all = append(all, admission{20, 3})
		// when one is refunded, the limit is as before at 40, and all there is is admitted, and more
		n.Refund(1)
		draws(30, 0)
		set(40, open)
		all = append(all, admission{30, -1}, admission{41, draws(41, 20)}, admission{41, more})
		testkit.Check(t, all[3].n == 3, "%d are there", all[3].n)
		f.admit(n, more)
		// then the audit exceeds (1) when a window does, apart from the 3
		worst := int64(math.MinInt64)
		for from := int64(0); from < 41; from++ {
			bound := int64(9) // B + E
			if 10 <= from && from < 40 {
				bound = 2
			}
			bound += 2*max(0, 10-from) + 2 + 3*flags(from < 20)
			for _, a := range all {
				bound -= a.n * flags(a.at > from)
			}
			worst = max(worst, -bound)
		}
		err := f.check()
		testkit.Check(t, worst > 0 == (err != nil), "%d more: (1) is exceeded by %d, the audit says: %v", more,
			worst, err)
		testkit.Check(t, worst > 0 == (more > 1), "%d more: the worst window exceeds (1) by %d", more, worst)
	}
}
