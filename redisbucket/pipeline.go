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

// run sends the scripts `all` to node n as one pipeline, and tells calls when a connection is being opened.
// `earlier` is the time from the start of Exchange to run. If ctx ends, or no connection can be opened, run
// calls gone with the reason at once, and returns errGone later. run uses the caller's goroutine, because a
// new one costs more than a call. `before` is the part of run's time that was no round trip.
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
			return ended // the replies report only the end of p.ctx; conduct adds the cause
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

// await calls run on a new goroutine, and returns as soon as run returns or calls gone.
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

// apart runs f on a goroutine of its own, and returns the error of f or of gone, whichever comes first.
func apart(f func(gone func(error)) error) error {
	result := make(chan error, 2) // the result of f, or the error that f passed to gone
	go func() { result <- f(func(err error) { result <- err }) }()
	return <-result
}

// reload makes a cluster client look up the owners of the slots again, after an error that a failover may
// have caused. reload returns at once; go-redis limits the rate of lookups.
func (s *Store) reload() {
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// The states of a pipeline. A pipeline leaves the state waiting once, for sent or for withdrawn.
const (
	waiting   int32 = iota // no command is written yet
	sent                   // a command is written, so any command may be executed
	withdrawn              // no command is or will be written
)

// pipeline is one transmission, from the call of the Redis client to the replies. A pipeline records when its
// commands were written, or why they were not. Each command has a payload, which the client encodes while it
// writes. A hook watches dials, because go-redis dials five times before it returns an error.
type pipeline struct {
	ctx     context.Context // ends when the last caller has stopped waiting
	giveUp  context.CancelCauseFunc
	node    *node         // nil while the client asks any node for the slots of a cluster
	calls   []*lease.Call // the calls that get the reason why they wait
	state   atomic.Int32
	earlier time.Duration // time from the start of Exchange to begun
	begun   time.Time
	written atomic.Int64 // when the last command was written, in nanoseconds after begun
	all     int64        // number of commands
	writes  atomic.Int64 // number of commands written, including repeated ones
	refusal atomic.Int64 // nanoseconds of the round trip that ended with NOSCRIPT; 0 for none

	ending sync.Mutex // guards ended
	ended  bool       // the callers have an answer, or conduct is passing on an answer

	connecting atomic.Bool           // a dial was under way while the pipeline waited
	failed     atomic.Pointer[error] // the error of the first dial that failed
}

// newPipeline begins a pipeline to n, which gets reports of dials until conduct ends.
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

// conduct runs f, which sends pipeline p, and returns the result of f. If p.ctx ends first, conduct calls
// gone with the reason, from another goroutine, and returns errGone once f has returned too.
func (s *Store) conduct(p *pipeline, f func() error, gone func(error)) error {
	defer p.giveUp(nil)
	end := func(answer func()) bool {
		p.ending.Lock() // held while gone runs: conduct returns after gone
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

// why returns err, or the cause of the end of p.ctx if err reports that end.
func (p *pipeline) why(err error) error {
	if ended := p.ctx.Err(); ended != nil && errors.Is(err, ended) {
		err = context.Cause(p.ctx)
		if dial := p.failed.Load(); dial != nil && !errors.Is(err, *dial) {
			err = fmt.Errorf("%w: %w", err, *dial)
		}
	}
	return err
}

// pipeline runs f, which sends a pipeline to n, on a goroutine of its own. pipeline returns the error of f,
// or the reason why it did not wait for f.
func (s *Store) pipeline(
	ctx context.Context, n *node, calls []*lease.Call, f func(*pipeline) error,
) (*pipeline, error) {
	p := s.newPipeline(ctx, n, calls, 0)
	return p, apart(func(gone func(error)) error {
		return s.conduct(p, func() error { return f(p) }, gone)
	})
}

// leave ends the reports of dials to p, so that p's calls do not change any more.
func (s *Store) leave(p *pipeline) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pipelines, p)
	if p.connecting.Load() && p.node != nil && p.node.opening > 0 {
		p.node.opening-- // a new connection counts as opening until a pipeline has used it
	}
}

// withdraw cancels the pipeline, and returns false if a command has been written.
func (p *pipeline) withdraw() bool {
	return p.state.CompareAndSwap(waiting, withdrawn) || p.state.Load() == withdrawn
}

// before returns the part of the time since begun that was no round trip: opening a connection, or sending
// the source of a script, for which TCP needs several round trips over a new connection. If a server did not
// know a script, the refused call counts as the round trip.
func (p *pipeline) before() time.Duration {
	if trip := time.Duration(p.refusal.Load()); trip > 0 {
		return max(0, time.Since(p.begun)-trip)
	}
	if p.connecting.Load() || p.writes.Load() > p.all {
		return time.Duration(p.written.Load())
	}
	return 0
}

var errConnecting = errors.New("connection is still being opened")

// dialing records that a connection is being opened, which p may need.
func (p *pipeline) dialing() {
	p.connecting.Store(true)
	p.tell(notSent(errConnecting))
}

// dialFailed records a failed dial, and gives p up unless p is written or may go to another node.
func (p *pipeline) dialFailed(err error) {
	p.tell(notSent(err))
	if p.node == nil {
		p.failed.CompareAndSwap(nil, &err)
	} else if p.withdraw() {
		p.failed.CompareAndSwap(nil, &err)
		p.giveUp(err)
	}
}

// tell stores in p's calls the reason why they are not sent yet, unless they are sent.
func (p *pipeline) tell(why error) {
	for _, c := range p.calls {
		c.SetUnsent(wrap(c.Key, why))
	}
	if p.state.Load() == sent {
		p.tellSent()
	}
}

func (p *pipeline) tellSent() {
	for _, c := range p.calls {
		c.SetSent(p.earlier + time.Duration(p.written.Load()))
	}
}

// refused records that a server has just refused an unknown script.
func (p *pipeline) refused() {
	p.refusal.CompareAndSwap(0, max(1, int64(time.Since(p.begun))-p.written.Load()))
}

type payload struct {
	p    *pipeline
	data []byte
}

// MarshalBinary returns the data when the client writes the payload. The client closes the connection on an
// error.
func (a *payload) MarshalBinary() ([]byte, error) {
	if !a.p.state.CompareAndSwap(waiting, sent) && a.p.state.Load() == withdrawn {
		return nil, errNotSent
	}
	a.p.written.Store(int64(time.Since(a.p.begun)))
	switch n := a.p.writes.Add(1); {
	case n == 1 && a.p.connecting.Load(), n == a.p.all+1: // n == all+1: a script is sent with its source
		a.p.tellSent()
	}
	return a.data, nil
}

// hook watches how the client opens connections to one node, and changes nothing.
type hook struct {
	s *Store
	n *node
}

// dialing counts the connections to h.n that are being opened, and calls f with each waiting pipeline.
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
