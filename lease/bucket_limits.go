package lease

// How a bucket takes over another configuration: docs/protocol.md sections 6.9 to 6.12.

// adopt takes over the caller's configuration where its version is higher, and takes in the T that
// it proposes.
func (b *Bucket) adopt(c Config) {
	newer := c.Version.after(b.config.Version)
	if newer {
		b.reshape(c)
	}
	b.propose(micros(c.TTL), newer)
}

// reshape changes the limits. Levels are settled at the old rate already. A raised burst keeps the
// level, a lowered one keeps what was used; a limit that is new starts with what fresh says.
func (b *Bucket) reshape(c Config) {
	b.remember()
	s := &b.state
	was, rate := *b, b.rate()
	b.config = c
	b.rescale()
	// Each holder's part of the rate is the same part of the new rate, or a rate that rises would
	// be reached only after seconds.
	s.fair.share = float64(s.fair.share * float64(b.rate()/rate))
	s.level, s.rest = [LimitsMax]int64{}, [LimitsMax]int64{}
	for k, from := range inherit(was.config.Limits, c.Limits) {
		switch {
		case from < 0:
			s.level[k] = b.fresh(k)
		case was.config.Limits[from].same(c.Limits[k]) && was.scales[from] == b.scales[k]:
			s.level[k], s.rest[k] = was.state.level[from], was.state.rest[from]
		default:
			s.level[k] = convert(was.state.level[from], was.scales[from], b.scales[k])
		}
	}
	s.setAt = s.now
}

// fresh is the level of a limit that was not there before: full. But after a loss it is empty, for
// as long as the limit takes to fill: it may have been lost with the bucket, and come back with a
// process that has the newer version.
func (b *Bucket) fresh(k int) int64 {
	s := &b.state
	if s.frozen > 0 && s.now < s.frozen+micros(b.scales[k].timeToFull()) {
		return 0
	}
	return b.scales[k].Capacity * b.scales[k].Unit
}

// inherit says for each of the new limits which of the old ones it goes on with; -1 for none. A
// limit that has not changed goes on with itself, wherever it stands now. Of the others, first
// those of equal Per are paired, in order, then those that are left. By position alone, a limit put
// in front would hand every other one's level to its neighbour and start the last one full.
func inherit(old, limits []Limit) []int {
	from := make([]int, len(limits))
	taken := [LimitsMax]bool{}
	for k := range from {
		from[k] = -1
	}
	for _, alike := range []func(o, l Limit) bool{
		Limit.same,
		func(o, l Limit) bool { return o.Per == l.Per },
		func(o, l Limit) bool { return true },
	} {
		for k, l := range limits {
			for i, o := range old {
				if from[k] < 0 && !taken[i] && alike(o, l) {
					from[k], taken[i] = i, true
				}
			}
		}
	}
	return from
}

// same reports whether l and o are one limit, however their bursts are written.
func (l Limit) same(o Limit) bool {
	return l.Tokens == o.Tokens && l.Per == o.Per && l.Capacity() == o.Capacity()
}

// convert expresses a level in the units of another limit, less what the burst lost.
func convert(level int64, from, to Scale) int64 {
	if from.Capacity > to.Capacity {
		level = max(0, level-(from.Capacity-to.Capacity)*from.Unit)
	}
	return level/from.Unit*to.Unit + mulDiv(level%from.Unit, to.Unit, from.Unit)
}
