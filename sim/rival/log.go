package rival

// slidingLog remembers the admissions of the last Burst/R and admits while they and the request are at most Burst. It is
// the sorted set of a usual script: whatever is older than the window by the caller's clock is removed, then what is left
// is counted, then the request is added at the caller's time.
type slidingLog struct {
	calls
	local clock
	rates []rate
	logs  []admissions // of every key and limit
}

// admissions are those that nobody has seen leave the window, at most as many as there are tokens in a burst.
type admissions struct {
	sum   int64
	until int64 // true time: one window after the last admission the key is forgotten
	heap  []admission
}

type admission struct{ at, n int64 }

func newSlidingLog(f Fleet, _ string, local clock) (Algorithm, error) {
	rates, err := ratesOf(f.Limits)
	if err != nil {
		return nil, err
	}
	return &slidingLog{local: local, rates: rates, logs: make([]admissions, f.Keys*len(rates))}, nil
}

func (s *slidingLog) Decide(now int64, p, key int, n int64) bool {
	s.made++
	local := s.local(p, now)
	logs := s.logs[key*len(s.rates):][:len(s.rates)]
	ok := true
	for i, r := range s.rates {
		if l := &logs[i]; now >= l.until {
			l.sum, l.heap = 0, l.heap[:0]
		} else {
			l.forget(local - r.window())
		}
		ok = ok && n <= r.burst-logs[i].sum
	}
	if ok {
		for i, r := range s.rates {
			logs[i].add(admission{local, n})
			logs[i].until = now + r.window()
		}
	}
	return ok
}

// forget removes what happened at a time or before.
func (l *admissions) forget(at int64) {
	for len(l.heap) > 0 && l.heap[0].at <= at {
		l.sum -= l.heap[0].n
		last := len(l.heap) - 1
		moved := l.heap[last]
		l.heap = l.heap[:last]
		if last > 0 {
			l.sink(moved)
		}
	}
}

// add is one comparison where clocks agree: the newest belongs last.
func (l *admissions) add(a admission) {
	l.sum += a.n
	l.heap = append(l.heap, a)
	i := len(l.heap) - 1
	for i > 0 && a.at < l.heap[(i-1)/2].at {
		l.heap[i] = l.heap[(i-1)/2]
		i = (i - 1) / 2
	}
	l.heap[i] = a
}

// sink puts a in the place of the first.
func (l *admissions) sink(a admission) {
	i := 0
	for {
		child := 2*i + 1
		if child >= len(l.heap) {
			break
		}
		if child+1 < len(l.heap) && l.heap[child+1].at < l.heap[child].at {
			child++
		}
		if l.heap[child].at >= a.at {
			break
		}
		l.heap[i] = l.heap[child]
		i = child
	}
	l.heap[i] = a
}
