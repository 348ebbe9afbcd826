package hybrid_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Redisson: trySetRate answers false to everybody but the first, and the rate stays the first
// one's.
func TestPeerFirstConfigurationWins(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given a process that has come with a burst of 5,
		small, large := hybrid.PerHour(1).WithBurst(5), hybrid.PerHour(2).WithBurst(9)
		first := p.process(t, small)
		must(t, first.Allow("k"), "denied")
		// when another comes with more,
		second := p.process(t, large)
		must(t, second.Allow("k"), "denied")
		// then the first one's limit is both's.
		for _, l := range []*hybrid.Limiter{first, second} {
			limitsAre(t, l, "k", small)
		}
		equal(t, p.left(t, "k", large), 3, "left of 5 after 2")
	})
}

// Redisson: of many who try at once to set the rate, one does.
func TestPeerOneOfManyFirstConfigurationsWins(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given a limiter that nobody has set limits for,
		const processes = 10
		var ls [processes]*hybrid.Limiter
		for i := range ls {
			ls[i] = p.process(t, hourly)
		}
		ls[0].Allow("k") // what a process was configured with is not "set"
		// when ten processes try at once, each with a burst of its own,
		var won [processes]bool
		var wg sync.WaitGroup
		for i, l := range ls {
			wg.Go(func() {
				var err error
				if won[i], err = l.TrySetLimits(t.Context(), "k", hybrid.PerHour(1).WithBurst(int64(100+i))); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// then one has done so, and all agree on it.
		winner := slices.Index(won[:], true)
		must(t, winner >= 0 && !slices.Contains(won[winner+1:], true), "who has set the limits: %v", won)
		for i, l := range ls {
			got, err := l.LimitsOf(t.Context(), "k")
			check(t, err == nil && got[0].Burst == int64(100+winner),
				"process %d: %v, %v, want the limits of process %d", i, got, err, winner)
		}
	})
}

// Redisson: setRate replaces what was set before, where trySetRate does not.
func TestPeerSetReplaces(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		setter, other := p.process(t, hourly), p.process(t, hourly)
		for _, want := range [][]hybrid.Limit{
			limits(hybrid.PerHour(7)),
			limits(hybrid.PerHour(1).WithBurst(2), hybrid.PerMinute(300)),
			limits(hybrid.PerHour(1).WithBurst(30)),
		} {
			// When limits are set,
			noErr(t, setter.SetLimits(t.Context(), "k", want...))
			// then they are everybody's, and an attempt to set other ones first comes too late.
			if ok, err := other.TrySetLimits(t.Context(), "k", hybrid.PerHour(99)); ok || err != nil {
				t.Errorf("TrySetLimits after SetLimits: %v, %v", ok, err)
			}
			for _, l := range []*hybrid.Limiter{setter, other} {
				limitsAre(t, l, "k", want...)
			}
		}
	})
}

// Redisson drops what was used when the rate is set and keeps it where it is told to; in Bucket4j
// the caller chooses what a new configuration inherits. Here a change keeps it, and Reset drops it.
func TestPeerChangingTheRateKeepsOrDropsWhatWasUsed(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, c := range []struct {
			burst, left int64
			drop        bool
		}{{20, 4, false}, {20, 20, true}, {8, 2, false}, {8, 8, true}} {
			key := fmt.Sprint(c.burst, c.drop)
			// Given a bucket of 10 of which 6 are used,
			l := p.process(t, hourly)
			must(t, l.AllowN(key, 6) && p.settled(t, key) == 4, "not 4 of 10 left")
			// when the burst is changed,
			next := hybrid.PerHour(2).WithBurst(c.burst)
			noErr(t, l.SetLimits(t.Context(), key, next))
			if c.drop {
				noErr(t, l.Reset(t.Context(), key))
			}
			// then what was used is kept or dropped, as asked.
			r, err := l.Peek(t.Context(), key)
			check(t, err == nil && r.Remaining == c.left, "%+v, %v, want %d left", r, err, c.left)
			n := drain(l, key)
			check(t, n == c.left, "burst 10 to %d, drop %v: %d left, want %d", c.burst, c.drop, n, c.left)
		}
	})
}

