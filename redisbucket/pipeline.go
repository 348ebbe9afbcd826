package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// errGone reports that the callers have stopped waiting and know the reason.
var errGone = errors.New("all callers have stopped waiting")

// run sends the scripts of all to n through rdb, as one pipeline, and reports dials to calls, whose Exchange
// began earlier by that time. It runs on the caller's goroutine: another one would cost more than a call. If
// ctx ends first, or no connection can be opened, run calls gone with the reason at once, and returns
// errGone. before is the part of the time that was no round trip.
func (s *Store) run(
	ctx context.Context, rdb redis.UniversalClient, n *node, calls []*lease.Call, earlier time.Duration,
	all []*invocation, gone func(error),
) (cmds []command, before time.Duration, err error) {
	if n.slots.Acquire(ctx, 1) != nil {
		return nil, 0, notSent(context.Cause(ctx))
	}
	defer n.slots.Release(1)
	p := s.newPipeline(ctx, n, calls, earlier)
	p.all = int64(len(all))
	failed := func(err error) error {
		s.reload()
		if p.withdraw() {
			err = notSent(err)
		}
		return err
	}
	err = s.conduct(p, func() error {
		for _, one := range all {
			one.request().p = p
		}
		cmds = invoke(p.ctx, rdb, all, p.refused)
		if ended := p.ctx.Err(); ended != nil && p.withdraw() {
			return ended // the replies say the same, but the caller knows the cause better
		}
		for _, c := range cmds {
			if err := c.Err(); err != nil && (classify(err) == errUnknown || classify(err) == errRefused) {
				s.reload()
				break
			}
		}
		return nil
	}, func(err error) { gone(failed(err)) })
	switch {
	case err == nil:
		return cmds, p.before(), nil
	case !errors.Is(err, errGone):
		err = failed(err)
	}
	return nil, 0, err
}

// await is run for a caller that wants its answer as soon as the wait ends.
func (s *Store) await(
	ctx context.Context, rdb redis.UniversalClient, n *node, all ...*invocation,
) (cmds []command, err error) {
	var replies []command
	err = apart(func(gone func(error)) (err error) {
		replies, _, err = s.run(ctx, rdb, n, nil, 0, all, gone)
		return err
	})
	if err != nil {
		return nil, err
	}
	return replies, nil
}

// apart runs f on a goroutine of its own, and returns its result, or an error passed to gone before.
func apart(f func(gone func(error)) error) error {
	result := make(chan error, 2) // the result of f, or the error that f passed to gone
	go func() { result <- f(func(err error) { result <- err }) }()
	return <-result
}

// reload makes a cluster client look up the owners of the slots again, after an error that a failover may
// have caused. It returns at once; go-redis limits the rate of look-ups.
func (s *Store) reload() {
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// The states of a pipeline. It leaves the first once, for one of the others.
const (
	waiting   int32 = iota // nothing is written yet
	sent                   // something is written, so all of it may be executed
	withdrawn              // nothing is written and nothing will be
)

// pipeline is one transmission, from the call of the client to its replies. It records whether bytes were
// written, when, and why not. For that one argument of each command is a payload, which the client encodes as
// it writes, and a hook watches the dials: go-redis dials five times before it returns the error.
type pipeline struct {
	ctx     context.Context // ends when the last caller has stopped waiting
	giveUp  context.CancelCauseFunc
	node    *node         // nil while a cluster is asked for its slots: any node
	calls   []*lease.Call // the calls that are told why they wait
	state   atomic.Int32
	earlier time.Duration // time from the start of their Exchange to begun
	begun   time.Time
	written atomic.Int64 // when the last command was written, in nanoseconds after begun
	all     int64        // number of commands
	writes  atomic.Int64 // number of commands written, including repeated ones
	refusal atomic.Int64 // the round trip in which a server did not know a script, in nanoseconds; 0 for none

	ending sync.Mutex // guards ended
	ended  bool       // the callers have an answer or are getting one

	connecting atomic.Bool           // a connection was opened meanwhile
	failed     atomic.Pointer[error] // the first dial that failed meanwhile
}

// newPipeline begins a pipeline over connections to n, and reports dials to it until conduct ends it.
func (s *Store) newPipeline(
	ctx context.Context, n *node, calls []*lease.Call, earlier time.Duration,
) *pipeline {
	p := &pipeline{node: n, calls: calls, earlier: earlier, begun: time.Now()}
	p.ctx, p.giveUp = context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pipelines[p] = true
	if n != nil && n.opening > 0 {
		p.dialing()
	}
	return p
}

// conduct runs f, which sends the pipeline, and returns its result. If p.ctx ends first, conduct calls gone
// with the reason, from another goroutine, and returns errGone once f has returned too.
func (s *Store) conduct(p *pipeline, f func() error, gone func(error)) error {
	defer p.giveUp(nil)
	end := func(answer func()) bool {
		p.ending.Lock() // until the callers have their answers: f's caller must not overtake them
		defer p.ending.Unlock()
		if p.ended {
			return false
		}
		p.ended = true
		s.leave(p)
		answer()
		return true
	}
	stop := context.AfterFunc(p.ctx, func() { end(func() { gone(p.why(p.ctx.Err())) }) })
	err := f()
	stop()
	if !end(func() {}) {
		return errGone
	}
	return p.why(err)
}

// why returns err, unless err says only that p.ctx has ended: then it returns the cause.
func (p *pipeline) why(err error) error {
	if ended := p.ctx.Err(); ended != nil && errors.Is(err, ended) {
		err = context.Cause(p.ctx)
		if dial := p.failed.Load(); dial != nil && !errors.Is(err, *dial) {
			err = fmt.Errorf("%w: %w", err, *dial)
		}
	}
	return err
}

// pipeline runs f, which sends a pipeline over connections to n, on a goroutine of its own. It returns the
// result of f, or the reason why it did not wait for the result.
func (s *Store) pipeline(
	ctx context.Context, n *node, calls []*lease.Call, f func(*pipeline) error,
) (*pipeline, error) {
	p := s.newPipeline(ctx, n, calls, 0)
	return p, apart(func(gone func(error)) error {
		return s.conduct(p, func() error { return f(p) }, gone)
	})
}

// leave ends the reports of dials to p. Its calls do not change any more.
func (s *Store) leave(p *pipeline) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pipelines, p)
	if p.connecting.Load() && p.node != nil && p.node.opening > 0 {
		p.node.opening-- // a new connection counts as opening until a pipeline has used it
	}
}

