package hybrid_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// sharded is a policy with so many shards.
func sharded(k int) hybrid.Policy { return hybrid.Policy{Shards: k, Fallback: hybrid.FallbackDeny} }

// TestTheBoundHoldsOverAllShards: however many shards a key has, its processes together admit no
// more in any window than one bucket of the whole limit, adversaries included; and no less than one
// bucket does, but for a few in a hundred.
func TestTheBoundHoldsOverAllShards(t *testing.T) {
	ld := load{time.Second, 0, 3 * time.Millisecond, 4}
	for k := 2; k <= 5; k++ {
		for _, overcommit := range []int64{0, 7} {
			bubbleOf(t, fmt.Sprintf("%d shards, E %d", k, overcommit), func(t *world) {
				policy := sharded(k)
				policy.Overcommit = overcommit
				boundRun(t, hybrid.PerSecond(1000).WithBurst(1003), policy, ld, 7, 8600)
			})
		}
		for burst := k; burst <= 2*k; burst++ {
			bubbleOf(t, fmt.Sprintf("%d shards of a burst of %d", k, burst), func(t *world) {
				l := t.start(by(sharded(k), hybrid.PerHour(1).WithBurst(int64(burst))))
				equal(t, drain(l, "k"), int64(burst), "admitted")
			})
		}
	}
}

// TestTheBoundHoldsWhileAShardIsAwayOrLost: a network that loses, delays and duplicates calls, and
// shards that lose their buckets one after another, add nothing to what one bucket has.
func TestTheBoundHoldsWhileAShardIsAwayOrLost(t *testing.T) {
	seeds(t, 6, func(t *world, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		k := 1 + r.IntN(5)
		t.nodeOf = shardOf
		t.setJudge(func(c *lease.Call) verdict {
			switch {
			case r.IntN(10) == 0:
				return verdict{lost: true}
			case r.IntN(10) == 0:
				return verdict{twice: true}
			case shardOf(c.Key) == int(time.Now().Unix())%(2*k): // each shard is away for a second in 2k
				return away
			}
			return verdict{delay: time.Duration(r.Int64N(int64(5 * time.Millisecond)))}
		})
		ld := load{time.Second, 0, 5 * time.Millisecond, math.MaxInt} // by TryAllow alone
		boundRun(t, hybrid.PerSecond(500).WithBurst(100), sharded(k), ld, seed, 1000)
	})
}

// shardOf is the number of the shard that has this stored key.
func shardOf(stored string) (i int) {
	_, _ = fmt.Sscanf(stored, "@#%d:", &i)
	return i
}

// TestFewProcessesUseAllShards: three processes get all of a limit that has sixteen shards, in
// equal parts, at any load; so do two hundred, and any number in between.
func TestFewProcessesUseAllShards(t *testing.T) {
	fleets := testkit.PlainOrRace([]int{3, 1, 10, 20, 40, 200}, []int{3})
	if !testkit.Long(t, "3 processes", "up to 200 processes") {
		fleets = fleets[:1]
	}
	for _, processes := range fleets {
		for _, load := range []float64{0.9, 2} {
			bubbleOf(t, fmt.Sprintf("%d processes at %v", processes, load), func(t *world) {
				const limit, seconds = 8000, 6
				t.every(verdict{delay: time.Millisecond})
				ls := t.fleet(processes, by(sharded(16), hybrid.PerSecond(limit)))
				gap := time.Duration(float64(processes) / (limit * load) * 1e9)
				admitted := make([]float64, processes)
				ask := func(d time.Duration) {
					clear(admitted)
					together(processes, func(i int) {
						time.Sleep(time.Duration(i) * gap / time.Duration(processes))
						for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(gap) {
							if ls[i].Allow("k") {
								admitted[i]++
							}
						}
					})()
				}
				ask(2 * time.Second) // the burst
				ask(seconds * time.Second)
				sum := 0.0
				for _, n := range admitted {
					sum += n
				}
				part := sum / (seconds * limit * min(load, 1))
				check(t, part >= 0.99, "%v of what one bucket admits", part)
				check(t, testkit.Jain(admitted) >= 0.99, "Jain's index is %v", testkit.Jain(admitted))
			})
		}
	}
}

// TestWaitsUseAllShards: those who wait get the whole rate, and not that of one shard.
func TestWaitsUseAllShards(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(sharded(4), hybrid.PerSecond(100).WithBurst(8)))
		t.every(verdict{delay: time.Millisecond})
		var got atomic.Int64
		stop := time.Now().Add(3 * time.Second)
		together(40, func(int) {
			for time.Now().Before(stop) {
				noErr(t, l.Wait(t.Context(), "k"))
				got.Add(1)
			}
		})()
		n := got.Load()
		check(t, n >= 290 && n <= 8+310+40, "%d waits ended in three seconds at 100/s", n)
	})
}

