package lease

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestShardsAddUpToTheWholeLimit: whatever the limits and the number of shards, rates, bursts and
// overcommits of all shards together are those of the whole, to the last token.
func TestShardsAddUpToTheWholeLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 3))
	for range 200 {
		k := 1 + r.IntN(ShardsMax)
		whole := Config{
			Limits:     []Limit{PerSecond(1 + r.Int64N(1e6)).WithBurst(int64(k) + r.Int64N(1e6)), Blocked, Unlimited},
			Overcommit: r.Int64N(1000), Target: time.Millisecond, TTL: time.Second,
		}
		testkit.NoErr(t, whole.ValidateShards(k))
		burst, overcommit := int64(0), int64(0)
		for i := range k {
			part := whole.Shard(i, k)
			testkit.NoErr(t, part.Validate())
			l := part.Limits[0]
			sameShards(t, l.Tokens, whole.Limits[0].Tokens, "tokens of a shard")
			if k > 1 {
				sameShards(t, l.Per, time.Duration(k)*whole.Limits[0].Per, "the time in which it makes them")
			}
			burst, overcommit = burst+l.Capacity(), overcommit+part.Overcommit
			sameShards(t, part.Limits[1], Blocked, "a limit that denies everything")
			sameShards(t, part.Limits[2], Unlimited, "a limit that nothing reaches")
		}
		sameShards(t, burst, whole.Limits[0].Capacity(), "all bursts")
		sameShards(t, overcommit, whole.Overcommit, "all overcommits")
		got := whole.Shard(0, k).Limits[0].Whole(k, burst)
		testkit.Must(t, got.Equal(whole.Limits[0]), "%v became %v", whole.Limits[0], got)
	}
}

func TestShardsThatALimitDoesNotHaveRoomFor(t *testing.T) {
	for _, c := range []struct {
		limit Limit
		k     int
		text  string // "" where it fits
	}{
		{PerSecond(10), 10, ""},
		{PerSecond(10), 11, "Shards is 11, must be at most 10"},
		{Limit{Tokens: 1e6, Per: 10 * 365 * 24 * time.Hour}, 40, "must be at most 29"},
		{Blocked, 16, ""},
		{Unlimited, 256, ""},
	} {
		err := Policy{}.ConfigFor([]Limit{c.limit}, 0, 0).ValidateShards(c.k)
		if c.text == "" {
			testkit.NoErr(t, err)
			continue
		}
		testkit.Must(t, errors.Is(err, ErrInvalidConfig) && strings.Contains(err.Error(), c.text), "%v in %d: %v",
			c.limit, c.k, err)
	}
	err := Policy{Shards: ShardsMax + 1}.Validate()
	testkit.Must(t, errors.Is(err, ErrInvalidPolicy), "too many shards: %v", err)
}

// TestEveryProcessTakesTheShardsInAnOrderOfItsOwn: it comes to each of them once, and the homes of
// many processes are spread over all.
func TestEveryProcessTakesTheShardsInAnOrderOfItsOwn(t *testing.T) {
	for k := 1; k <= 40; k++ {
		homes := make([]int, k)
		second := map[int]bool{}
		for id := range 100 * k {
			var seen []int
			name := strings.Repeat("x", id%7) + string(rune('a'+id%26)) + time.Duration(id).String()
			for hop := range k {
				seen = append(seen, ShardAt(name, hop, k))
			}
			homes[seen[0]]++
			if k > 1 && seen[0] == 0 {
				second[seen[1]] = true
			}
			slices.Sort(seen)
			sameShards(t, len(slices.Compact(seen)), k, "shards in the order")
		}
		least, most := slices.Min(homes), slices.Max(homes)
		testkit.Must(t, least > 50 && most < 150, "of %d shards, one is home to %d and another to %d", k, least, most)
		testkit.Must(t, k < 6 || len(second) > 1, "from one home all go on to the same shard")
	}
}

