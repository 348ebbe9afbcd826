package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func memory(e *evaluation) {
	names := users(short(e, 100_000, 5_000))
	fmt.Printf(`## Memory

Bytes per key over %d keys after one request each. For Redis, used_memory after all clients have closed;
for the process, the live heap. Names have up to 10 bytes, without the limiter's prefix in Redis. yuzhi's
keys are at rest.

`, len(names))
	var rows [][]string
	for _, p := range slices.Concat(fleetwide, local) {
		stored, heap := e.weigh(p, names)
		row := []string{p.name, number(math.Round(stored)), number(math.Round(heap))}
		if p.local {
			row[1] = "-"
		}
		rows = append(rows, row)
	}
	e.table([]string{"limiter", "Redis, bytes per key", "process, bytes per key"}, rows)
}

func (e *evaluation) weigh(p peer, names []string) (stored, heap float64) {
	const used = `used_memory:(\d+)`
	s := e.site()
	defer s.close()
	before := s.info("memory", used)
	ask := p.open(s, limit{1, 10, time.Hour}, redis.Options{PoolSize: 8}) // no key expires during a run
	all := func(names []string) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for k := i; k < len(names); k += 8 {
					_, err := ask(names[k])
					testkit.Check(e, err == nil, "%s: %v", p.name, err)
				}
			})
		}
		wg.Wait()
	}
	all(slices.Repeat([]string{"another"}, 8)) // open the connections
	live := heapLive()
	all(names)
	heap = float64(heapLive() - live)
	runtime.KeepAlive(ask)
	s.leave() // close the connections, because the server counts their buffers as used memory
	testkit.Eventually(e, "no connection but one", func() bool {
		return s.info("clients", `connected_clients:(\d+)`) == 1
	})
	return (s.info("memory", used) - before) / float64(len(names)), heap / float64(len(names))
}

func heapLive() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
