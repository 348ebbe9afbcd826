package outage_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid/internal/outage"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// slow is a handler of a log that takes an hour for each line.
type slow struct{ slog.Handler }

// Enabled implements slog.Handler.
func (slow) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (s slow) WithAttrs([]slog.Attr) slog.Handler { return s }

// Handle implements slog.Handler.
func (slow) Handle(context.Context, slog.Record) error { time.Sleep(time.Hour); return nil }

// A slow log holds up no Limiter that begins or ends on another Store.
func TestASlowLogHoldsUpNoOtherStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		watch := func(store string, h slog.Handler, away func(string, error)) (*outage.Nodes, *outage.Watcher) {
			w := &outage.Watcher{Clock: c, Logger: slog.New(h), Away: away, Back: func(string, time.Duration) {}}
			return outage.Watch(store, "clock", func(int) string { return "node" }, w), w
		}
		quiet := func(string, error) {}
		// Given a Limiter that begins in an outage, and hears of it as another node fails,
		all, first := watch("a", slog.DiscardHandler, quiet)
		fail := func(node int) { all.Node(node).Failed(first, c.Now(), c.Now(), errors.New("refused")) }
		fail(1)
		var once sync.Once
		go watch("a", slow{}, func(string, error) {
			once.Do(func() {
				var failed sync.WaitGroup
				failed.Go(func() { fail(2) })
				failed.Wait()
			})
		})
		synctest.Wait()
		// then one on another Store does not wait for its log.
		began := time.Now()
		other, w := watch("b", slog.DiscardHandler, quiet)
		other.Leave(w)
		testkit.Check(t, time.Since(began) == 0, "a Limiter on another Store waited %v", time.Since(began))
		time.Sleep(3 * time.Hour)
	})
}
