package protocol

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Stories of limits, versions and T that change: docs/protocol.md sections 6.7 to 6.14.

// TestLeasesOfALoweredLimitEndWithinT: holders that keep what they have and renew it in time would
// spend it under the new limit, however long after the change.
func TestLeasesOfALoweredLimitEndWithinT(t *testing.T) {
	// given two holders with half of a burst of 10 each
	s, a, b := pair(t, lease.PerSecond(1).WithBurst(10), 100*time.Microsecond)
	s.calls(a, ask{Want: 5})
	s.calls(b, ask{Want: 5})
	// when the burst is lowered to 2, and both go on renewing what they hold
	low := s.config
	low.Limits = []lease.Limit{lease.PerSecond(1).WithBurst(2)}
	s.sets(low)
	for range 5 {
		s.now += 40
		s.calls(a, ask{})
		s.calls(b, ask{})
	}
	// then T later nothing of it is left to spend: the burst was used when it was lowered
	spent := s.spends(a) + s.spends(b) + s.draws(a, 10)
	testkit.Check(t, spent == 0, "%d tokens are spent after the change", spent)
}

// TestEqualVersionsFollowWhoIsThere: limits of one version hold as long as a process proposes them, and 2 T
// longer; then those of the processes that are there.
func TestEqualVersionsFollowWhoIsThere(t *testing.T) {
	// given two processes that propose different limits with the same version
	s, a, b := pair(t, lease.PerSecond(100), 400*time.Millisecond)
	other := s.config
	other.Limits = []lease.Limit{lease.PerSecond(100).WithBurst(50), slow(1000)}
	other.TTL = 200 * time.Millisecond
	s.calls(a, ask{})
	inForce := func(h *holding, c lease.Config) bool { // whether it then is what h proposes
		got := s.calls(h, ask{Config: c}).Config
		return equal(&got, &c)
	}
	// when both call, then those that were there first hold, for as long as a calls within 2 T
	for range 20 {
		s.now += 400_000
		testkit.Must(t, !inForce(b, other), "the other's limits are in force at %d µs", s.now)
		s.now += 400_000
		testkit.Must(t, inForce(a, s.config), "its own limits are not in force at %d µs", s.now)
	}
	// when a has gone, then b's limits are in force 2 T later, not earlier,
	s.now += 800_000
	testkit.Check(t, !inForce(b, other), "after 2 T")
	s.now++
	testkit.Check(t, inForce(b, other) && s.bucket.ttl == 400_000, "later, with T %d µs", s.bucket.ttl)
	// and when a comes back, they go on as long as b calls.
	s.now += 800_000
	testkit.Check(t, !inForce(a, s.config), "a takes them over while b is there")
	// A lower version never takes over; nor does who proposes it keep the stored one in force.
	s.config.Version.Deploy = 2
	testkit.Check(t, inForce(a, s.config), "a higher version is in force at once")
	s.now += 10_000_000
	testkit.Check(t, !inForce(b, other), "a lower version took over")
	other.Version.Deploy = 2
	testkit.Check(t, inForce(b, other), "the lower version's calls kept the stored limits")
}

// TestBlockedNeverStartsFull: wherever another limit would start full, or inherits a level.
func TestBlockedNeverStartsFull(t *testing.T) {
	s, a, _ := pair(t, lease.PerSecond(10), 100*time.Millisecond)
	s.config.Limits = []lease.Limit{lease.Blocked}
	blocked, open := s.config, s.config
	open.Limits = []lease.Limit{lease.PerSecond(1000)}
	denies := func(what string) {
		t.Helper()
		n := s.draws(a, 10)
		testkit.Check(t, n == 0, "%s: granted %d", what, n)
		s.now += 1_000_000
	}
	denies("a new bucket")
	_, err := s.bucket.Configure(s.now, lease.OpReset, lease.Config{})
	testkit.NoErr(t, err)
	denies("after a reset")
	g := s.calls(a, ask{})
	testkit.Check(t, g.Expiry < 10*time.Second, "it is remembered for %v", g.Expiry)
	for _, op := range []lease.Op{lease.OpSet, lease.OpReplace} {
		_, err = s.bucket.Configure(s.now, op, open)
		testkit.NoErr(t, err)
		s.now += 1_000_000
		n := s.draws(a, 10)
		testkit.Check(t, n == 10, "after %v opened it: granted %d", op, n)
		s.now += 1_000_000
		_, err = s.bucket.Configure(s.now, op, blocked)
		testkit.NoErr(t, err)
		denies("set over a full one")
	}
	both := open
	both.Limits = []lease.Limit{lease.PerSecond(1000), lease.Blocked}
	s.sets(open)
	s.sets(both)
	denies("as one limit more")
	testkit.Check(t, s.bucket.Level() == 0, "level %d", s.bucket.Level())
}

// Given a network that gets slower with every call, so that each call proposes a longer T, then T
// follows, and no faster than time passes.
func TestTFollowsANetworkThatGetsSlowerAndSlower(t *testing.T) {
	s, a, _ := pair(t, lease.PerSecond(100).WithBurst(10), 400*time.Millisecond)
	for i := range time.Duration(100) {
		passed, proposed := i*10*time.Millisecond, s.config.TTL+i*5*time.Millisecond
		inForce := s.calls(a, ask{Config: s.lasting(proposed)}).Config.TTL
		testkit.Must(t, inForce <= s.config.TTL+passed && inForce >= proposed-10*time.Millisecond,
			"after %v %v is proposed and %v in force", passed, proposed, inForce)
		s.now += 10_000
	}
}