func TestStatesOfShardsAddUp(t *testing.T) {
	whole := Policy{}.ConfigFor([]Limit{PerSecond(10), PerMinute(100)}, 0, 0)
	whole.Version = Version{Deploy: 1, Revision: 2}
	old := whole
	old.Limits, old.Version.Revision = []Limit{PerSecond(5)}, 1
	state := func(c Config, i int, levels ...int64) State {
		st := State{Exists: true, Config: c.Shard(i, 4), Ledger: 1, ActiveWeight: int64(i), Spent: 3, Denied: 2}
		copy(st.Levels[:], levels)
		return st
	}
	t.Run("two have never been used", func(t *testing.T) {
		sum := SumShards([]State{state(whole, 0, 1, 20), {}, state(whole, 2, 2, 10), {}}, whole)
		sameShards(t, slices.Equal(sum.Config.Limits, whole.Limits), true, "limits")
		sameShards(t, [2]int64(sum.Levels[:2]), [2]int64{1 + 3 + 2 + 2, 20 + 25 + 10 + 25}, "levels")
		sameShards(t, [3]int64{sum.Ledger, sum.Spent, sum.Denied}, [3]int64{2, 6, 4}, "ledger and counters")
	})
	t.Run("one has not heard of a change", func(t *testing.T) {
		sum := SumShards([]State{state(whole, 0, 1, 20), state(old, 1, 1), state(whole, 2), state(whole, 3)}, old)
		sameShards(t, slices.Equal(sum.Config.Limits, whole.Limits), true, "limits")
	})
}

// TestWhoGoesOnToAnotherShard: a holder goes on from a bucket that has just denied it, or that is
// away, but not from one that it shares with a crowd.
func TestWhoGoesOnToAnotherShard(t *testing.T) {
	for _, c := range []struct {
		active, weight int64 // active in those of one process
		hop            int
		used, onward   bool
	}{
		{1, 0, 1, false, true},
		{shardCrowd - 1, 1, 1, false, true},
		{shardCrowd, 1, 1, false, false},
		{shardCrowd, 1, 1, true, true},
		{2 * shardCrowd, 1, 1, true, false},
		{2 * shardCrowd, 5, 1, false, true},
		{shardCrowd / 4, 1, 3, false, true},
		{shardCrowd / 4, 1, 4, false, false},
	} {
		h := Heard{Memory: Memory{active: c.active * shardWeight}}
		sameShards(t, h.SharedByFew(c.weight, c.hop, c.used), c.onward, "goes on")
	}
}

// TestAProcessDividesItsWeightBetweenItsShards: it is worth as much as one that uses a single
// shard.
func TestAProcessDividesItsWeightBetweenItsShards(t *testing.T) {
	for spread, want := range map[int]int64{0: 3 * shardWeight, 1: 3 * shardWeight, 4: 3 * shardWeight / 4, 256: 3} {
		c := Client{policy: &Policy{Weight: 3, Shards: 256}}
		c.Spread(spread)
		sameShards(t, c.ownWeight(), want, "weight")
	}
	c := Client{policy: &Policy{Weight: 3}}
	sameShards(t, c.ownWeight(), 3, "weight of a process without shards")
}

// TestWhoIsAloneInAShardMayLeaseHalfOfIt, as in a bucket of the whole: its weight there is what it
// calls with. So is that of a draw.
func TestWhoIsAloneInAShardMayLeaseHalfOfIt(t *testing.T) {
	for _, shards := range []int{1, 4} {
		policy := Policy{Shards: shards}
		config := policy.ConfigFor([]Limit{PerSecond(1000)}, 0, 0)
		for spread, others := range []int64{0, 0, 1, 0} {
			c := Client{policy: &policy, config: config}
			c.Spread(spread)
			c.weight = c.ownWeight()
			c.heard.active = c.weight + others
			want := int64(500)
			if others > 0 {
				want = 250
			}
			sameShards(t, c.ceiling(), want, fmt.Sprintf("may be leased of one of %d shards by who uses %d", shards, spread))
		}
		var m Memory
		var r Request
		m.Draw(1, 1, 1, &Terms{Policy: &policy, Proposed: &config}, &r)
		sameShards(t, r.Weight, policy.weightIn(1), "weight of a draw")
	}
}

func sameShards[T comparable](t *testing.T, got, want T, what string) {
	t.Helper()
	testkit.Check(t, got == want, "%s: %v, want %v", what, got, want)
}
