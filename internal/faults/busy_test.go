//go:build unix

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// served counts what a process with many keys was asked for, and what came of it.
type served struct {
	Asked, Admitted, Calls, RoundTrips int64
	Away                               int64 // 1 if a node is away now
	CPU, RedisCPU                      time.Duration
}

// serveMany is the role of a process that is asked for keys of a Zipf distribution, at an even pace however
// slowly it answers. It reports on each stretch of time until it hears finish.
func (c *child) serveMany() {
	const workers, keys = 50, 10_000
	var now served
	admits := c.l.Allow
	if c.Plain {
		client := redis.NewClient(&redis.Options{Addr: c.Redis})
		admits = func(key string) bool {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			return client.Incr(ctx, "plain:"+key).Err() == nil
		}
	}
	work := make(chan string, 1000)
	for range workers {
		go func() {
			for key := range work {
				if admits(key) {
					atomic.AddInt64(&now.Admitted, 1)
				}
			}
		}()
	}
	go func() {
		zipf := rand.NewZipf(rand.New(rand.NewPCG(rand.Uint64(), 1)), 1.1, 1, keys-1)
		began := time.Now()
		for pace := time.NewTicker(5 * time.Millisecond); ; <-pace.C {
			for due := int64(time.Since(began).Seconds() * c.Offered); atomic.LoadInt64(&now.Asked) < due; {
				atomic.AddInt64(&now.Asked, 1)
				select {
				case work <- fmt.Sprint("user ", zipf.Uint64()):
				default: // all workers wait
				}
			}
		}
	}()
	for c.say("ready", nil); c.in.Scan() && c.in.Text() == "tell"; {
		st := c.l.Stats()
		told := served{
			Asked: atomic.LoadInt64(&now.Asked), Admitted: atomic.LoadInt64(&now.Admitted),
			Calls: st.Calls, RoundTrips: st.RoundTrips, CPU: testkit.CPUTime(),
		}
		for _, n := range st.Nodes {
			told.Away = max(told.Away, min(int64(n.Away), 1))
		}
		c.say("told", told)
	}
}

// TestRow38TwentyProcessesShortOfCPU: a machine that is short of CPU for its processes and its Redis denies
// requests for which it has none, and serves all again afterwards. The shares are the machine's. The test
// prints them, with those of an INCR for each request, and asserts the end:
//
//	YUZHI_LONG=1 go test -run Row38 -v ./internal/faults
func TestRow38TwentyProcessesShortOfCPU(t *testing.T) {
	testkit.LongOnly(t)
	const processes, perSecond, length = 20, 4000, 5 * time.Second
	for _, plain := range []bool{true, false} {
		// Given a fleet that is asked for ten thousand keys at an even pace,
		f := newFamily(t)
		server := redis.NewClient(&redis.Options{Addr: f.addr})
		defer server.Close()
		var fleet []*process
		for range processes {
			fleet = append(fleet, f.child(orders{
				Role: "many keys", Limit: hybrid.PerSecond(100), Offered: perSecond / processes, Plain: plain,
			}))
		}
		for _, p := range fleet {
			p.hear("ready", new(any))
		}
		last := totalOf(t, fleet, server)
		stretch := func(name string) {
			time.Sleep(length) // the stretch that is measured
			now := totalOf(t, fleet, server)
			asked := now.Asked - last.Asked
			t.Logf("INCR %v, %s: %d asked, %.0f %% admitted, %d calls, %d round trips, CPU %.1f s, of Redis %.2f s, "+
				"%d processes see Redis away", plain, name, asked, 100*float64(now.Admitted-last.Admitted)/float64(asked),
				now.Calls-last.Calls, now.RoundTrips-last.RoundTrips, (now.CPU - last.CPU).Seconds(),
				(now.RedisCPU - last.RedisCPU).Seconds(), now.Away)
			last = now
		}
		stretch("at the beginning")
		stretch("alone")
		// when busy loops take the CPU from it,
		for _, loops := range []int{2, 6} {
			stop := spin(t, loops)
			stretch(fmt.Sprint("beside ", loops, " busy loops"))
			stretch(fmt.Sprint("beside ", loops, " busy loops"))
			stop()
			stretch("after them")
		}
		// then no process takes Redis to be away for longer than that.
		testkit.Eventually(t, "Redis is back for all", func() bool { return totalOf(t, fleet, server).Away == 0 })
		for _, p := range fleet {
			p.kill()
		}
	}
}

// totalOf sums what the processes of a fleet and their Redis say.
func totalOf(t *testing.T, fleet []*process, server *redis.Client) (sum served) {
	for _, p := range fleet {
		p.tell("tell")
	}
	for _, p := range fleet {
		var told served
		p.hear("told", &told)
		sum.Asked += told.Asked
		sum.Admitted += told.Admitted
		sum.Calls += told.Calls
		sum.RoundTrips += told.RoundTrips
		sum.CPU += told.CPU
		sum.Away += told.Away
	}
	for line := range strings.FieldsSeq(server.Info(t.Context(), "cpu").Val()) {
		for _, of := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if text, ok := strings.CutPrefix(line, of); ok {
				d, err := time.ParseDuration(text + "s")
				testkit.NoErr(t, err)
				sum.RedisCPU += d
			}
		}
	}
	return sum
}

// spin runs n processes that never pause, until stop.
func spin(t *testing.T, n int) (stop func()) {
	var loops []*exec.Cmd
	for range n {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		testkit.NoErr(t, loop.Start())
		loops = append(loops, loop)
	}
	stop = sync.OnceFunc(func() {
		for _, loop := range loops {
			_ = loop.Process.Kill()
			_ = loop.Wait()
		}
	})
	t.Cleanup(stop)
	return stop
}
