package protocol

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

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
func TestWhatAClientProposes(t *testing.T) {
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
			stored := n.config
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
				n.giveUp()
				n.failures = 0
				m, ok := n.Rest()
				testkit.Must(t, ok, "the key cannot rest")
				n.starts(lease.Policy{}, own)
				n.Recall(m)
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

func TestWhoIsToldToProposeOtherLimits(t *testing.T) {
	propose := func(n *driven, l lease.Limit) lease.Config {
		c := lease.Policy{}.ConfigFor([]lease.Limit{l}, 0, 0)
		n.Propose(n.d.now, c)
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
	n.giveUp()
	n.failures = 0
	// Its own proposal of a moment ago is no conflict, but is one where it stays.
	n.hears(before)
	testkit.Check(t, !n.Conflict(), "a conflict with itself")
	n.d.now = n.conflictsFrom
	n.hears(before)
	testkit.Check(t, n.Conflict(), "no conflict after 3 T")
	n.hears(after)
	testkit.Check(t, !n.Conflict() && n.Capacity() == 7, "conflict %v, capacity %d", n.Conflict(), n.Capacity())
}
