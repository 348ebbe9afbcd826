package hybrid_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// verdict decides the fate of one call.
type verdict struct {
	err   error         // it is not executed, and fails with this
	lost  bool          // it is executed, and no reply comes
	twice bool          // the network delivers it twice; the second reply arrives
	delay time.Duration // between execution and reply
	until chan struct{} // the reply is held back until this is closed
	late  chan struct{} // the execution is held back until this is closed
	stuck bool          // the call outlives its context, as in a client without deadlines

	foreign bool // the reply is to another call
}

// away is a store that cannot be reached.
var away = verdict{err: lease.ErrUnavailable}

// network is a Store over another, which does to each call what judge says and keeps a record.
type network struct {
	mu       sync.Mutex
	inner    lease.Store
	judge    func(c *lease.Call) verdict // nil delivers
	control  error                       // of Configure
	sizes    []int                       // of the batches so far
	calls    []sentCall
	controls int // calls of Configure
	flying   int // batches under way
}

// sentCall is the network's record of a call.
type sentCall struct {
	key string
	lease.Request
}

func (s *network) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *network) setJudge(judge func(*lease.Call) verdict) { s.locked(func() { s.judge = judge }) }

// every makes v the fate of every call from now on.
func (s *network) every(v verdict) { s.setJudge(func(*lease.Call) verdict { return v }) }

// onKeys makes v the fate of every call from now on for keys that contain part.
func (s *network) onKeys(part string, v verdict) {
	s.setJudge(func(c *lease.Call) (fate verdict) {
		if strings.Contains(c.Key, part) {
			fate = v
		}
		return fate
	})
}

// errHangs makes every Configure hang until its context ends.
var errHangs = errors.New("hangs")

// setControl makes every Configure fail with err from now on; nil executes them.
func (s *network) setControl(err error) { s.locked(func() { s.control = err }) }

func (s *network) replace(by lease.Store) { s.locked(func() { s.inner = by }) }

func (s *network) store() (store lease.Store) {
	s.locked(func() { store = s.inner })
	return store
}

// counts is how many batches and calls went out so far.
func (s *network) counts() (batches, calls int) {
	s.locked(func() { batches, calls = len(s.sizes), len(s.calls) })
	return batches, calls
}

// during is how many batches and calls went out while f ran.
func (s *network) during(f func()) (batches, calls int) {
	batchesBefore, callsBefore := s.counts()
	f()
	batches, calls = s.counts()
	return batches - batchesBefore, calls - callsBefore
}

// idle reports whether no batch is under way.
func (s *network) idle() (yes bool) {
	s.locked(func() { yes = s.flying == 0 })
	return yes
}

// last is the last call.
func (s *network) last() (r lease.Request) {
	s.locked(func() { r = s.calls[len(s.calls)-1].Request })
	return r
}

// draws says of each call for key so far whether it was a draw.
func (s *network) draws(key string) (all []bool) {
	s.locked(func() {
		for _, c := range s.calls {
			if c.key == key {
				all = append(all, c.Request.Draw)
			}
		}
	})
	return all
}

// callsFor counts the calls for key so far.
func (s *network) callsFor(key string) int { return len(s.draws(key)) }

// Exchange implements lease.Store.
func (s *network) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	s.mu.Lock()
	s.flying++
	s.sizes = append(s.sizes, len(calls))
	groups := make(map[verdict][]*lease.Call) // calls with one fate arrive together
	for _, c := range calls {
		c.Node = 0
		s.calls = append(s.calls, sentCall{c.Key, c.Request})
		var fate verdict
		if s.judge != nil {
			fate = s.judge(c)
		}
		groups[fate] = append(groups[fate], c)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for v, group := range groups {
		wg.Go(func() {
			s.deliver(ctx, v, group)
			done(group)
		})
	}
	wg.Wait()
	s.locked(func() { s.flying-- })
}

func (s *network) deliver(ctx context.Context, v verdict, group []*lease.Call) {
	wait := ctx
	if v.stuck {
		wait = context.Background()
	}
	if v.err == nil && pause(wait, v.late, 0) {
		s.store().Exchange(ctx, group, func([]*lease.Call) {})
		if v.twice {
			s.store().Exchange(ctx, group, func([]*lease.Call) {})
		}
		if v.lost {
			<-wait.Done()
		}
		if !v.lost && pause(wait, v.until, v.delay) {
			for _, c := range group {
				if v.foreign {
					c.Grant.Seq++
				}
			}
			return
		}
	}
	for _, c := range group {
		c.Grant, c.Err = lease.Grant{}, v.err
		if v.err == nil {
			c.Err = lease.ErrUnavailable
		}
	}
}

// pause waits for until, or for d; false if ctx ended first.
func pause(ctx context.Context, until chan struct{}, d time.Duration) bool {
	if until == nil && d <= 0 {
		return true
	}
	var after <-chan time.Time
	if d > 0 {
		after = time.After(d)
	}
	select {
	case <-until:
	case <-after:
	case <-ctx.Done():
		return false
	}
	return true
}

// Configure implements lease.Store.
func (s *network) Configure(
	ctx context.Context, key string, op lease.Op, c lease.Config,
) (lease.State, error) {
	var err error
	s.locked(func() {
		s.controls++
		err = s.control
	})
	if err == errHangs {
		<-ctx.Done()
		err = context.Cause(ctx)
	}
	if err != nil {
		return lease.State{}, err
	}
	return s.store().Configure(ctx, key, op, c)
}
