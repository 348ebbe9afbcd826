package rival

// gcra is the generic cell rate algorithm: it stores one time, at which the bucket will be full again (the theoretical
// arrival time of ATM, which has requests of one token).
//
//	new = max(tat, now) + n/R        admitted if new - now <= Burst/R
//
// The level of a token bucket is Burst - R*max(0, tat-now), so both decide the same, as long as time does not go back.
type gcra struct {
	calls
	local clock
	rates []rate
	full  []moment  // Burst/R
	times []arrival // of every key and limit
}

// arrival is a stored time. As the scripts of this algorithm do, it is stored for tat - now.
type arrival struct {
	tat   moment
	until int64 // true time
}

func newGCRA(f Fleet, _ string, local clock) (Algorithm, error) {
	rates, err := ratesOf(f.Limits)
	if err != nil {
		return nil, err
	}
	g := &gcra{local: local, rates: rates, times: make([]arrival, f.Keys*len(rates))}
	for _, r := range rates {
		g.full = append(g.full, r.time(r.full))
	}
	return g, nil
}

func (g *gcra) Decide(now int64, p, key int, n int64) bool {
	g.made++
	local := g.local(p, now)
	times := g.times[key*len(g.rates):][:len(g.rates)]
	var next [maxLimits]moment
	for i, r := range g.rates {
		if n > r.burst {
			return false
		}
		next[i] = moment{us: local}
		if t := times[i]; now < t.until && t.tat.after(next[i]) {
			next[i] = t.tat
		}
		next[i] = next[i].plus(r.time(product(r.unit, uint64(n))), r.step)
		if (moment{next[i].us - local, next[i].part}).after(g.full[i]) {
			return false
		}
	}
	for i := range times {
		times[i] = arrival{next[i], now + next[i].up() - local}
	}
	return true
}