// TestOperationsActOnAllShards: what looks at a key sums its shards up, and what changes one
// changes all of them.
func TestOperationsActOnAllShards(t *testing.T) {
	bubble(t, func(t *world) {
		ctx := t.Context()
		whole := hybrid.PerMinute(1000).WithBurst(103)
		l, other := t.start(by(sharded(4), whole)), t.start(by(sharded(4), whole))
		limitsAre(t, l, "k", whole)
		must(t, l.AllowN("k", 20), "denied")
		limitsAre(t, other, "k", whole)
		peek := func(remaining int64) {
			t.Helper()
			res, err := other.Peek(ctx, "k")
			check(t, err == nil && res.Limit == whole && res.Remaining >= remaining && res.Remaining <= remaining+3,
				"Peek says %+v, %v, want %d of %v", res, err, remaining, whole)
		}
		peek(83)
		noErr(t, l.Shutdown(ctx))
		noErr(t, other.Reset(ctx, "k"))
		peek(103)

		whole = hybrid.PerMinute(600).WithBurst(70)
		noErr(t, other.SetLimits(ctx, "k", whole))
		limitsAre(t, other, "k", whole)
		for i := range 4 {
			st := t.state(storedShard("k", i))
			burst := []int64{18, 18, 17, 17}[i]
			want := hybrid.Limit{Tokens: 600, Per: 4 * time.Minute, Burst: burst}
			check(t, st.Exists && st.Config.Limits[0] == want, "shard %d has %v, want %v", i, st.Config.Limits, want)
		}
		set, err := other.TrySetLimits(ctx, "k", hybrid.PerMinute(500))
		check(t, !set && err == nil, "limits were set in place of others: %v", err)
		limitsAre(t, other, "k", whole)
		set, err = other.TrySetLimits(ctx, "new", hybrid.PerMinute(500))
		check(t, set && err == nil, "limits were not set: %v", err)
		limitsAre(t, other, "new", hybrid.PerMinute(500))
		isErr(t, other.SetLimits(ctx, "k", hybrid.PerMinute(3)), hybrid.ErrInvalidConfig)
		limitsAre(t, other, "k", whole)

		noErr(t, other.SetLimits(ctx, "k", hybrid.Blocked))
		time.Sleep(afterTTL)
		equal(t, drain(other, "k"), 0, "admitted of a blocked key")
		noErr(t, other.ResetTo(ctx, "k", whole))
		time.Sleep(afterTTL)
		n := drain(other, "k")
		check(t, n >= 70 && n <= 80, "%d admitted of a burst of 70", n)
	})
}

func storedShard(key string, i int) string {
	if i == 0 {
		return key
	}
	return fmt.Sprintf("@#%d:%s", i, key)
}

// TestARequestAboveTheBurstOfAShardExceedsIt, whatever the whole burst is.
func TestARequestAboveTheBurstOfAShardExceedsIt(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(sharded(4), hybrid.PerHour(100)))
		_, err := l.Take(t.Context(), "k", 26)
		isErr(t, err, hybrid.ErrExceedsBurst)
		check(t, l.AllowN("k", 25), "the burst of a shard was denied")
	})
	for _, cfg := range []hybrid.Config{
		by(sharded(4), hybrid.PerHour(3)),
		{Limits: limits(hybrid.PerHour(10)), Policy: sharded(4), Scope: hybrid.ScopeProcess},
		by(sharded(lease.ShardsMax+1), hybrid.PerHour(1000)),
	} {
		_, err := hybrid.New(lease.NewMemoryStore(nil), cfg)
		isErr(t, err, hybrid.ErrInvalidConfig)
	}
}

// TestTokensOfAShardComeBackToIt: what was reserved at one shard is credited to that one, though
// its entry has ended meanwhile.
func TestTokensOfAShardComeBackToIt(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(sharded(3), hybrid.PerHour(1).WithBurst(30)))
		var all []*hybrid.Reservation
		for range 3 { // each empties one shard
			r, err := l.Reserve(t.Context(), "k", 10)
			must(t, err == nil && r.OK(), "%+v, %v", r.Result(), err)
			all = append(all, r)
		}
		level := func(i int) int64 { return t.state(storedShard("k", i)).Levels[0] }
		equal(t, level(0)+level(1)+level(2), 0, "left of the burst")
		time.Sleep(time.Hour / 2) // at rest
		for n, r := range all {
			r.Cancel()
			time.Sleep(2 * time.Second)
			full := 0
			for i := range 3 {
				if level(i) == 10 {
					full++
				}
			}
			equal(t, full, n+1, "shards have their tokens back")
		}
	})
}

// TestAShardThatIsAwayIsLeftToOthers: while the home is away, its processes use the other shards.
func TestAShardThatIsAwayIsLeftToOthers(t *testing.T) {
	bubble(t, func(t *world) {
		t.nodeOf = shardOf
		l := t.start(by(sharded(4), hybrid.PerSecond(400)))
		must(t, l.Allow("k"), "denied")
		home := -1
		for i := range 4 {
			if t.state(storedShard("k", i)).Exists {
				home = i
			}
		}
		t.setJudge(func(c *lease.Call) verdict {
			if shardOf(c.Key) == home {
				return away
			}
			return verdict{delay: time.Millisecond}
		})
		yes := admits(4000, time.Millisecond, func() bool { return l.Allow("k") })
		check(t, yes >= 3*(4*100+100)*95/100 && yes <= 400+4*301, "%d admitted in four seconds or so", yes)
	})
}

// TestEverythingAtOnceWithShards is TestEverythingAtOnce for a key with shards.
func TestEverythingAtOnceWithShards(t *testing.T) {
	policy := hybrid.Policy{TTL: time.Minute, Target: 5 * time.Millisecond, Fallback: hybrid.FallbackDeny, Shards: 4}
	for _, end := range ends {
		everythingAtOnce(newWorld(t), policy, end)
	}
}

// TestAJoinTakesFromShards: a key with shards joins like any other.
func TestAJoinTakesFromShards(t *testing.T) {
	bubble(t, func(t *world) {
		l, plain := t.start(by(sharded(4), hybrid.PerHour(40))), t.process(hybrid.PerHour(30))
		j := l.Join(l.Key("k"), plain.Key("p"))
		n := admits(60, time.Millisecond, j.Allow)
		equal(t, n, 30, "admitted of both")
		noErr(t, l.Shutdown(t.Context()))
		res, err := t.start(by(sharded(4), hybrid.PerHour(40))).Peek(t.Context(), "k")
		check(t, err == nil && res.Remaining == 10, "left of the key with shards: %+v, %v", res, err)
	})
}
