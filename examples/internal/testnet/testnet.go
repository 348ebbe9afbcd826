// Package testnet has the networks of the examples' tests: one in memory, over which a test may
// have virtual time, and a Redis whose clients outlast a pause of the machine.
package testnet

import (
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc/test/bufconn"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Pipes is a network in memory: a listener, and Dial reaches it.
type Pipes struct{ *bufconn.Listener }

// Listen returns a network whose only listener is the result.
func Listen() Pipes { return Pipes{bufconn.Listen(1 << 16)} }

// Dial opens a connection. It ignores network and address.
func (p Pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) { return p.DialContext(ctx) }

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
			s, done, err := store.Open(url, fmt.Sprint("test ", attempts))
			testkit.NoErr(t, err)
			t.Cleanup(func() { done() })
			return s
		})
	})
}
