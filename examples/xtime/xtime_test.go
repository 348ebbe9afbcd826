package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/xtime"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// TestCrawlersShareALimitInRedis: two crawlers together fetch the burst, and no more than the limit allows.
func TestCrawlersShareALimitInRedis(t *testing.T) {
	testnet.OnRedis(t, func(open func() lease.Store) error {
		var fetched atomic.Int64
		count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fetched.Add(1) })
		site, begin := httptest.NewServer(count), time.Now()
		defer site.Close()
		// A token comes after half an hour, so that a Wait fails when the burst is used up.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var crawls sync.WaitGroup
		for range 2 {
			shared, err := hybrid.New(open(), hybrid.Config{
				Limits: []hybrid.Limit{hybrid.PerHour(2).WithBurst(5)},
				Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny}, // A slow answer may not add tokens.
			})
			testkit.NoErr(t, err)
			defer shared.Close()
			crawls.Go(func() { crawl(ctx, xtime.New(shared.Key("site")), site.URL, 10) })
		}
		crawls.Wait()
		most := 5 + 2*time.Since(begin).Hours()
		if n := fetched.Load(); float64(n) > most {
			t.Errorf("%d files are fetched, want at most %v", n, most)
		} else if n < 5 {
			return fmt.Errorf("%d files are fetched, want 5", n)
		}
		return nil
	})
}
