package hybrid

// limitsCounted is how many different limits Stats tells apart.
const limitsCounted = 64

// LimitStats is what Stats says of one limit, of all keys for which it is or was in force. Denied
// and Shadowed are tokens, of requests that had to wait for this limit longest as far as was known:
// their sums over all limits are those of Stats, less Crowded and what LimitsFor is to blame for,
// and more by what a Join has asked of a key and another key has denied.
type LimitStats struct {
	Limit    Limit // the zero Limit stands for all beyond 64
	Keys     int   // in use now for which it is in force
	Denied   int64
	Shadowed int64 // those above the burst included
}

// limitCounts counts by limit. The counters' lock guards it.
type limitCounts struct {
	all   []LimitStats
	index map[Limit]int
	rest  LimitStats // of all limits beyond limitsCounted
}

// of is where l is counted. A limit keeps its place, so that no count is ever lower than before.
func (c *limitCounts) of(l Limit) *LimitStats {
	if i, ok := c.index[l]; ok {
		return &c.all[i]
	}
	if len(c.all) == limitsCounted {
		return &c.rest
	}
	if c.index == nil {
		c.index = make(map[Limit]int)
	}
	c.index[l] = len(c.all)
	c.all = append(c.all, LimitStats{Limit: l})
	return &c.all[len(c.all)-1]
}

// noKeys forgets how many keys have which limit.
func (c *limitCounts) noKeys() {
	c.rest.Keys = 0
	for i := range c.all {
		c.all[i].Keys = 0
	}
}

// list is a copy of all counts. In shadow mode those who were denied were not.
func (c *limitCounts) list(shadow bool) []LimitStats {
	all := append([]LimitStats(nil), c.all...)
	if c.rest != (LimitStats{}) {
		all = append(all, c.rest)
	}
	for i := range all {
		if shadow {
			all[i].Denied, all[i].Shadowed = 0, all[i].Denied
		}
	}
	return all
}

// blame counts n tokens that a limit has denied, but no entry.
func (c *counters) blame(l Limit, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits.of(l).Denied += n
}

// smallest is the limit in force for e with the smallest burst.
func (e *entry) smallest() Limit {
	e.mu.Lock()
	defer e.mu.Unlock()
	least := e.client.Limits()[0]
	for _, l := range e.client.Limits() {
		if l.Capacity() < least.Capacity() {
			least = l
		}
	}
	return least
}
