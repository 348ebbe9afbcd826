package faults

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// ear is a store over one limiter's that notes what the limiter hears. It changes nothing.
type ear struct {
	*tap
	calls  int64            // sent since forget
	failed int64            // of calls
	latest error            // the latest of those
	kinds  map[string]error // every kind of error since forget

	granted map[int64]int64 // the active weight that the grant with this call counter told
	active  int64           // the active weight by which the limiter goes: that of the grant accepted last
	least   int64           // of active, since forget
}

func newEar(s lease.Store) *ear {
	e := &ear{kinds: make(map[string]error), granted: make(map[int64]int64)}
	e.tap = &tap{Store: s, sent: e.send, heard: e.hear}
	return e
}

// send notes calls on their way. A call says which grant its limiter accepted last: what the ear
// hears, the limiter may have dropped.
func (e *ear) send(calls []*lease.Call) {
	e.calls += int64(len(calls))
	for _, c := range calls {
		if active, ok := e.granted[c.Request.Counter]; ok {
			e.active, e.least = active, min(e.least, active)
		}
	}
}

func (e *ear) hear(group []*lease.Call) {
	for _, c := range group {
		if c.Err != nil {
			e.failed++
			e.latest, e.kinds[c.Err.Error()] = c.Err, c.Err
			continue
		}
		e.granted[c.Grant.Counter] = c.Grant.ActiveWeight
	}
}

// forget starts a new count of what is heard, and lets only the share in force at the moment stand.
func (e *ear) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls, e.failed, e.latest, e.least = 0, 0, nil, e.active
	clear(e.kinds)
}

func (e *ear) counts() (sent, failed int64, latest error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls, e.failed, e.latest
}

// heardOf returns whether any error so far was an `is` and said what it says.
func (e *ear) heardOf(is error, says string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for text, err := range e.kinds {
		if errors.Is(err, is) && strings.Contains(text, says) {
			return true
		}
	}
	return false
}

func (e *ear) weights() (active, least int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active, e.least
}

// ears is one for each limiter of a fleet; put is for Options.Store.
type ears []*ear

func (e *ears) put(s lease.Store) lease.Store {
	*e = append(*e, newEar(s))
	return (*e)[len(*e)-1]
}

// sum adds up what all have heard; the error is anybody's latest.
func (e *ears) sum() (sent, failed int64, latest error) {
	for _, one := range *e {
		s, f, err := one.counts()
		sent, failed = sent+s, failed+f
		if err != nil {
			latest = err
		}
	}
	return sent, failed, latest
}

// admin is a client for reconfiguring a server, with one connection that is open already when it
// returns.
func admin(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, ReadTimeout: time.Minute,
		DialTimeout: time.Minute})
	t.Cleanup(func() { rdb.Close() })
	must(t, rdb.Ping(t.Context()).Err())
	return rdb
}
