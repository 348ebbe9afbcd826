package rival

// leaky is the leaky bucket as a queue: Burst places that drain at R. A request for n tokens takes n places, or is refused
// if they are not free. It goes out when all before it have drained, and its places are free once its own n/R are over.
//
// This is nginx's limit_req with a queue of burst = Burst-1 (nginx does not count the request that goes out at once)
// and without nodelay. What it admits it delays by up to Burst/R; here an admission counts when the request
// arrives, so that it compares with the others. For requests of one token it decides as GCRA, which is limit_req with
// nodelay. A larger one frees its places all at once and late, so that the queue refuses some that GCRA admits.
type leaky struct {
	calls
	local  clock
	rates  []rate
	queues []queue // of every key and limit
}

// queue is kept in the store until it is empty by the clock of the last caller that joined it.
type queue struct {
	tail    moment // when the last place drains
	taken   int64  // places
	waiting fifo[place]
	until   int64 // true time
}

// place is one request in a queue. Being whole, the time is rounded up: nobody looks between two microseconds.
type place struct {
	drained int64
	n       int64
}

func newLeaky(f Fleet, _ string, local clock) (Algorithm, error) {
	rates, err := ratesOf(f.Limits)
	if err != nil {
		return nil, err
	}
	return &leaky{local: local, rates: rates, queues: make([]queue, f.Keys*len(rates))}, nil
}

func (l *leaky) Decide(now int64, p, key int, n int64) bool {
	l.made++
	local := l.local(p, now)
	queues := l.queues[key*len(l.rates):][:len(l.rates)]
	ok := true
	for i := range queues {
		q := &queues[i]
		q.drain(now, local)
		ok = ok && n <= l.rates[i].burst-q.taken
	}
	if ok {
		for i := range queues {
			queues[i].join(l.rates[i], now, local, n)
		}
	}
	return ok
}

func (q *queue) drain(now, local int64) {
	if now >= q.until {
		q.waiting.clear()
		q.taken, q.tail = 0, moment{us: local}
		return
	}
	for q.waiting.len() > 0 && q.waiting.at(0).drained <= local {
		q.taken -= q.waiting.at(0).n
		q.waiting.drop()
	}
}

func (q *queue) join(r rate, now, local, n int64) {
	if start := (moment{us: local}); start.after(q.tail) {
		q.tail = start
	}
	q.tail = q.tail.plus(r.time(product(r.unit, uint64(n))), r.step)
	q.waiting.add(place{q.tail.up(), n})
	q.taken += n
	q.until = now + q.tail.up() - local
}
