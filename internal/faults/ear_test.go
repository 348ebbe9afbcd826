package faults

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// ear is a store over one limiter's that notes what the limiter hears. It changes nothing.
type ear struct {
	lease.Store

	mu     sync.Mutex
	sent   int64            // calls
	failed int64            // of sent
	last   error            // the latest
	all    map[string]error // every kind of error heard since forget

	granted map[int64]int64 // the active weight that the grant with this call counter told
	active  int64           // the active weight that the limiter goes by: that of the grant it accepted last
	least   int64           // of active, since forget
}

// Exchange implements lease.Store.
func (e *ear) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	e.send(calls)
	e.Store.Exchange(ctx, calls, func(group []*lease.Call) {
		e.hear(group)
		done(group)
	})
}

// send notes calls on their way. A call says which grant its limiter accepted last; what the ear hears the limiter may
// have dropped.
func (e *ear) send(calls []*lease.Call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent += int64(len(calls))
	for _, c := range calls {
		if active, ok := e.granted[c.Request.Counter]; ok {
			e.active = active
			e.least = min(e.least, active)
		}
	}
}

func (e *ear) hear(group []*lease.Call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range group {
		if c.Err != nil {
			e.failed++
			e.last = c.Err
			e.all[c.Err.Error()] = c.Err
			continue
		}
		e.granted[c.Grant.Counter] = c.Grant.ActiveWeight
	}
}

// forget starts a new count of what was heard, and lets only the share in force at the moment stand.
func (e *ear) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent, e.failed, e.last, e.least = 0, 0, nil, e.active
	clear(e.all)
}

func (e *ear) heard() (sent, failed int64, last error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sent, e.failed, e.last
}

// heardOf reports whether any error so far was an `is` and said what it says.
func (e *ear) heardOf(is error, says string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for text, err := range e.all {
		if errors.Is(err, is) && strings.Contains(text, says) {
			return true
		}
	}
	return false
}

func (e *ear) weight() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active
}

func (e *ear) leastWeight() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.least
}

// ears is one for each limiter of a fleet; put is for Options.Store.
type ears []*ear

func (e *ears) put(s lease.Store) lease.Store {
	*e = append(*e, &ear{Store: s, all: make(map[string]error), granted: make(map[int64]int64)})
	return (*e)[len(*e)-1]
}

// sum adds up what all have heard; the error is anybody's latest.
func (e *ears) sum() (sent, failed int64, last error) {
	for _, one := range *e {
		s, f, err := one.heard()
		sent, failed = sent+s, failed+f
		if err != nil {
			last = err
		}
	}
	return sent, failed, last
}

// admin is a client for reconfiguring a server, with one connection that is open already when it returns.
func admin(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, ReadTimeout: time.Minute, DialTimeout: time.Minute})
	t.Cleanup(func() { rdb.Close() })
	must(t, rdb.Ping(t.Context()).Err())
	return rdb
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
