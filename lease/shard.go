package lease

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// ShardsMax is the largest Policy.Shards.
const ShardsMax = 256

// Shard is what c comes to in the i-th of k shards of a key, i from 0 (docs/protocol.md section
// 3.8): rates, bursts and the overcommit are divided by k, and all shards together have exactly
// what c has. Where a burst or the overcommit is no multiple of k, the first shards have one token
// more. Blocked and Unlimited are the same in every shard.
func (c Config) Shard(i, k int) Config {
	if k <= 1 {
		return c
	}
	limits := make([]Limit, len(c.Limits))
	for j, l := range c.Limits {
		switch limits[j] = l; {
		case l.Windowed():
			limits[j].Tokens, limits[j].Burst = divided(l.Tokens, i, k), 0
		case divisible(l):
			limits[j] = Limit{Tokens: l.Tokens, Per: l.Per * time.Duration(k), Burst: divided(l.Capacity(), i, k)}
		}
	}
	c.Limits, c.Overcommit = limits, divided(c.Overcommit, i, k)
	return c
}

func divisible(l Limit) bool { return !Blocked.Equal(l) && !Unlimited.Equal(l) }

// divided is the i-th of k parts of n that differ by one at most.
func divided(n int64, i, k int) int64 {
	part := n / int64(k)
	if int64(i) < n%int64(k) {
		part++
	}
	return part
}

// Whole is the limit of which l is the part in one of k shards, where all of them together have
// this burst.
func (l Limit) Whole(k int, burst int64) Limit {
	if k <= 1 || !divisible(l) {
		return l
	}
	if l.Windowed() {
		l.Tokens = burst
		return l
	}
	l = Limit{Tokens: l.Tokens, Per: l.Per / time.Duration(k), Burst: burst}
	if burst == l.Tokens {
		l.Burst = 0
	}
	return l
}

// ValidateShards is Validate of c and of what it comes to in every one of k shards.
func (c Config) ValidateShards(k int) error {
	v := violations{sentinel: ErrInvalidConfig}
	if err := c.Validate(); err != nil || k <= 1 {
		return err
	}
	for i, l := range c.Limits {
		most := l.Capacity()
		if !l.Windowed() {
			most = min(most, math.MaxInt64/int64(l.Per))
		}
		if divisible(l) && most < int64(k) {
			v.add("limit %d: Shards is %d, must be at most %d for %v: each shard has a part of its burst", i, k, most, l)
		}
	}
	if len(v.found) == 0 {
		for _, i := range [...]int{0, k - 1} { // the largest and the smallest part
			if err := c.Shard(i, k).Validate(); err != nil {
				v.add("in each of %d shards: %w", k, err)
				break
			}
		}
	}
	return v.err()
}

// ShardAt is the shard that a process with this instance id asks first (hop 0), second, and so on
// up to the last of k. Processes begin at different ones, and go on in different orders.
func ShardAt(id string, hop, k int) int {
	h := fnv.New64a()
	h.Write([]byte(id))
	sum := h.Sum64()
	home, step := int(sum%uint64(k)), int(sum/uint64(k)%uint64(k))
	for gcd(uint64(max(step, 1)), uint64(k)) != 1 {
		step++
	}
	return (home + hop*max(step, 1)) % k
}

// shardCrowd is how many processes are to share a shard at the most because they came to it from
// others. So many that have chosen their shards by chance have nearly equal shares of them.
const shardCrowd = 512

// shardWeight is how many parts a weight of 1 has with Shards. A process divides its weight between
// the shards that it uses, so that it gains nothing by using more of them.
const shardWeight = ShardsMax

// Spread says that the process uses so many shards of the key now, of which c's is one: from the
// next call on its weight is that part of Policy.Weight.
func (c *Client) Spread(shards int) { c.spread = int64(max(shards, 1)) }

// ownWeight is the weight with which c calls.
func (c *Client) ownWeight() int64 { return c.policy.weightIn(c.spread) }

// weightIn is the weight with which a process calls that uses so many shards of a key.
func (p *Policy) weightIn(spread int64) int64 {
	if p.Shards <= 1 {
		return p.weight()
	}
	return max(1, p.weight()*shardWeight/max(spread, 1))
}

// SharedByFew reports whether a request that the shard with this last reply has denied is to ask
// the process's next one, which is the hop-th after its home and which it has used before or not.
// Where all processes go as far, the active weight is theirs divided by the shards, and no shard
// has more than shardCrowd of them as holders. In a larger crowd every process keeps to its own
// shard. One that uses others already leaves them only where the crowd is twice as large, so that
// it does not come and go.
func (h *Heard) SharedByFew(weight int64, hop int, used bool) bool {
	crowd := shardCrowd * shardWeight * max(weight, 1)
	if used {
		crowd *= 2
	}
	return h.active*int64(hop) < crowd
}

// Onward reports whether a request that c has just not admitted is to ask the process's next shard,
// the hop-th after its home, which it has used before or not: c's has too little, or is away.
func (c *Client) Onward(now clock.Instant, hop int, used bool) bool {
	return c.Degraded() || c.State(now) == StateDenied && c.heard.SharedByFew(c.policy.Weight, hop, used)
}

// SumShards is the state of a key whose shards have these states, at least one of which exists. A
// shard that does not exist counts as the new bucket that it would be: with its part of proposed
// where the others have theirs, or else alike to the others. Where the shards differ, because
// somebody is just changing them, the limits are those of the latest version.
func SumShards(shards []State, proposed Config) State {
	latest := 0
	for i, s := range shards {
		before := shards[latest]
		if s.Exists && (!before.Exists || s.Config.Version.after(before.Config.Version)) {
			latest = i
		}
	}
	sum, k := shards[latest], len(shards)
	in := sum.Config
	isProposed := slices.Equal(in.Limits, proposed.Shard(latest, k).Limits)
	sum.Config.Overcommit, sum.Levels, sum.Next = 0, [LimitsMax]int64{}, [LimitsMax]time.Duration{}
	sum.Ledger, sum.ActiveWeight, sum.Spent, sum.Denied, sum.Changed = 0, 0, 0, 0, false
	var bursts [LimitsMax]int64
	for i, s := range shards {
		c := s.Config
		switch {
		case s.Exists && c.Version == in.Version:
		case isProposed:
			c = proposed.Shard(i, k)
		default:
			c = in
		}
		sum.Config.Overcommit += c.Overcommit
		sum.Ledger, sum.ActiveWeight = sum.Ledger+s.Ledger, max(sum.ActiveWeight, s.ActiveWeight)
		sum.Spent, sum.Denied, sum.Changed = sum.Spent+s.Spent, sum.Denied+s.Denied, sum.Changed || s.Changed
		for j, l := range c.Limits {
			bursts[j] += l.Capacity()
			if !s.Exists && !in.StartEmpty && divisible(l) {
				s.Levels[j] = l.Capacity()
			}
			sum.Levels[j] += s.Levels[j]
			if next := s.Next[j]; next > 0 {
				sum.Next[j] = min(cmp.Or(sum.Next[j], next), next)
			}
		}
	}
	sum.Config.Limits = make([]Limit, len(in.Limits))
	for j, l := range in.Limits {
		sum.Config.Limits[j] = l.Whole(k, bursts[j])
	}
	return sum
}
