package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestRow23ForgottenScriptsAreSentAgainAndRunOnce(t *testing.T) {
	t.Parallel()
	// given a fleet under load on a bucket that does not refill
	server := redistest.Start(t)
	ctl := admin(t, server.Addr)
	f := newStock(t, server.Addr, "", size, hybrid.Config{CallTimeout: time.Minute})
	load := f.Load("k", perEach)
	// when the server forgets the scripts fifty times, each time after it was called again
	for range 50 {
		before := f.Stats().Calls
		must(t, ctl.ScriptFlush(t.Context()).Err())
		testkit.Eventually(t, "another call", func() bool { return f.Stats().Calls > before })
	}
	load.Stop()
	// then every token is accounted for, no call failed, and each was executed exactly once
	f.check(t)
	calls, failed, err := f.ears.sum()
	if counted := f.State("k").Counter; failed > 0 || counted != calls {
		t.Errorf("%d calls, %d executed, %d failed: %v", calls, counted, failed, err)
	}
}

func TestRow24ABusyServerIsAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--lua-time-limit", "1")
	ctl := admin(t, server.Addr)
	all := newModes(t, server.Addr, "", nil)
	endless := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: -1, MaxRetries: -1})
	defer endless.Close()
	var killed error
	done := make(chan struct{})
	// when somebody's script runs for ever, until it is killed
	all.suffer(t, outage{inject: func() {
		go func() {
			defer close(done)
			killed = endless.Eval(t.Context(), "while true do end", nil).Err()
		}()
		testkit.Eventually(t, "a slack server", func() bool { return redis.HasErrorPrefix(ctl.Ping(t.Context()).Err(), "BUSY") })
	}, cure: func() {
		must(t, ctl.ScriptKill(t.Context()).Err())
		<-done
		if killed == nil || !strings.Contains(killed.Error(), "SCRIPT KILL") {
			t.Errorf("the endless script ended with %v", killed)
		}
	}, says: ": BUSY ", is: lease.ErrRefused})
}

func TestRow24APausedServerIsAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctl := admin(t, server.Addr)
	all := newModes(t, server.Addr, "", nil)
	// when the server holds back everything that may write, as before a failover
	all.suffer(t, outage{
		inject: func() { must(t, ctl.Do(t.Context(), "CLIENT", "PAUSE", time.Hour.Milliseconds(), "WRITE").Err()) },
		cure:   func() { must(t, ctl.Do(t.Context(), "CLIENT", "UNPAUSE").Err()) },
	})
}