// withdraw cancels the pipeline, and returns false if part of it has been written.
func (p *pipeline) withdraw() bool {
	return p.state.CompareAndSwap(waiting, withdrawn) || p.state.Load() == withdrawn
}

// before returns the part of the time until now that was no round trip: opening a connection, and the sending
// of a script, for which TCP needs several round trips over a new connection to a distant server. The wait
// for a free connection counts as round trip, and the refused call without the script was one.
func (p *pipeline) before() time.Duration {
	if trip := time.Duration(p.refusal.Load()); trip > 0 {
		return max(0, time.Since(p.begun)-trip)
	}
	if p.connecting.Load() || p.writes.Load() > p.all {
		return time.Duration(p.written.Load())
	}
	return 0
}

// errConnecting is the reason for a call to wait while its connection is being opened.
var errConnecting = errors.New("connection is still being opened")

// dialing records that a connection is being opened, for which p may be waiting.
func (p *pipeline) dialing() {
	p.connecting.Store(true)
	p.tell(notSent(errConnecting))
}

// dialFailed records that a connection could not be opened; p may be sent over another one.
func (p *pipeline) dialFailed(err error) {
	p.tell(notSent(err))
	if p.node == nil {
		p.failed.CompareAndSwap(nil, &err)
	} else if p.withdraw() {
		p.failed.CompareAndSwap(nil, &err)
		p.giveUp(err)
	}
}

// tell stores in the calls why they are not sent, unless they are sent.
func (p *pipeline) tell(why error) {
	for _, c := range p.calls {
		c.SetUnsent(wrap(c.Key, why))
	}
	if p.state.Load() == sent {
		p.tellSent()
	}
}

// tellSent stores in the calls that they are sent, and when. The last transmission counts.
func (p *pipeline) tellSent() {
	for _, c := range p.calls {
		c.SetSent(p.earlier + time.Duration(p.written.Load()))
	}
}

// refused records that a server has just reported that it does not know a script.
func (p *pipeline) refused() {
	p.refusal.CompareAndSwap(0, max(1, int64(time.Since(p.begun))-p.written.Load()))
}

type payload struct {
	p    *pipeline
	data []byte
}

// MarshalBinary runs when the client writes the argument. An error ends the connection.
func (a *payload) MarshalBinary() ([]byte, error) {
	if !a.p.state.CompareAndSwap(waiting, sent) && a.p.state.Load() == withdrawn {
		return nil, errNotSent
	}
	a.p.written.Store(int64(time.Since(a.p.begun)))
	switch n := a.p.writes.Add(1); {
	case n == 1 && a.p.connecting.Load(), n == a.p.all+1: // the commands are sent again, with their script
		a.p.tellSent()
	}
	return a.data, nil
}

// hook watches how the client opens connections to one node, and changes nothing.
type hook struct {
	s *Store
	n *node
}

// dialing counts the connections to n that are being opened, and calls f with the pipelines that wait.
func (h hook) dialing(delta int, f func(*pipeline)) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.n.opening = max(0, h.n.opening+delta)
	for p := range h.s.pipelines {
		if (p.node == nil || p.node == h.n) && p.state.Load() == waiting {
			f(p)
		}
	}
}

func (h hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		h.dialing(1, (*pipeline).dialing)
		conn, err := next(ctx, network, addr)
		if err != nil {
			h.dialing(-1, func(p *pipeline) { p.dialFailed(err) })
		}
		return conn, err
	}
}

func (hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
