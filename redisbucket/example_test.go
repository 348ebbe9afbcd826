package redisbucket_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// The client is yours: any redis.UniversalClient, for a server, Sentinel or a cluster. The store
// goes to hybrid.New. Inspect shows a bucket to a tool; it changes nothing and creates nothing.
func Example() {
	server, err := miniredis.Run() // yours is a real one
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	_, err = redisbucket.New(rdb, redisbucket.Config{Prefix: "{shop}"})
	fmt.Println(errors.Is(err, redisbucket.ErrInvalidConfig))
	store, err := redisbucket.New(rdb, redisbucket.Config{Prefix: "shop:limits:"})
	if err != nil {
		log.Fatal(err)
	}

	ctx, limits := context.Background(), []lease.Limit{lease.PerHour(100)}
	st, err := store.Inspect(ctx, "checkout")
	fmt.Println(st.Exists, err)
	_, err = store.Configure(ctx, "checkout", lease.OpSet, lease.Policy{}.ConfigFor(limits, 0, 0))
	if err != nil {
		log.Fatal(err)
	}
	st, err = store.Inspect(ctx, "checkout")
	fmt.Println(st.Config.Limits, "level", st.Levels[0], "leased", st.Ledger, "version", st.Config.Version, err)
	// Output:
	// true
	// false <nil>
	// [100/h] level 100 leased 0 version {0 1} <nil>
}
