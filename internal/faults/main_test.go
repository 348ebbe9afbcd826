//go:build unix

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// ordersVariable carries a child's orders; a process that finds it set is a child.
const ordersVariable = "YUZHI_FAULTS_PROCESS"

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // these tests cause faults on purpose; see diary
	if text := os.Getenv(ordersVariable); text != "" {
		beChild(text)
		return
	}
	flag.Parse()
	// Most tests wait for servers, so more of them run at once than there are processors.
	_ = flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0))))
	os.Exit(m.Run())
}

// child is this process, if it was started as one of a family.
type child struct {
	orders
	in *bufio.Scanner
	l  *hybrid.Limiter
}

// roles maps a child's roles to their functions. Each says and hears lines, and returns when it hears finish.
var roles = map[string]func(*child){
	"hold": (*child).hold, "starved": (*child).starve, "many keys": (*child).serveMany,
}

// beChild runs a process with one Limiter on the server. It ends with its role, or with the parent,
// which closes the input.
func beChild(text string) {
	c := &child{in: bufio.NewScanner(os.Stdin)}
	orExit(json.Unmarshal([]byte(text), &c.orders))
	store, err := redisbucket.New(redis.NewClient(&redis.Options{Addr: c.Redis}), redisbucket.Config{})
	orExit(err)
	cfg := c.config()
	if c.Role == "hold" {
		cfg.Clock = stuckClock{clock.System()}
	}
	c.l, err = hybrid.New(store, cfg)
	orExit(err)
	roles[c.Role](c)

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	shutDown := c.l.Shutdown(ctx) == nil
	c.say("report", report{c.l.Stats(), shutDown})
}

// orExit ends this process unless err is nil.
func orExit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(3)
	}
}

// say sends one line to the parent.
func (c *child) say(word string, value any) {
	text, err := json.Marshal(value)
	orExit(err)
	_, err = fmt.Printf("%s %s\n", word, text)
	orExit(err)
}

// hear waits for the parent to say word.
func (c *child) hear(word string) {
	if !c.in.Scan() || c.in.Text() != word {
		orExit(fmt.Errorf("the parent said %q instead of %q: %v", c.in.Text(), word, c.in.Err()))
	}
}

// hold leases tokens and keeps them. None of its timers run, so that what it holds stays the same.
func (c *child) hold() {
	// a grant that came too late is burnt, and another follows
	for c.l.Stats().Held == 0 || !schedulerRests() {
		if c.l.Stats().Held == 0 {
			c.l.Allow(key)
		}
		time.Sleep(time.Millisecond) // the pace of polling
	}
	c.say("holding", c.l.Stats())
	c.hear("finish")
}

// schedulerRests reports whether the Limiter's scheduler waits, and no goroutine runs that could wake it.
func schedulerRests() bool {
	all := running()
	return len(all) == 1 && strings.Contains(all[0], "[select") && strings.Contains(all[0], "(*scheduler).run")
}

// running lists the goroutines in this module's code, except tests.
func running() []string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var ours []string
	for g := range strings.SplitSeq(string(stacks), "\n\n") {
		for _, folder := range []string{"hybrid", "redisbucket", "lease", "clock"} {
			if strings.Contains(g, "yuzhi-go/yuzhi/"+folder+".") {
				ours = append(ours, g)
				break
			}
		}
	}
	return ours
}

// stuckClock is the system's clock, with timers that never run.
type stuckClock struct{ clock.Clock }

// AfterFunc implements clock.Clock.
func (s stuckClock) AfterFunc(time.Duration, func()) clock.Timer {
	return s.Clock.AfterFunc(time.Hour, func() {})
}

const (
	starvedKeys = 5
	enough      = 200 // tokens for every key by the end
	hogs        = 4
)

// starved is the report of a starved process on its time under load, and on an idle time.
type starved struct {
	Calls, IdleCalls        int64
	Seconds, IdleCPUSeconds float64
}

// starve is the role of a process that gets little CPU. It offers every key the same load until enough
// was admitted of each. If that never happens, the parent's patience ends.
func (c *child) starve() {
	stopHogs := startHogs()
	began := time.Now()
	var wg sync.WaitGroup
	for i := range starvedKeys {
		wg.Go(func() {
			for k, admitted := c.l.Key(fmt.Sprint("key-", i)), 0; admitted < enough; {
				if k.Allow() {
					admitted++
				}
				time.Sleep(time.Duration(float64(time.Second) / c.Offered)) // the pace of the load
			}
		})
	}
	wg.Wait()
	s := starved{Calls: c.l.Stats().Calls, Seconds: time.Since(began).Seconds()}
	stopHogs()
	for c.l.Stats().Held > 0 { // given back within a Target
		time.Sleep(time.Millisecond)
	}
	calls, cpu := c.l.Stats().Calls, testkit.CPUTime().Seconds()
	time.Sleep(time.Second) // the measured idle time
	s.IdleCalls, s.IdleCPUSeconds = c.l.Stats().Calls-calls, testkit.CPUTime().Seconds()-cpu
	c.say("starved", s)
	c.hear("finish")
	startHogs()
	for i := range starvedKeys {
		c.l.Allow(fmt.Sprint("key-", i))
	}
}

// startHogs starts goroutines that never pause, and a collector that never rests over a heap that
// takes it a while.
func startHogs() (stop func()) {
	var stopped atomic.Bool
	var wg sync.WaitGroup
	for range hogs {
		wg.Go(func() {
			for !stopped.Load() {
			}
		})
	}
	wg.Go(func() {
		type node struct{ next *node }
		var list *node
		for range 500_000 {
			list = &node{list}
		}
		for !stopped.Load() {
			runtime.GC()
		}
		runtime.KeepAlive(list)
	})
	return func() {
		stopped.Store(true)
		wg.Wait()
	}
}
