// Command cold writes the coverage of one Allow of a new key to a folder. TestAColdAllowIsShort builds
// and runs it.
package main

import (
	"context"
	"log"
	"os"
	"runtime/coverage"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// store repeats the first answer of a real bucket, so that the coverage leaves out the code of the bucket.
type store struct {
	lease.Store
	first lease.Grant
}

func (s *store) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	if s.first.Epoch == 0 {
		s.Store.Exchange(ctx, calls, func([]*lease.Call) { s.first = calls[0].Grant })
	}
	for _, c := range calls {
		c.Grant = s.first
		c.Grant.Seq = c.Request.Seq
	}
	done(calls)
}

func main() {
	l, err := hybrid.New(&store{Store: memory.New(nil)},
		hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(100)}})
	if err != nil {
		log.Fatal(err)
	}
	ok := l.Allow("the first key, by which the node is met")
	time.Sleep(100 * time.Millisecond) // until the scheduler is idle again
	if err := coverage.ClearCounters(); err != nil {
		log.Fatal(err)
	}
	if !l.Allow("cold") || !ok {
		log.Fatal("denied")
	}
	for _, write := range []func(string) error{coverage.WriteMetaDir, coverage.WriteCountersDir} {
		if err := write(os.Args[1]); err != nil {
			log.Fatal(err)
		}
	}
}