// Redisson and Bucket4j: after a cut there is what the new limit has beyond what was used, and
// never less than none.
func TestPeerALowerRateLeavesNewMinusUsed(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		const burst = 5
		for _, used := range []int64{0, 1, 4, 5, 6, 10} {
			key := fmt.Sprint(used)
			// Given a bucket of 10 of which some are used,
			l := p.process(t, hourly)
			must(t, l.AllowN(key, used), "denied")
			p.settled(t, key)
			// when the limit is cut to 5,
			noErr(t, l.SetLimits(t.Context(), key, hybrid.PerHour(1).WithBurst(burst)))
			// then 5 less those are left, for this process and for all.
			want := max(0, burst-used)
			n := drain(l, key)
			check(t, n == want, "%d used: %d left of %d, want %d", used, n, burst, want)
			n = p.left(t, key, hourly)
			check(t, n == 0, "%d used: another process finds %d more", used, n)
		}
	})
}

// Redisson and Bucket4j: whatever is done to a limiter that does not exist, it does not exist
// afterwards.
func TestPeerChangingAMissingLimiterCreatesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := p.process(t, hourly)
		// When a limiter that nobody has used is reset, refunded and looked at,
		noErr(t, l.Reset(t.Context(), "k"))
		l.Refund("k", 5)
		l.Key("k").Refund(5)
		r, err := l.Peek(t.Context(), "k")
		check(t, err == nil && r.Remaining == 10, "%+v, %v", r, err)
		limitsAre(t, l, "k", hourly)
		// and what might still be on its way has had its turn,
		must(t, l.Allow("other"), "denied")
		// then there is nothing of it, there or here.
		check(t, !p.remembers(t, "k"), "the store has %v", p.redisKeys(t))
		st := l.Stats()
		check(t, st.Keys == 1 && !slices.Contains(p.asked(), "k"), "%+v, calls for %v", st, p.asked())
	})
}

// Redisson and Bucket4j: after a reset the whole burst can be had, whatever was spent before, and
// however lately.
func TestPeerAResetFillsTheBucket(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, c := range []struct{ burst, spent int64 }{{10, 10}, {100, 50}, {100, 100}, {10, 0}, {1, 1}, {1000, 999}} {
			// Given a bucket of which one process has spent something,
			limit, key := hybrid.PerHour(1).WithBurst(c.burst), fmt.Sprint(c)
			l := p.limiter(t, by(hybrid.Policy{MinBatch: 16}, limit))
			for i := range c.spent {
				must(t, l.Allow(key), "%v: request %d was denied", c, i)
			}
			for range 2 {
				// when it resets the bucket at once,
				noErr(t, l.Reset(t.Context(), key))
				// then exactly the burst can be had.
				n := drain(l, key)
				check(t, n == c.burst, "%v: %d were admitted after a reset", c, n)
			}
			s := conserved(t, l)
			check(t, s.Burnt == 0, "%v: %+v", c, s)
		}
	})
}

// What others hold bounds what a reset can fill.
func TestAResetLeavesToOthersWhatTheyHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, p *place) {
		// Given another process that holds 4 of 10, having spent 1 of 5,
		cfg := by(hybrid.Policy{MinBatch: 5}, hourly)
		other, l := p.limiter(t, cfg), p.limiter(t, cfg)
		must(t, other.Allow("k") && other.Stats().Held == 4, "%+v", other.Stats())
		// when a process resets the bucket,
		noErr(t, l.Reset(t.Context(), "k"))
		// then it can have what the other's lease leaves, and the other what it holds.
		equal(t, drain(l, "k"), 6, "of 10 were admitted beside a lease of 4")
		n := drain(other, "k")
		check(t, n >= 4, "%d of the 4 held", n)
	})
}

// A reset of a bucket whose store is away ends like every other operation.
func TestAResetDoesNotHangWhileTheStoreIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hourly))
		l.Allow("k")
		for _, v := range []verdict{{err: lease.ErrUnavailable}, {lost: true}, {until: make(chan struct{})}} {
			s.every(v)
			s.mu.Lock()
			s.control = lease.ErrUnavailable
			s.mu.Unlock()
			var err error
			d := took(func() { err = l.Reset(t.Context(), "k") })
			check(t, errors.Is(err, hybrid.ErrUnavailable) && d <= time.Second,
				"%+v: %v after %v", v, err, d)
			s.every(verdict{})
			time.Sleep(time.Minute)
		}
	})
}
