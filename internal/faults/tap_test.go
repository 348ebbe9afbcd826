package faults

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// tap is a store over another one that notes what passes. sent may change calls before they go out,
// heard sees a group before it is given back; they are called one at a time.
type tap struct {
	lease.Store
	oneWay time.Duration // how far away the store is
	sent   func([]*lease.Call)
	heard  func([]*lease.Call)

	mu     sync.Mutex
	most   int64       // the largest holding that any reply left a process with
	last   lease.Grant // the reply that came last
	bySize [7]int      // how many grants there were of each size; larger ones count with the largest
}

// Exchange implements lease.Store.
func (s *tap) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	s.mu.Lock()
	if s.sent != nil {
		s.sent(calls)
	}
	s.mu.Unlock()
	time.Sleep(s.oneWay)
	s.Store.Exchange(ctx, calls, func(group []*lease.Call) {
		time.Sleep(s.oneWay)
		s.note(group)
		done(group)
	})
}

func (s *tap) note(group []*lease.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range group {
		if c.Err != nil {
			continue
		}
		held := c.Grant.Granted - c.Grant.Waited
		if !c.Grant.Void {
			held += c.Request.Remaining
		}
		s.most, s.last = max(s.most, held), c.Grant
		s.bySize[min(c.Grant.Granted, int64(len(s.bySize)-1))]++
	}
	if s.heard != nil {
		s.heard(group)
	}
}

func (s *tap) mostHeld() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

func (s *tap) lastGrant() lease.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// tape records every executed call of some fleets. It is oracle D: the bucket numbers its calls and
// says at what time it executed each, so the reference bucket must answer the same calls, in that
// order and at those times, with the same grants.
type tape struct {
	mu    sync.Mutex
	calls []recorded
}

type recorded struct {
	request lease.Request
	grant   lease.Grant
}

// over is a store that records what passes to inner.
func (p *tape) over(inner lease.Store) lease.Store {
	return &tap{Store: inner, heard: func(group []*lease.Call) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range group {
			if c.Err == nil {
				p.calls = append(p.calls, recorded{c.Request, c.Grant})
			}
		}
	}}
}

// replay compares. The fleets must have been shut down, so that no call is on its way.
func (p *tape) replay(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortFunc(p.calls, func(a, b recorded) int {
		return cmp.Or(cmp.Compare(a.grant.Epoch, b.grant.Epoch), cmp.Compare(a.grant.Counter,
			b.grant.Counter))
	})
	var b lease.Bucket
	for i, c := range p.calls {
		if c.grant.Counter != int64(i+1) {
			t.Fatalf("call %d of the bucket was not recorded, the next is %d", i+1, c.grant.Counter)
		}
		var want lease.Grant
		if err := b.Call(c.grant.ServerTime, &c.request, &want); err != nil ||
			!reflect.DeepEqual(c.grant, want) {
			t.Fatalf("call %d: %+v\nRedis granted     %+v\nthe reference has %+v, %v", i+1, c.request,
				c.grant, want, err)
		}
	}
	t.Logf("%d calls replayed", len(p.calls))
}
