package main

import (
	"context"
	"fmt"
	"os"
	"runtime/coverage"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

func main() {
	what, dir := os.Args[1], os.Args[2]
	store := lease.NewMemoryStore(nil)
	limit := hybrid.PerSecond(1000)
	if what == "wait" {
		limit = hybrid.PerSecond(100).WithBurst(10)
	}
	l, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{limit}})
	if err != nil {
		panic(err)
	}
	k := l.Key("k")
	time.Sleep(20 * time.Millisecond)
	switch what {
	case "cold":
		coverage.ClearCounters()
		fmt.Println(k.Allow())
		time.Sleep(2 * time.Millisecond)
	case "renewal":
		for range 100 {
			k.Allow()
			time.Sleep(time.Millisecond)
		}
		calls := l.Stats().Calls
		for l.Stats().Calls == calls {
			coverage.ClearCounters()
			k.Allow()
			time.Sleep(2 * time.Millisecond)
		}
	case "wait":
		for k.Allow() {
		}
		coverage.ClearCounters()
		fmt.Println(k.WaitN(context.Background(), 5))
		time.Sleep(time.Millisecond)
	}
	if err := coverage.WriteMetaDir(dir); err != nil {
		panic(err)
	}
	if err := coverage.WriteCountersDir(dir); err != nil {
		panic(err)
	}
	os.Exit(0)
}
