package faults

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/yuzhi-go/yuzhi/lease"
)

// tape records every executed call of a fleet. It is oracle D: the bucket numbers its calls and says at what time it
// executed each, so the reference bucket must answer the same calls, in that order and at those times, with the same
// grants.
type tape struct {
	mu    sync.Mutex
	calls []recorded
}

type recorded struct {
	request lease.Request
	grant   lease.Grant
}

// over is a Store that records what passes through it to inner.
func (p *tape) over(inner lease.Store) lease.Store { return taped{inner, p} }

type taped struct {
	lease.Store
	tape *tape
}

// Exchange implements lease.Store.
func (s taped) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	s.Store.Exchange(ctx, calls, func(group []*lease.Call) {
		s.tape.mu.Lock()
		for _, c := range group {
			if c.Err == nil {
				s.tape.calls = append(s.tape.calls, recorded{c.Request, c.Grant})
			}
		}
		s.tape.mu.Unlock()
		done(group)
	})
}

// replay compares; the fleet must have been closed, so that no call is on its way.
func (p *tape) replay(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortFunc(p.calls, func(a, b recorded) int {
		return cmp.Or(cmp.Compare(a.grant.Epoch, b.grant.Epoch), cmp.Compare(a.grant.Counter, b.grant.Counter))
	})
	var b lease.Bucket
	for i, c := range p.calls {
		if c.grant.Counter != int64(i+1) {
			t.Fatalf("call %d of the bucket was not recorded, the next is %d", i+1, c.grant.Counter)
		}
		var want lease.Grant
		if err := b.Call(c.grant.ServerTime, &c.request, &want); err != nil || !reflect.DeepEqual(c.grant, want) {
			t.Fatalf("call %d: %+v\nRedis granted     %+v\nthe reference has %+v, %v", i+1, c.request, c.grant, want, err)
		}
	}
	t.Logf("%d calls replayed", len(p.calls))
}
