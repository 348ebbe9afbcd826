// Command xtime is a crawler that was moved from golang.org/x/time/rate to package xtime. All processes that
// crawl the same site share its limit of 20 files a second, with a burst of 5.
package main

import (
	"cmp"
	"context"
	"flag"
	"log"
	"net/http"
	"net/http/httptest"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/xtime"
)

func main() {
	address := flag.String("redis", "redis://localhost:6379?dial_timeout=500ms&read_timeout=500ms", "Redis")
	url := flag.String("url", "", "site to crawl; empty means a site in this process")
	n := flag.Int64("n", 100, "number of pages")
	flag.Parse()
	options, err := redis.ParseURL(*address)
	check(err)
	shared, err := hybrid.Redis(redis.NewClient(options), "crawler", hybrid.PerSecond(20).WithBurst(5))
	check(err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	limiter := xtime.New(shared.Key(cmp.Or(*url, "test site"))) // replaces rate.NewLimiter(20, 5)
	http.DefaultClient.Timeout = 10 * time.Second
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	check(shared.Ping(ctx)) // Without a ping, the first Wait may fail.
	pages, pictures, err := crawl(ctx, limiter, cmp.Or(*url, server.URL), *n)
	log.Printf("fetched %d pages and %d pictures, error: %v", pages, pictures, err)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	check(shared.Shutdown(ending)) // gives back the tokens of this process
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// crawl fetches n pages, and a picture after each page if Allow admits it. Only the type of limiter is new.
func crawl(ctx context.Context, limiter *xtime.Limiter, url string, n int64) (int64, int64, error) {
	var begun, page, picture atomic.Int64
	var group errgroup.Group
	for range 4 {
		group.Go(func() (err error) {
			for err == nil && begun.Add(1) <= n {
				if err = limiter.Wait(ctx); err == nil {
					err = fetch(url+"/page", &page)
				}
				if err == nil && limiter.Allow() {
					err = fetch(url+"/picture", &picture)
				}
			}
			return err
		})
	}
	err := group.Wait()
	return page.Load(), picture.Load(), err
}

func fetch(url string, count *atomic.Int64) error {
	answer, err := http.Get(url)
	if err == nil {
		count.Add(1)
		err = answer.Body.Close()
	}
	return err
}
