package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// goroutines is the number of goroutines in the closed loops, and of connections in each client.
const goroutines = 64

var connected = redis.Options{PoolSize: goroutines}

func throughput(e *evaluation) {
	fmt.Printf(`## Throughput of one hot key

%d goroutines of one process in a closed loop on one key, far below its limit. An error of throttled is a
decision that lost ten compare-and-swaps. CPU time is in microseconds per decision; that of the client is
the time of the whole process.

`, goroutines)
	head := []string{"decisions/s", "admitted", "errors per 1,000", "commands per 1,000",
		"round trips per 1,000", "client CPU", "Redis CPU"}
	e.compare(head, slices.Concat(fleetwide, local), func(p peer) []float64 {
		s := e.site()
		defer s.close()
		most := perSecond(1_000_000, 1_000_000)
		if p.name == own || p.local {
			most = perSecond(1_000_000_000, 1_000_000_000)
		}
		ask := p.open(s, most, connected)
		s.closed(e.span/10, false, ask, one)
		o := s.closed(e.span, false, ask, one)
		return []float64{float64(o.asked) / o.seconds, o.per(float64(o.admitted)),
			1000 * o.per(float64(o.failed)), 1000 * o.per(o.commands), 1000 * o.per(o.trips),
			1e6 * o.per(o.clientCPU), 1e6 * o.per(o.serverCPU)}
	})
}

func latency(e *evaluation) {
	fmt.Printf(`## Latency of a decision on a hot key

An open loop of %v requests/s on one key with twice that limit, each request on a goroutine of its own.
Latency in milliseconds, from the start of the goroutine to the decision.

`,
		e.pace)
	e.compare([]string{"p50", "p99", "p99.9", "max", "errors per 1,000"}, fleetwide, func(p peer) []float64 {
		s := e.site()
		defer s.close()
		ask := p.open(s, perSecond(int64(2*e.pace), int64(2*e.pace)), connected)
		s.open(e.pace, e.span/4, ask, one)
		o := s.open(e.pace, e.span, ask, one)
		return []float64{o.quantile(0.5), o.quantile(0.99), o.quantile(0.999), o.quantile(1),
			1000 * o.per(float64(o.failed))}
	})
}

func longTail(e *evaluation) {
	names := users(short(e, 100_000, 5_000))
	for _, load := range []struct {
		name string
		most int64
		pick keys
	}{
		{"uniform, 10/s each", 10, uniform(names)},
		{"Zipf 1.1, 100/s each", 100, zipf(names)},
	} {
		fmt.Printf(`## Many keys: %s

%d users; a closed loop of %d goroutines, then an open loop of %v requests a second. CPU time is in
microseconds per decision, latency in milliseconds.

`,
			load.name, len(names), goroutines, e.pace)
		head := []string{"decisions/s", "admitted",
			"errors per 1,000", "client CPU", "Redis CPU", "p50", "p99", "p99.9",
			"open: errors per 1,000", "open: client CPU", "open: Redis CPU", "open: p50", "open: p99",
			"open: p99.9"}
		e.compare(head, fleetwide, func(p peer) []float64 {
			s := e.site()
			defer s.close()
			ask := p.open(s, perSecond(load.most, load.most), connected)
			s.closed(e.span, false, ask, load.pick) // warm-up: most users are known afterwards
			closed := s.closed(e.span, true, ask, load.pick)
			figures := []float64{float64(closed.asked) / closed.seconds, closed.per(float64(closed.admitted))}
			for _, o := range []*outcome{closed, s.open(e.pace, e.span, ask, load.pick)} {
				figures = append(figures, 1000*o.per(float64(o.failed)), 1e6*o.per(o.clientCPU),
					1e6*o.per(o.serverCPU), o.quantile(0.5), o.quantile(0.99), o.quantile(0.999))
			}
			return figures
		})
	}
}

func fleet(e *evaluation) {
	fmt.Printf(`## A fleet

Limiters with their own clients share a key, under a load below or above the limit. Calls are script calls
by INFO commandstats. Admitted is a percentage of the limit's rate or, if lower, of the load.

`)
	var rows [][]string
	for _, f := range []struct {
		limiters int
		most     limit
		peers    []peer
	}{
		{20, perSecond(1000, 1000), fleetwide[:2]},
		{200, perSecond(10_000, 20_000), fleetwide[:1]},
		{200, perSecond(10_000, 2_000), fleetwide[:1]},
	} {
		for _, load := range []float64{0.9, 2} {
			for _, p := range f.peers {
				rows = append(rows, e.ofFleet(p, f.limiters, f.most, load))
			}
		}
	}
	e.table([]string{"limiter", "processes", "limit", "load", "calls/s", "admitted of the limit"}, rows)
}

func (e *evaluation) ofFleet(p peer, limiters int, most limit, load float64) []string {
	s := e.site()
	defer s.close()
	asks := make(chan asker, limiters)
	for range limiters {
		asks <- p.open(s, most, redis.Options{})
	}
	inTurn := func(key string) (bool, error) {
		ask := <-asks
		asks <- ask
		return ask(key)
	}
	perSecond := load * float64(most.tokens)
	s.open(perSecond, short(e, 3*time.Second, e.span), inTurn, one) // spends the burst
	before := s.scripts()
	o := s.open(perSecond, short(e, 4*time.Second, e.span), inTurn, one)
	served := float64(o.admitted) / o.seconds / (float64(most.tokens) * min(load, 1))
	return []string{p.name, fmt.Sprint(limiters), most.lease().String(), number(load),
		number((s.scripts() - before) / o.seconds), number(100*served) + " %"}
}
