package rival

// central asks one Central per key for every request.
type central struct {
	calls
	local   clock
	window  int64 // microseconds
	buckets []expiring
}

// expiring is a bucket whose key in the store lives as long as the last caller asked for.
type expiring struct {
	Central
	until int64 // true time; whoever comes then finds no key, and makes one at its own time
}

func newCentral(f Fleet, _ string, local clock) (Algorithm, error) {
	fresh, err := NewCentral(f.Limits)
	if err != nil {
		return nil, err
	}
	c := &central{local: local, window: timeToFull(fresh.rates), buckets: make([]expiring, f.Keys)}
	for k := range c.buckets {
		c.buckets[k].Central = fresh
	}
	return c, nil
}

func (c *central) Decide(now int64, p, key int, n int64) bool {
	c.made++
	b := &c.buckets[key]
	local := c.local(p, now)
	if now >= b.until {
		b.debt = debt{at: local}
	}
	b.until = now + c.window
	return b.Take(local, n)
}
