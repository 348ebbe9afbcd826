package protocol

import (
	"errors"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestAClockThatStepsBackLeavesThePeriodThatHasBegun(t *testing.T) {
	const day = 24 * time.Hour
	for _, back := range []time.Duration{500 * time.Millisecond, 5 * time.Second, time.Minute, 20 * time.Hour} {
		// given 100 a day, and a new day of which 40 are used
		s, a, b := pair(t, lease.Calendar(100, day, 0), 400*time.Millisecond)
		s.now = exact.Micros(10*day) - 1_000_000
		s.draws(a, 100)
		s.now = exact.Micros(10 * day)
		s.draws(a, 40)
		// when the clock steps back into the old one
		s.now -= exact.Micros(back)
		// then it has the 60 that the new day has left, and none more when that comes again
		n := s.draws(b, 100)
		testkit.Check(t, n == 60, "%v back: %d admitted", back, n)
		s.now += exact.Micros(back)
		n = s.draws(b, 100)
		testkit.Check(t, n == 0, "%v back: the day that has come again has %d", back, n)
		s.now += exact.Micros(day)
		n = s.draws(b, 200)
		testkit.Check(t, n == 100, "%v back: the day after has %d", back, n)
	}
	// A clock that was a year ahead leaves its period as the next one.
	s, a, b := pair(t, lease.Calendar(100, day, 0), 400*time.Millisecond)
	s.now = exact.Micros(375 * day)
	s.draws(a, 30)
	s.now = exact.Micros(10 * day)
	n := s.draws(b, 200)
	testkit.Check(t, n == 70, "a year back: %d admitted", n)
	s.now = exact.Micros(11*day) - 1
	g := s.calls(b, ask{Want: 1, Need: 1, Waiting: 1})
	testkit.Check(t, g.Waited == 0 && g.RetryAfter == day+time.Microsecond, "retry after %v", g.RetryAfter)
	s.now = exact.Micros(12 * day)
	n = s.draws(b, 200)
	testkit.Check(t, n == 100, "two days later: %d admitted", n)
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

// turnsTo has the processes of one configuration fall silent, and h call with limits of the same version.
func (s *scene) turnsTo(h *holder, limits ...lease.Limit) lease.Grant {
	s.t.Helper()
	s.now += 2*exact.Micros(s.config.TTL) + 1
	a := ask{Config: s.config}
	a.Config.Limits = limits
	g := s.calls(h, a)
	testkit.Must(s.t, g.Config.Limits[0].Equal(limits[0]), "%v is in force, want %v", g.Config.Limits, limits)
	return g
}

func TestATurnAndTheTurnBackHandOutNothing(t *testing.T) {
	hundreds := []lease.Limit{lease.Every(40 * time.Second).WithBurst(100), lease.Sliding(100, time.Hour),
		lease.Calendar(100, 24*time.Hour, 0)}
	for _, l := range hundreds {
		for _, via := range append(hundreds, lease.PerHour(1), lease.Sliding(100, 2*time.Hour), lease.Blocked) {
			// given a limit of 100 that is used up
			s, a, b := pair(t, l, 400*time.Millisecond)
			s.draws(a, 100)
			// when processes with another one of the same version take their turn, and the first ones again
			s.turnsTo(b, via)
			s.turnsTo(a, l)
			// then there is nothing
			n := s.draws(a, 100)
			testkit.Check(t, n == 0, "%v by way of %v: %d more", l, via, n)
		}
	}
}

// A new limit starts full in a newer version, so a quota that is added to a live fleet denies nobody. It starts
// used up in a turn, with StartEmpty, and while a loss is waited out.
func TestANewLimitStartsFullInANewerVersion(t *testing.T) {
	for _, quota := range []lease.Limit{lease.Sliding(100, time.Hour), lease.Calendar(100, 24*time.Hour, 0),
		{Tokens: 100, Per: 24 * time.Hour}} {
		for name, c := range map[string]struct {
			change func(*lease.Config)
			lost   bool
			want   int64
		}{
			"a newer version":           {func(c *lease.Config) { c.Version.Deploy++ }, false, 100},
			"a turn":                    {func(*lease.Config) {}, false, 0},
			"StartEmpty":                {func(c *lease.Config) { c.Version.Deploy++; c.StartEmpty = true }, false, 0},
			"a newer version in a loss": {func(c *lease.Config) { c.Version.Deploy++ }, true, 0},
		} {
			// given a bucket that waits out a loss, or does not
			s, a, _ := pair(t, lease.PerSecond(1000), 400*time.Millisecond)
			s.calls(a, ask{})
			if c.lost {
				s.loses(a)
			}
			// when a configuration has a quota beside the limit
			config := s.config
			config.Limits = append(slices.Clone(config.Limits), quota)
			if c.change(&config); config.Version == s.config.Version {
				s.now += 2*exact.Micros(s.config.TTL) + 1
			}
			s.calls(a, ask{Config: config})
			s.now += 3_000_000
			// then it has this much
			g := s.calls(a, ask{Config: config})
			testkit.Check(t, g.Levels[1] == c.want, "%v, %s: %d", quota, name, g.Levels[1])
		}
	}
}

func TestALimitGoesOnWithTheOneThatItReplaces(t *testing.T) {
	second, hour := lease.PerSecond(100), lease.Sliding(100, time.Hour)
	for name, c := range map[string]struct {
		before, after []lease.Limit
		want          int64 // of the first one, where 60 of 100 are used
	}{
		"a larger burst":               {[]lease.Limit{slow(100)}, []lease.Limit{slow(1000)}, 40},
		"a smaller burst":              {[]lease.Limit{slow(100)}, []lease.Limit{slow(30)}, 30},
		"another rate":                 {[]lease.Limit{slow(100)}, []lease.Limit{lease.PerHour(1).WithBurst(500)}, 40},
		"its place taken":              {[]lease.Limit{slow(100)}, []lease.Limit{second, slow(100)}, 100},
		"a window of a larger N":       {[]lease.Limit{hour}, []lease.Limit{lease.Sliding(250, time.Hour)}, 190},
		"a window of a smaller N":      {[]lease.Limit{hour}, []lease.Limit{lease.Sliding(70, time.Hour)}, 10},
		"a window behind a new bucket": {[]lease.Limit{hour}, []lease.Limit{lease.Sliding(100, time.Hour), second}, 40},
	} {
		s, a, _ := pair(t, c.before[0], 400*time.Millisecond)
		s.config.Limits = c.before
		s.draws(a, 60)
		s.config.Limits, s.config.Version.Deploy = c.after, 1
		g := s.calls(a, ask{})
		testkit.Check(t, g.Levels[0] == c.want, "%s: %d", name, g.Levels[0])
	}
}

func TestASwitchSuspendsTheLimits(t *testing.T) {
	for _, l := range []lease.Limit{slow(100), lease.Sliding(100, time.Hour), lease.Calendar(100, 24*time.Hour, 0)} {
		for _, on := range []lease.Limit{lease.Blocked, lease.Unlimited} {
			for _, turn := range []bool{false, true} {
				// given a limit of 100 of which 60 are used
				s, a, b := pair(t, l, 400*time.Millisecond)
				s.draws(a, 60)
				switches := func(h *holder, to lease.Limit) lease.Grant {
					if turn {
						return s.turnsTo(h, to)
					}
					s.config.Limits, s.config.Version.Deploy = []lease.Limit{to}, s.config.Version.Deploy+1
					return s.calls(h, ask{})
				}
				// when it is suspended, and everything, or nothing, is admitted,
				g := switches(b, on)
				testkit.Check(t, on.Equal(g.Config.Limits[0]), "%v is in force, want %v", g.Config.Limits, on)
				n := s.draws(b, 500)
				testkit.Check(t, n == 500*flags(on.Equal(lease.Unlimited)), "%v admits %d", on, n)
				// then it goes on as if time had passed alone.
				g = switches(a, l)
				testkit.Check(t, g.Levels[0] == 40, "%v after %v, a turn %v: %d are left", l, on, turn, g.Levels[0])
			}
		}
	}
	// Limits that replace a switch with which the bucket began start full, in a turn too.
	s, a, _ := pair(t, lease.Blocked, 400*time.Millisecond)
	s.calls(a, ask{})
	g := s.turnsTo(a, slow(100))
	testkit.Check(t, g.Levels[0] == 100, "%d are left of what was never counted", g.Levels[0])
}

func TestALeaseOfUnlimitedEndsWithIt(t *testing.T) {
	// given a bucket that is used up, and suspended
	s, a, b := pair(t, slow(100), 400*time.Millisecond)
	s.draws(a, 100)
	s.config.Limits, s.config.Version.Deploy = []lease.Limit{lease.Unlimited}, 1
	// when a process asks for leases, gives some back, some that were drawn for a request, and refunds some,
	g := s.calls(b, ask{Want: 50})
	testkit.Check(t, g.Granted == 0 && b.Pool.Held() == 50, "%d are leased, %d held", g.Granted, b.Pool.Held())
	testkit.Check(t, b.Pool.TakeN(5).OK(), "not admitted")
	b.sendBack(5, b.Pool.Drawn())
	b.Refund(5, nil)
	s.calls(b, ask{Want: 20, Return: func(held int64) int64 { return 15 }})
	testkit.Check(t, b.Pool.Held() == 50, "%d held", b.Pool.Held())
	// then, when the limit is back, there is nothing.
	s.config.Limits, s.config.Version.Deploy = []lease.Limit{slow(100)}, 2
	s.calls(b, ask{})
	held, n := b.Pool.Held(), s.draws(a, 100)
	testkit.Check(t, held == 0 && n == 0, "%d held, %d admitted", held, n)
	testkit.Check(t, b.Account().Conserved(), "%+v", b.Account())
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
			// given 1 a second, burst 10, of which some are used or more than there are, and a part is
			// refilled
			s := newScene(t, lease.PerSecond(1).WithBurst(10), time.Second)
			s.sends(lease.Request{Holder: "a", Late: oneLate(lease.LateCharge, used)})
			s.now += 333_333
			before := settled(&s.bucket, s.now)
			// when the rate changes
			s.config.Limits = []lease.Limit{l.WithBurst(10)}
			s.sets(s.config)
			// then the level is the same, rounded down to the new unit
			was, is := before.levelOf(0), s.bucket.levelOf(0)
			want := new(big.Int).Mul(big.NewInt(was.units), big.NewInt(is.Unit))
			want.Div(want, big.NewInt(was.Unit))
			testkit.Check(t, is.units == want.Int64(), "%v, %d used: %d units, want %v", l, used, is.units, want)
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
	inForce := func(h *holder, c lease.Config) bool { // whether it then is what h proposes
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
}

// Given a network that gets slower with every call, so that each call proposes a longer T, then T
// follows, by an eighth of the time that passes.
func TestTFollowsANetworkThatGetsSlowerAndSlower(t *testing.T) {
	s, a, _ := pair(t, lease.PerSecond(100).WithBurst(10), 400*time.Millisecond)
	for i := range time.Duration(100) {
		passed, proposed := i*10*time.Millisecond, s.config.TTL+i*5*time.Millisecond
		inForce := s.calls(a, ask{Config: s.lasting(proposed)}).Config.TTL
		grown := s.config.TTL + passed/8
		testkit.Must(t, inForce <= grown && inForce >= min(proposed, grown-i*time.Microsecond),
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

// Given a call whose reply is lost, and a T that has grown when it is sent again, then the reply names the T
// for which the bucket counts what it granted.
func TestARetryIsToldTheTOfItsFirstExecution(t *testing.T) {
	s, a, b := pair(t, lease.PerSecond(100), 400*time.Millisecond)
	width := widthFor(400_000)
	s.now = 16*width - 400_000 - 1 // so that the lease ends with its slice
	r := s.opens(a, ask{Want: 10})
	first := s.executes(r)
	s.now += 300_000
	inForce := s.calls(b, ask{Config: s.lasting(time.Second)}).Config.TTL
	testkit.Must(t, inForce > 430*time.Millisecond, "%v is in force", inForce)
	again := s.executes(r)
	testkit.Check(t, again.Granted == first.Granted && again.Config.TTL <= 400*time.Millisecond+time.Microsecond,
		"%+v is told %v", again, again.Config.TTL)
}
