package redisbucket

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// run executes sc once for each of args on n through rdb, as one pipeline. While they wait for a
// connection, calls say so. run returns when the replies are there, when ctx ends, or when no
// connection can be opened: then what was not written by that time never will be. before is the
// part of the time that was no round trip.
//
// When run returns early, the commands belong to its goroutine, which still waits for the client.
// That ends with the client's own timeouts and only then frees its place at the node.
func (s *Store) run(
	ctx context.Context, rdb redis.UniversalClient, n *node, sc *script, calls []*lease.Call, args [][]any,
) (cmds []command, before time.Duration, err error) {
	if n.slots.Acquire(ctx, 1) != nil {
		return nil, 0, &notSentError{context.Cause(ctx)}
	}
	if ctx.Err() != nil {
		n.slots.Release(1)
		return nil, 0, &notSentError{context.Cause(ctx)}
	}
	p := s.watcher.enter(n, calls)
	defer s.watcher.leave(p)
	for _, a := range args {
		at := a[0].(int) + 3 // the request comes after the keys, the configuration and the time
		if earlier, ok := a[at].(*payload); ok {
			a[at] = earlier.data
		}
		a[at] = &payload{p, a[at].([]byte)}
	}
	sendCtx, cancel := context.WithCancel(ctx)
	replies := make(chan []command, 1)
	go func() {
		defer n.slots.Release(1)
		defer cancel()
		cmds := sc.run(sendCtx, rdb, args)
		for _, c := range cmds {
			if err := c.Err(); err != nil && classify(err) <= refused {
				s.reload()
				break
			}
		}
		replies <- cmds
	}()
	if cmds, err = await(ctx, p, replies); err != nil {
		if p.state.Load() == withdrawn {
			cancel()
		}
		s.reload()
		return nil, 0, err
	}
	return cmds, p.before(len(args)), nil
}

// reload has a cluster client look again at who serves what, after a failure that a failover may
// have caused. By itself the client does so once a minute, and where a command is redirected, which
// it does not follow for commands that are sent once. It returns at once, and go-redis limits the
// rate.
func (s *Store) reload() {
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// The states of a pipeline. Each is left once, for one of the two after it.
const (
	waiting   int32 = iota // nothing is written yet
	sent                   // something is written, so all of it may be executed
	withdrawn              // nothing is written and nothing will be
)

// pipeline is one sending, from its handing over to the client until its replies. It knows three
// things that the client does not tell: whether anything has been written, when, and why not. To
// that end one argument of each command is a payload, which the client asks for its bytes as it
// writes it.
type pipeline struct {
	node    *node         // nil: any, while a cluster is asked who serves what
	calls   []*lease.Call // they are told why they wait
	state   atomic.Int32
	begun   time.Time
	written atomic.Int64 // when the last command was written, in nanoseconds after begun
	writes  atomic.Int64 // how many commands were written, repeated ones included
	failed  chan error   // the first dial that failed meanwhile

	connecting atomic.Bool // whether a connection was opened meanwhile
}

// withdraw takes the pipeline back, and returns false where some of it has been written.
func (p *pipeline) withdraw() bool { return p.state.CompareAndSwap(waiting, withdrawn) }

// before is how long it took until the last command was written, where that was not part of a round
// trip: a connection was opened, or some of the commands were sent more than once. Waiting for a
// free connection is part of the round trip.
func (p *pipeline) before(commands int) time.Duration {
	if p.connecting.Load() || p.writes.Load() > int64(commands) {
		return time.Duration(p.written.Load())
	}
	return 0
}

// tell has the calls say why they are not sent, unless they are.
func (p *pipeline) tell(why error) {
	for _, c := range p.calls {
		c.SetUnsent(wrap(c.Key, &notSentError{why}))
	}
	if p.state.Load() == sent {
		p.clear()
	}
}

// clear has the calls say that they are sent.
func (p *pipeline) clear() {
	for _, c := range p.calls {
		c.SetUnsent(nil)
	}
}

// await returns what result brings, or why nothing will come: ctx ended, or a dial failed. A
// pipeline to one node gives up at the first dial that fails, if it can still be withdrawn. A
// question to a whole cluster may be answered by another node, so it names that dial only when ctx
// ends.
func await[T any](ctx context.Context, p *pipeline, result <-chan T) (r T, err error) {
	failed := p.failed
	if p.node == nil {
		failed = nil
	}
	for {
		select {
		case r = <-result:
			return r, nil
		case err = <-failed:
			if p.withdraw() {
				return r, &notSentError{err}
			}
			failed = nil // it went over another connection
		case <-ctx.Done():
			err = context.Cause(ctx)
			select {
			case dial := <-p.failed:
				err = fmt.Errorf("%w: %w", err, dial)
			default:
			}
			if p.withdraw() {
				err = &notSentError{err}
			}
			return r, err
		}
	}
}

// payload is an argument that notes when it is written.
type payload struct {
	p    *pipeline
	data []byte
}

// MarshalBinary is what the client calls as it writes the argument. An error ends the connection,
// over which nothing has been sent yet.
func (a *payload) MarshalBinary() ([]byte, error) {
	if !a.p.state.CompareAndSwap(waiting, sent) && a.p.state.Load() == withdrawn {
		return nil, errNotSent
	}
	a.p.written.Store(int64(time.Since(a.p.begun)))
	if a.p.writes.Add(1) == 1 {
		a.p.clear()
	}
	return a.data, nil
}
