package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// tap wraps one limiter's store and notes its calls and answers. It changes nothing by itself.
// onCall may change a call before it goes out, onAnswer sees it before it is given back; they are
// called one at a time.
type tap struct {
	lease.Store
	onCall, onAnswer func(*lease.Call)

	mu sync.Mutex
	heard
	kinds   map[string]error // every kind of error since forget
	weights map[int64]int64  // active weights of grants, by call counter
}

// heard sums up a limiter's answers.
type heard struct {
	sent, failed int64 // calls since forget
	err          error // the latest since forget
	grant        lease.Grant
	mostHeld     int64 // the largest holding that any reply left the limiter with

	active int64 // the limiter's active weight: that of the last accepted grant
	least  int64 // the least active weight that it may have used since forget
}

func (h heard) answered() int64 { return h.sent - h.failed }

func newTap(s lease.Store) *tap {
	return &tap{Store: s, kinds: make(map[string]error), weights: make(map[int64]int64)}
}

// Exchange implements lease.Store.
func (s *tap) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	s.note(calls, s.call)
	s.Store.Exchange(ctx, calls, func(group []*lease.Call) {
		s.note(group, s.answer)
		done(group)
	})
}

// Ping implements lease.Pinger.
func (s *tap) Ping(ctx context.Context) error {
	if p, ok := s.Store.(lease.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

// NodeName implements lease.Router.
func (s *tap) NodeName(node int) string {
	if r, ok := s.Store.(lease.Router); ok {
		return r.NodeName(node)
	}
	return ""
}

// NodeOf implements lease.Router.
func (s *tap) NodeOf(key string) int {
	if r, ok := s.Store.(lease.Router); ok {
		return r.NodeOf(key)
	}
	return -1
}

func (s *tap) note(calls []*lease.Call, one func(*lease.Call)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range calls {
		one(c)
	}
}

// call notes a call on its way. The call names the last grant that the limiter accepted: the
// limiter may have dropped grants that the tap saw.
func (s *tap) call(c *lease.Call) {
	if s.onCall != nil {
		s.onCall(c)
	}
	s.sent++
	if active, ok := s.weights[c.Request.Counter]; ok {
		s.active = active
	}
}

func (s *tap) answer(c *lease.Call) {
	if s.onAnswer != nil {
		s.onAnswer(c)
	}
	if c.Err != nil {
		s.failed++
		s.err, s.kinds[c.Err.Error()] = c.Err, c.Err
		return
	}
	s.grant, s.weights[c.Grant.Counter] = c.Grant, c.Grant.ActiveWeight
	s.least = min(s.least, c.Grant.ActiveWeight)
	held := c.Grant.Granted - c.Grant.Waited
	if !c.Grant.Void {
		held += c.Request.Remaining
	}
	s.mostHeld = max(s.mostHeld, held)
}

// forget resets the counts, and keeps only the share in force, or the one that the limiter is about
// to accept.
func (s *tap) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := min(s.active, s.grant.ActiveWeight)
	s.heard = heard{grant: s.grant, mostHeld: s.mostHeld, active: s.active, least: least}
	clear(s.kinds)
}

func (s *tap) counts() heard {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

// heardOf reports whether any error so far was an `is` and contained says.
func (s *tap) heardOf(is error, says string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for text, err := range s.kinds {
		if errors.Is(err, is) && strings.Contains(text, says) {
			return true
		}
	}
	return false
}

// heard adds up the calls of all limiters. The error is the latest of any limiter.
func (f *fleet) heard() (sum heard) {
	for _, tap := range f.taps {
		h := tap.counts()
		sum.sent, sum.failed = sum.sent+h.sent, sum.failed+h.failed
		sum.err = cmp.Or(h.err, sum.err)
	}
	return sum
}

// awaitCalls waits until count of every limiter's calls has risen by n.
func (f *fleet) awaitCalls(what string, n int64, count func(heard) int64) {
	f.t.Helper()
	enough := make([]int64, len(f.taps))
	for i, tap := range f.taps {
		enough[i] = count(tap.counts()) + n
	}
	testkit.Eventually(f.t, what, func() bool {
		for i, tap := range f.taps {
			if count(tap.counts()) < enough[i] {
				return false
			}
		}
		return true
	})
}

// awaitLeased waits until n more tokens are leased and spent, with load on: the store serves the
// fleet. (How soon it does, and at which rate, is asserted in virtual time.)
func (f *fleet) awaitLeased(n int64) {
	f.t.Helper()
	had := f.stats()
	testkit.Eventually(f.t, fmt.Sprintf("%d tokens from the store", n), func() bool {
		s := f.stats()
		return s.Leased >= had.Leased+n && s.Admitted-s.Fallback >= had.Admitted-had.Fallback+n
	})
}

// awaitAnswers waits until n more calls of every limiter got a grant, with load on.
func (f *fleet) awaitAnswers(n int64) {
	f.t.Helper()
	f.awaitCalls("calls that are answered", n, heard.answered)
}

// wire is the way to a reference bucket, for virtual time: everything on it happens at exact
// moments.
type wire struct {
	*memory.Store
	trip func() time.Duration // a round trip

	mu sync.Mutex
	// answers a call while the store is away; nil while it is there
	down  func(ctx context.Context) error
	calls []time.Time // when each was sent
	debts int64       // reported in calls that were executed
}

func newWire(trip func() time.Duration) *wire {
	return &wire{Store: memory.New(nil), trip: trip}
}

// always returns a network whose round trips take d.
func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// refusing makes a call fail at once, as without a server.
func refusing(context.Context) error {
	return fmt.Errorf("%w: %w", lease.ErrUnavailable, lease.ErrRefused)
}

// hanging takes a call and does not answer it.
func hanging(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", lease.ErrUnavailable, ctx.Err())
}

// goDown takes the store away, with nil brings it back.
func (w *wire) goDown(how func(context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = how
}

// Exchange implements lease.Store.
func (w *wire) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	w.mu.Lock()
	down := w.down
	for _, c := range calls {
		w.calls = append(w.calls, time.Now())
		if down == nil {
			w.debts += protocol.Reported(c.Request.Late, lease.LateDebt)
		}
	}
	w.mu.Unlock()
	if down != nil {
		err := down(ctx)
		for _, c := range calls {
			c.Node, c.Grant, c.Err = 0, lease.Grant{}, err
		}
		done(calls)
		return
	}
	trip := w.trip()
	time.Sleep(trip / 2) // the network, in virtual time
	w.Store.Exchange(ctx, calls, func([]*lease.Call) {})
	time.Sleep(trip - trip/2)
	done(calls)
}

// most returns the largest number of calls that were sent within any second from `from` on.
func (w *wire) most(from time.Time) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := max(0, slices.IndexFunc(w.calls, func(at time.Time) bool { return !at.Before(from) }))
	for i := first; i < len(w.calls); i++ {
		for w.calls[first].Add(time.Second).Before(w.calls[i]) {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}
