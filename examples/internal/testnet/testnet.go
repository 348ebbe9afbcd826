// Package testnet has a Redis for the examples' tests, whose clients outlast a pause of the machine.
package testnet

import (
	"fmt"
	"testing"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Patience is the query of a Redis URL whose client outlasts a pause of the machine.
const Patience = "?dial_timeout=1m&read_timeout=1m&write_timeout=1m&pool_timeout=1m"

// Redis starts a server that ends with the test, and returns its URL.
func Redis(t testing.TB) (url string) {
	t.Helper()
	return "redis://" + redistest.Start(t).Addr + "/0" + Patience
}

// OnRedis runs body until it has no error, each time on new buckets: a slow machine may miss a
// deadline of the limiter. open returns the store of one more process.
func OnRedis(t testing.TB, body func(open func() lease.Store) error) {
	url, attempts := Redis(t), 0
	testkit.EventuallyNil(t, func() error {
		attempts++
		return body(func() lease.Store {
			s, err := store.Open(url, fmt.Sprint("test ", attempts))
			testkit.NoErr(t, err)
			return s
		})
	})
}
