package protocol

import (
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Sections 6.9 to 6.12 of docs/protocol.md: whose configuration is in force, and how it changes.

// adopt takes over the caller's configuration where its version is higher, or is the same and
// nobody has proposed the stored one for 2 T; and its proposal of T.
func (b *Bucket) adopt(c lease.Config) {
	newer := c.Version.After(b.config.Version)
	switch {
	case newer, c.Version == b.config.Version && !equal(&c, &b.config) && b.now-b.stoodAt > 2*b.ttl:
		b.reshape(c, newer)
	case equal(&c, &b.config):
		b.stoodAt = b.now
	}
	b.propose(exact.Micros(c.TTL), newer)
}

// reshape changes the limits, for those of a newer version or of an equal one. Levels are settled
// at the old rate already, and never rise. A limit has what is left of the one whose place it takes,
// and no more than by its own past, where it was in force before. Limits of equal versions may take
// turns as often as their processes call, so nothing may be lost by a turn and the turn back: a
// lowered burst cuts off only what does not fit, where a newer version counts all that was used
// against it.
func (b *Bucket) reshape(c lease.Config, newer bool) {
	b.remember()
	was, rate := b.copied(), b.rate()
	b.config = c
	b.rescale()
	// The same part of the new rate, or a rate that rises would be reached only after seconds.
	b.fair.share = float64(b.fair.share * float64(b.rate()/rate))
	b.level, b.rest = [lease.LimitsMax]int64{}, [lease.LimitsMax]int64{}
	for i, l := range was.config.Limits {
		if !b.inForce(past{limit: l, scale: was.scales[i]}) {
			b.leave(&was, i)
		}
	}
	for k, i := range inherit(&was, b) {
		switch {
		case b.windows[k] != nil:
			b.inheritWindow(&was, i, k)
			continue
		case i >= 0 && alike(&was, i, b, k):
			b.level[k], b.rest[k] = was.level[i], was.rest[i]
		default:
			b.level[k] = b.ownLevel(k, newer)
			if startsEmpty(&b.scales[k]) {
				b.level[k] = min(b.level[k], 0)
			}
			if i >= 0 {
				level := was.levelLeft(i)
				if was.windows[i] != nil {
					level = was.free(i, was.ring.ledger())
				}
				b.level[k] = min(b.level[k], b.convert(level, was.scales[i], k, newer))
			}
		}
		b.level[k] = max(b.level[k], -deepest(&b.scales[k], c.Overcommit))
	}
	b.settlePasts()
	b.setAt, b.stoodAt = b.now, b.now
}

// levelLeft returns the level that token bucket k passes on to the limit in its place. Unlimited passes
// on a full one: it takes seconds to fill, but never denied anything.
func (b *Bucket) levelLeft(k int) int64 {
	if b.level[k] >= 0 && lease.Unlimited.Equal(b.config.Limits[k]) {
		return b.scales[k].Capacity * b.scales[k].Unit
	}
	return b.level[k]
}

// alike reports whether limit i of old and limit k of b are one: the same rate over the same time,
// the same burst, and counted in the same units.
func alike(old *Bucket, i int, b *Bucket, k int) bool {
	return old.config.Limits[i].Per == b.config.Limits[k].Per && old.scales[i] == b.scales[k]
}

// inherit says for each limit of b which one of old it goes on with; -1 for none. A
// limit that has not changed goes on with itself, wherever it stands now. Of the others, first
// those of equal kind and Per are paired, in order, then those of equal Per, then those that are
// left. By position alone, a limit put
// in front would hand every other one's level to its neighbour and start the last one full.
func inherit(old, b *Bucket) []int {
	from := make([]int, len(b.config.Limits))
	taken := [lease.LimitsMax]bool{}
	for k := range from {
		from[k] = -1
	}
	for _, fits := range []func(i, k int) bool{
		func(i, k int) bool { return alike(old, i, b, k) },
		func(i, k int) bool {
			return old.config.Limits[i].Per == b.config.Limits[k].Per && old.scales[i].Kind == b.scales[k].Kind
		},
		func(i, k int) bool { return old.config.Limits[i].Per == b.config.Limits[k].Per },
		func(i, k int) bool { return true },
	} {
		for k := range from {
			for i := range old.config.Limits {
				if from[k] < 0 && !taken[i] && fits(i, k) {
					from[k], taken[i] = i, true
				}
			}
		}
	}
	return from
}

// convert expresses a level of another limit in the units of limit k. Where the burst shrinks, a
// newer version takes off what it lost. A debt stays what it was, rounded up: no change of limits
// pays it. A limit that would start empty inherits debts only.
func (b *Bucket) convert(level int64, from lease.Scale, k int, newer bool) int64 {
	to := b.scales[k]
	if lost := from.Capacity - to.Capacity; lost > 0 && level > 0 {
		if newer {
			level = max(0, level-lost*from.Unit)
		} else {
			level = min(level, to.Capacity*from.Unit)
		}
	}
	if startsEmpty(&to) {
		level = min(level, 0)
	}
	whole, deepest := exact.FloorDiv(level, from.Unit), deepest(&to, b.config.Overcommit)
	if whole < -deepest/to.Unit-1 { // the product may be too large
		return -deepest
	}
	return whole*to.Unit + exact.MulDiv(level-whole*from.Unit, to.Unit, from.Unit)
}
