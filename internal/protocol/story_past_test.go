package protocol

import (
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Stories of limits that leave and come back: docs/protocol.md section 6.12.

// hundreds are limits of 100 that fill slowly.
var hundreds = []lease.Limit{lease.Every(40 * time.Second).WithBurst(100), lease.Sliding(100, time.Hour),
	lease.Calendar(100, 24*time.Hour, 0)}

// turnsTo has the processes of one configuration fall silent, and h call with limits of the same version.
func (s *scene) turnsTo(h *holding, a ask, limits ...lease.Limit) lease.Grant {
	s.t.Helper()
	s.now += 2*exact.Micros(s.config.TTL) + 1
	a.Config = s.config
	a.Config.Limits = limits
	g := s.calls(h, a)
	testkit.Must(s.t, g.Config.Limits[0].Equal(limits[0]), "%v is in force, want %v", g.Config.Limits, limits)
	return g
}

func TestAnOperatorsChangeAndTheChangeBackGiveNothingTwice(t *testing.T) {
	for _, l := range hundreds {
		for _, via := range []lease.Limit{lease.Blocked, lease.PerHour(1), lease.Sliding(5, time.Second),
			lease.Calendar(1, time.Second, 0),
			lease.PerSecond(1000), lease.Unlimited, lease.Sliding(1000, time.Minute)} {
			t.Run(fmt.Sprint(l, " by way of ", via), func(t *testing.T) {
				// given a limit of 100 that is used up
				s, a, b := pair(t, l, 400*time.Millisecond)
				s.draws(a, 100)
				// when an operator sets another one, and the first one again, some minutes later
				c := s.config
				c.Limits = []lease.Limit{via}
				s.sets(c)
				s.now += exact.Micros(5 * time.Minute)
				s.calls(b, ask{})
				c.Limits = []lease.Limit{l}
				s.sets(c)
				// then it has what it would have without that
				n := s.draws(b, 100)
				testkit.Check(t, n <= 8, "100 more within minutes: %d", n)
				// and all of it when it would have: an hour, 100 minutes or a day after
				s.now += exact.Micros(24 * time.Hour)
				n = s.draws(b, 100)
				testkit.Check(t, n == 100, "a day later %d are admitted", n)
			})
		}
	}
}

// TestLeasesOfAnotherTurnAreOwed: a process that holds tokens at a turn may spend them. So the limit
// that comes back pays for them, and has them again when they are returned.
func TestLeasesOfAnotherTurnAreOwed(t *testing.T) {
	s, a, b := pair(t, lease.Every(40*time.Second).WithBurst(100), 10*time.Second)
	// given a limit of which 40 are left, and 30 leased of a fast one of the same version
	s.draws(a, 60)
	start := s.now
	s.turnsTo(b, ask{}, lease.PerSecond(1000).WithBurst(100))
	s.calls(a, ask{Want: 30})
	for range 2 {
		s.now += 9_000_000
		s.calls(a, ask{})
	}
	// when the first comes back while they are held
	s.now += 2_000_001
	g := s.calls(a, ask{})
	refilled := (s.now - start) / 40_000_000
	// then those 30 are paid for, and what is given back is there again
	testkit.Check(t, g.Config.Limits[0].Equal(s.config.Limits[0]) && g.Ledger == 30 &&
		g.Levels[0] == 10+refilled,
		"%d are left while %d are held", g.Levels[0], g.Ledger)
	g = s.calls(a, ask{Return: func(held int64) int64 { return held }})
	testkit.Check(t, g.Levels[0] == 40+refilled, "%d are left after 30 were returned", g.Levels[0])
}

func TestACalendarGivesNothingWhenItsClockStepsBackBeforeTheBoundary(t *testing.T) {
	const day = 24 * time.Hour
	for _, back := range []time.Duration{500 * time.Millisecond, 5 * time.Second, 10 * time.Second} {
		// given 100 a day, used up, and a new day
		s, a, b := pair(t, lease.Calendar(100, day, 0), 400*time.Millisecond)
		s.now = exact.Micros(10*day) - 1_000_000
		s.draws(a, 100)
		s.now = exact.Micros(10 * day)
		s.calls(b, ask{})
		// when the clock steps back into the old one
		s.now -= exact.Micros(back)
		g := s.calls(b, ask{Want: 1, Need: 1, Waiting: 1})
		// then nothing is given until it has come to the new one,
		testkit.Check(t, g.Waited == 0 && g.RetryAfter == back, "%v back: %d admitted, retry after %v", back,
			g.Waited, g.RetryAfter)
		s.now += exact.Micros(back) - 1
		n := s.draws(b, 100)
		testkit.Check(t, n == 0, "%v back, just before the boundary: %d admitted", back, n)
		s.now++
		// which has 100, once
		n = s.draws(b, 200)
		testkit.Check(t, n == 100, "%v back: the new day has %d", back, n)
	}
	// A clock that was further ahead may have been anywhere: the old day is given once more, and the
	// new one is not.
	s, a, b := pair(t, lease.Calendar(100, day, 0), 400*time.Millisecond)
	s.now = exact.Micros(10*day) - 60_000_000
	s.draws(a, 100)
	s.now = exact.Micros(10 * day)
	s.calls(b, ask{})
	s.now -= 11_000_000
	n := s.draws(b, 200)
	testkit.Check(t, n == 100, "11 s back: %d admitted", n)
	s.now = exact.Micros(10 * day)
	n = s.draws(b, 200)
	testkit.Check(t, n == 0, "11 s back: the new day has %d more", n)
}

func TestACalendarKeepsItsPeriodAcrossATurnAndALoss(t *testing.T) {
	const day = 24 * time.Hour
	l := lease.Calendar(100, day, 0)
	newDay := func(config func(*lease.Config)) (s *scene, a, b *holding) {
		// given 100 a day, used up just after midnight, when the clock steps back by 5 s
		s, a, b = pair(t, l, 400*time.Millisecond)
		config(&s.config)
		s.now = exact.Micros(10*day) - exact.Micros(2*day)
		s.calls(b, ask{})
		s.now = exact.Micros(10 * day)
		n := s.draws(a, 100)
		testkit.Must(t, n == 100, "the new day has %d", n)
		s.calls(b, ask{})
		s.now -= 5_000_000
		s.calls(b, ask{})
		return s, a, b
	}
	midnight := func(s *scene, a *holding, how string) {
		s.now = max(s.now, exact.Micros(10*day)) + 1
		n := s.draws(a, 100)
		testkit.Check(t, n == 0, "%s: the same day has %d more", how, n)
	}
	// when another limit is in force for a turn,
	s, a, b := newDay(func(*lease.Config) {})
	s.turnsTo(b, ask{}, lease.PerSecond(1000))
	s.turnsTo(a, ask{}, l)
	// then midnight, which comes again, begins no new day.
	midnight(s, a, "a turn")
	// When the bucket is lost, which starts empty,
	s, a, _ = newDay(func(c *lease.Config) { c.StartEmpty = true })
	s.loses(a)
	midnight(s, a, "a loss")
	// and when another limit comes first after the loss, then neither.
	s, a, b = newDay(func(*lease.Config) {})
	s.bucket = Bucket{}
	other := s.config
	other.Limits = []lease.Limit{lease.PerSecond(1000)}
	s.calls(a, ask{Config: other})
	s.now += 1_600_000
	s.calls(b, ask{Config: other})
	s.turnsTo(a, ask{}, l)
	midnight(s, a, "a loss and a turn")
}

func TestMoreLimitsThanCanBeRememberedStartEmpty(t *testing.T) {
	// given limits that are used up one after the other, while an operator sets another each time
	s, a, _ := pair(t, lease.Sliding(10, time.Hour), 10*time.Millisecond)
	limit := func(i int) lease.Limit { return lease.Sliding(10, time.Hour+time.Duration(i)*time.Minute) }
	for i := range pastsMax + 2 {
		s.config.Limits, s.config.Version.Deploy = []lease.Limit{limit(i)}, int64(2*i)
		s.draws(a, 10)
		s.now += exact.Micros(time.Minute)
		s.config.Limits, s.config.Version.Deploy = []lease.Limit{lease.PerSecond(1000)}, int64(2*i+1)
		s.calls(a, ask{})
		s.now += exact.Micros(time.Minute)
	}
	// when each of them comes back
	for i := range pastsMax + 2 {
		s.config.Limits, s.config.Version.Deploy = []lease.Limit{limit(i)}, s.config.Version.Deploy+1
		n := s.draws(a, 10)
		// then it has nothing, be it that the bucket remembers it or not
		testkit.Check(t, n == 0, "%v has %d more", limit(i), n)
		s.config.Limits, s.config.Version.Deploy = []lease.Limit{lease.PerSecond(1000)}, s.config.Version.Deploy+1
		s.calls(a, ask{})
	}
}

func TestACalendarIsRememberedUntilItsClockCannotStepBackIntoIt(t *testing.T) {
	// given a calendar of 50 ms, used up, in force or not
	for _, leaves := range []bool{false, true} {
		s, a, b := pair(t, lease.Calendar(10, 50*milli, 0), 20*milli)
		s.now = 5_000_000_000_000
		s.draws(a, 10)
		first := s.config.Limits
		if leaves {
			s.config.Limits, s.config.Version.Deploy = []lease.Limit{lease.PerSecond(1000)}, 1
			s.calls(b, ask{})
		}
		// when no call comes for 9 s, and the clock steps back by as much
		s.now += 9_000_000
		g := s.calls(b, ask{})
		testkit.Check(t, g.Expiry >= time.Second, "it is remembered for %v", g.Expiry)
		s.now -= 9_000_000
		s.config.Limits, s.config.Version.Deploy = first, 2*s.config.Version.Deploy
		// then the period gives nothing more
		n := s.draws(a, 10)
		testkit.Check(t, n == 0, "left: %v: %d more of the period", leaves, n)
	}
}

func TestATurnOwesLeasesAlsoBeyondTheBurst(t *testing.T) {
	// given a limit of 10 that is unused, and a fast one of the same version
	l := lease.PerSecond(1).WithBurst(10)
	s, a, b := pair(t, l, 10*time.Second)
	s.calls(a, ask{})
	start, total := s.now, int64(0)
	for i := range 5 {
		// when a third process leases 500 of the fast one, and spends them after the turn back
		s.turnsTo(b, ask{}, lease.PerSecond(10_000).WithBurst(1000))
		s.now += 12_000_000
		h := s.holder(fmt.Sprint("h", i))
		s.calls(h, ask{Want: 500})
		s.now += 8_500_000
		s.calls(a, ask{})
		for h.Pool.Take().OK() {
			total++
		}
	}
	// then it owes them
	owed := -s.bucket.tokens(0, 0)
	most := 10 + (s.now-start)/1_000_000 + owed
	testkit.Check(t, total == 2500 && total <= most, "%d admitted, %d owed, at most %d", total, owed, most)
}

func TestALimitThatComesBackIsNotForgottenForTheOneThatLeaves(t *testing.T) {
	// given as many limits as can be remembered
	l := lease.Sliding(100, 10*time.Hour)
	s, a, _ := pair(t, l, 400*time.Millisecond)
	s.draws(a, 1)
	c := s.config
	for i := range pastsMax {
		c.Limits = []lease.Limit{lease.Sliding(1000, 10*time.Hour+time.Duration(i+1)*time.Minute)}
		s.sets(c)
		s.now += 1_000_000
		s.draws(a, 1)
	}
	// when the oldest of them comes back, then it is remembered, and nothing is forgotten
	c.Limits = []lease.Limit{l}
	s.sets(c)
	g := s.calls(a, ask{})
	testkit.Check(t, g.Levels[0] >= 80 && s.bucket.forgotAt == 0, "%d are left, forgotten at %d", g.Levels[0],
		s.bucket.forgotAt)
}

func TestWhatWasNeverUsedIsNotOwed(t *testing.T) {
	// given a quota of which nothing is used
	for _, l := range []lease.Limit{lease.Sliding(100, 24*time.Hour), {Tokens: 100, Per: 24 * time.Hour}} {
		s, a, _ := pair(t, lease.Sliding(100, 24*time.Hour), 400*time.Millisecond)
		s.config.Limits = []lease.Limit{l}
		s.calls(a, ask{})
		c := s.config
		// when an operator lets everything pass for a moment
		c.Limits = []lease.Limit{lease.Unlimited}
		s.sets(c)
		s.now += 1000
		c.Limits = s.config.Limits
		s.sets(c)
		g := s.calls(a, ask{})
		// then all of it is there
		testkit.Check(t, g.Levels[0] == 100, "%v: %d are left", l, g.Levels[0])
	}
}

func TestAResetForgivesAlsoWhatIsNotKnown(t *testing.T) {
	// given a calendar whose clock was a year ahead for a moment, in a bucket that was lost before
	l := lease.Calendar(100, 24*time.Hour, 0)
	s, a, b := pair(t, l, 400*time.Millisecond)
	s.now = exact.Micros(20_000 * 24 * time.Hour)
	s.draws(a, 100)
	s.loses(a)
	s.now += exact.Micros(365 * 24 * time.Hour)
	s.draws(b, 100)
	s.now -= exact.Micros(365 * 24 * time.Hour)
	testkit.Must(t, s.draws(b, 1) == 0 && s.bucket.forgotAt > 0, "it has tokens, or nothing was forgotten")
	// when it is reset
	s.now += exact.Micros(time.Minute)
	_, err := s.bucket.Configure(s.now, lease.OpReset, lease.Config{})
	testkit.NoErr(t, err)
	// then it is given, and again the next day; and another limit is full
	n := s.draws(b, 200)
	s.now += exact.Micros(24 * time.Hour)
	m := s.draws(b, 200)
	testkit.Check(t, n == 100 && m == 100, "%d admitted, and %d the day after", n, m)
	c := s.config
	c.Limits = append(c.Limits, lease.Sliding(50, time.Hour))
	s.sets(c)
	g := s.calls(b, ask{})
	testkit.Check(t, g.Levels[1] == 50, "%d of 50 are left of a new limit", g.Levels[1])
}

// TestABucketIsRememberedUntilItsOvercommitIsMade: what was used of B + E counts against leases of another
// limit that this one finds when it comes back, so the bucket may not expire when its level alone is full.
func TestABucketIsRememberedUntilItsOvercommitIsMade(t *testing.T) {
	// given a bucket that makes its burst in 100 ms, and three tokens of overcommit in 300 ms more
	for overcommit, want := range map[int64]time.Duration{0: 100 * time.Millisecond, 3: 400 * time.Millisecond} {
		b, g := new(Bucket), lease.Grant{}
		c := lease.Config{Limits: []lease.Limit{lease.PerSecond(10).WithBurst(1)}, Overcommit: overcommit,
			TTL:    time.Second,
			Target: time.Millisecond}
		// when a token is drawn
		r := lease.Request{Holder: "a", Seq: 1, Config: c, Want: 1, Need: 1, Waiting: 1, Weight: 1, Draw: true}
		testkit.NoErr(t, b.Call(1_700_000_000_000_000, &r, &g))
		// then it is remembered for that long, and for two T.
		testkit.Check(t, g.Expiry == want+2*time.Second, "overcommit %d: %v", overcommit, g.Expiry)
	}
}

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

func TestAChangeOfLimitsKeepsTheLevelExactly(t *testing.T) {
	for _, l := range []lease.Limit{lease.Every(7 * time.Second), {Tokens: 3, Per: 7 * time.Second},
		{Tokens: 999_983, Per: 86_399 * time.Second}} {
		for _, used := range []int64{3, 25} {
			// given 1 a second, burst 10, of which some are used or more than there are, and a part is refilled
			s := newScene(t, lease.PerSecond(1).WithBurst(10), time.Second)
			s.sends(lease.Request{Holder: "a", Charge: used})
			s.now += 333_333
			before := settled(&s.bucket, s.now)
			// when the rate changes
			s.config.Limits = []lease.Limit{l.WithBurst(10)}
			s.sets(s.config)
			// then the level is the same, rounded down to the new unit
			want := new(big.Int).Mul(big.NewInt(before.level[0]), big.NewInt(s.bucket.scales[0].Unit))
			want.Div(want, big.NewInt(before.scales[0].Unit))
			testkit.Check(t, s.bucket.level[0] == want.Int64(), "%v, %d used: %d units, want %v", l, used,
				s.bucket.level[0], want)
		}
	}
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
	// A lower version never takes over; nor does its holder keep the stored one in force.
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

func TestRevisionsEnd(t *testing.T) {
	// given limits at the last revision there is
	s := newScene(t, lease.PerSecond(10), time.Second)
	s.config.Version.Revision = exact.MaxUnits - 1
	s.calls(s.holder("a"), ask{})
	before := s.bucket.Dump()
	// when they are set once more
	_, err := s.bucket.Configure(s.now, lease.OpSet, s.config)
	// then that is refused, and nothing has changed
	after := s.bucket.Dump()
	testkit.Check(t, errors.Is(err, lease.ErrInvalidConfig) && after.Config.Version == before.Config.Version &&
		after.Counter == before.Counter, "%v: before %+v\nafter %+v", err, before, after)
}
