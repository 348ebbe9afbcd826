package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Exchange implements lease.Store: one pipeline, so one round trip, per Redis node and call of Exchange. A slow node
// delays the calls of its own group only.
//
// The deadline is ctx's, and holds whatever the client's own timeouts are: when ctx ends, the unfinished calls come
// back at once with an error that wraps lease.ErrUnavailable, and what the server answers later is dropped. No
// call is ever sent twice, unless the server says that it does not know the script.
func (s *Store) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	ready, args, invalid := s.prepare(calls)
	if len(invalid) > 0 {
		done(invalid)
	}
	if len(ready) == 0 {
		return
	}
	groups, err := s.group(ctx, ready, args)
	if err != nil {
		fail(ready, err)
		done(ready)
		return
	}
	var wg sync.WaitGroup
	for _, g := range groups[1:] {
		wg.Go(func() { s.exchange(ctx, g, done) })
	}
	s.exchange(ctx, groups[0], done)
	wg.Wait()
}

// group is the calls of one Exchange that one node serves.
type group struct {
	node   *node
	calls  []*lease.Call
	args   [][]any
	before time.Duration // until it was known which node it is, where a connection had to be opened for that
}

// prepare checks every call and builds the arguments of its script; invalid ones already have their error.
func (s *Store) prepare(calls []*lease.Call) (ready []*lease.Call, args [][]any, invalid []*lease.Call) {
	ready, args = make([]*lease.Call, 0, len(calls)), make([][]any, 0, len(calls))
	now := s.now()
	for _, c := range calls {
		c.Grant, c.Err, c.Before = lease.Grant{}, nil, 0
		c.SetUnsent(nil)
		a, err := s.leaseArgs(c.Key, &c.Request, now)
		if err != nil {
			c.Err = wrap(c.Key, err)
			invalid = append(invalid, c)
			continue
		}
		ready, args = append(ready, c), append(args, a)
	}
	return ready, args, invalid
}

// leaseArgs is what follows the script in a call of lease.lua.
func (s *Store) leaseArgs(key string, r *lease.Request, now string) ([]any, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if err := r.Config.Validate(); err != nil {
		return nil, err
	}
	config, err := appendConfig(make([]byte, 0, configSize(len(r.Config.Limits))), &r.Config)
	if err != nil {
		return nil, err
	}
	bucket := s.bucketKey(key)
	return []any{2, bucket, recordKey(bucket, r.Holder), config, now, appendRequest(make([]byte, 0, requestSize), r)}, nil
}

// group sorts calls by the node that serves them. Only a cluster client has several; a cluster whose topology is
// not known yet is asked for it, at most until ctx ends.
func (s *Store) group(ctx context.Context, calls []*lease.Call, args [][]any) ([]*group, error) {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return []*group{{node: s.node(""), calls: calls, args: args}}, nil
	}
	type result struct {
		masters []*redis.Client
		err     error
	}
	found := make(chan result, 1)
	w := s.watcher.enter(nil, calls) // its dials are no round trip either
	defer s.watcher.leave(w)
	go func() {
		r := result{masters: make([]*redis.Client, len(args))}
		for i := range args {
			if r.masters[i], r.err = cluster.MasterForKey(ctx, args[i][1].(string)); r.err != nil {
				break
			}
		}
		found <- r
	}()
	var r result
	select {
	case r = <-found:
	case <-ctx.Done():
		select {
		case err := <-w.failed:
			return nil, &notSentError{err}
		default:
			return nil, ended(ctx, false)
		}
	}
	if r.err != nil {
		s.reload()
		return nil, &notSentError{r.err}
	}
	var groups []*group
	byAddr := make(map[string]*group)
	for i, c := range calls {
		addr := r.masters[i].Options().Addr
		g := byAddr[addr]
		if g == nil {
			g = &group{node: s.node(addr)}
			if w.connecting.Load() {
				g.before = time.Since(w.begun)
			}
			s.watcher.watch(g.node, r.masters[i])
			byAddr[addr] = g
			groups = append(groups, g)
		}
		g.calls, g.args = append(g.calls, c), append(g.args, args[i])
	}
	return groups, nil
}

// tryAgain is the pause before calls are sent again whose slot is on its way to another node.
const tryAgain = 5 * time.Millisecond

// exchange fills Grant or Err of every call of g, and is done with them. A call for a slot that is
// being moved is refused, on both nodes, while only some of its keys are on either: the record of a
// new holder is on none. It is sent again, with the same content, until its keys are together again
// or ctx ends; the others do not wait for it.
func (s *Store) exchange(ctx context.Context, g *group, done func([]*lease.Call)) {
	for _, c := range g.calls {
		c.Node = g.node.number
	}
	for waiting := g.calls; ; waiting = nil { // later they wait for the slot, whatever a connection does
		cmds, before, err := s.run(ctx, g.node, s.leaseScript, waiting, g.args)
		if err != nil {
			fail(g.calls, err)
			done(g.calls)
			return
		}
		again := &group{node: g.node}
		var answered []*lease.Call
		for i, c := range g.calls {
			v, err := cmds[i].Result()
			if redis.HasErrorPrefix(err, "TRYAGAIN") {
				c.Err = wrap(c.Key, err)
				c.SetUnsent(c.Err)
				again.calls, again.args = append(again.calls, c), append(again.args, g.args[i])
				continue
			}
			if c.Before = g.before + before; err == nil {
				c.Grant, err = decodeGrant(v, &c.Request)
			}
			c.Err = wrap(c.Key, err)
			answered = append(answered, c)
		}
		if len(answered) > 0 {
			done(answered)
		}
		if len(again.calls) == 0 {
			return
		}
		begun := time.Now()
		select {
		case <-time.After(tryAgain):
		case <-ctx.Done():
			done(again.calls)
			return
		}
		again.before = g.before + before + time.Since(begun)
		g = again
	}
}

// run executes sc once for each of args on n, as one pipeline, and returns when that is finished,
// ctx ends, or a connection cannot be opened. What is not yet written then never will be. Otherwise
// the commands belong to the goroutine that still waits for the client, which ends with the
// client's own timeouts and gives its place at the node back only then. before is how much of the
// time was no round trip.
func (s *Store) run(ctx context.Context, n *node, sc *script, calls []*lease.Call, args [][]any) (cmds []command, before time.Duration, err error) {
	return s.runOn(ctx, s.rdb, n, sc, calls, args)
}

// runOn is run through a client of the caller's choice.
func (s *Store) runOn(ctx context.Context, rdb redis.UniversalClient, n *node, sc *script, calls []*lease.Call, args [][]any) (cmds []command, before time.Duration, err error) {
	if err := n.slots.Acquire(ctx, 1); err != nil {
		return nil, 0, ended(ctx, false)
	}
	if ctx.Err() != nil {
		n.slots.Release(1)
		return nil, 0, ended(ctx, false)
	}
	w := s.watcher.enter(n, calls)
	for _, a := range args {
		at := a[0].(int) + 3 // the request comes after the keys, the configuration and the time
		if sentBefore, ok := a[at].(*payload); ok {
			a[at] = sentBefore.data
		}
		a[at] = &payload{w, a[at].([]byte)}
	}
	sendCtx, cancel := context.WithCancel(ctx)
	finished := make(chan []command, 1)
	go func() {
		defer n.slots.Release(1)
		defer cancel()
		cmds := guarded(sendCtx, sc, rdb, args)
		for _, c := range cmds {
			if err := c.Err(); err != nil && classify(err) <= refused {
				s.reload()
				break
			}
		}
		finished <- cmds
	}()
	defer s.watcher.leave(w)
	for failed := w.failed; ; {
		select {
		case cmds := <-finished:
			return cmds, w.before(len(args)), nil
		case err := <-failed:
			if w.withdraw() {
				cancel()
				s.reload()
				return nil, 0, &notSentError{err}
			}
			failed = nil // it went over another connection
		case <-ctx.Done():
			s.reload()
			return nil, 0, ended(ctx, !w.withdraw())
		}
	}
}

// guarded is sc.run, but that a reply which announces more elements than a slice can have, on which go-redis panics, is
// an error of these calls: this goroutine is ours, so nobody else can recover.
func guarded(ctx context.Context, sc *script, rdb redis.UniversalClient, args [][]any) (cmds []command) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		cmds = make([]command, len(args))
		for i := range cmds {
			cmds[i] = sc.bySHA(ctx, args[i])
			cmds[i].SetErr(fmt.Errorf("%w: the client panicked: %v", ErrReply, p))
		}
	}()
	return sc.run(ctx, rdb, args)
}

// reload has a cluster client look again at who serves what, after a failure that a failover may have caused. By itself
// it does so when a command is redirected, which it never comes to with commands that are sent once, and once a
// minute: keys of a replaced master were denied for 60 s. It returns at once, and go-redis limits the rate.
func (s *Store) reload() {
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

func fail(calls []*lease.Call, err error) {
	for _, c := range calls {
		c.Err = wrap(c.Key, err)
	}
}

// notSentError is an error met before anything was sent.
type notSentError struct{ err error }

func (e *notSentError) Error() string   { return e.err.Error() }
func (e *notSentError) Unwrap() []error { return []error{errNotSent, e.err} }

// Ping implements lease.Pinger: it opens a connection to every node that serves buckets and brings
// it the scripts, so that the first calls take no longer than later ones. It writes nothing, and
// needs no permission that calls do not need.
func (s *Store) Ping(ctx context.Context) error {
	var err error
	switch rdb := s.rdb.(type) {
	case *redis.ClusterClient:
		err = s.pingAll(ctx, rdb.ForEachMaster)
	case *redis.Ring:
		err = s.pingAll(ctx, rdb.ForEachShard)
	default:
		bucket := s.bucketKey("") // a proxy may want a key to see where a script goes
		err = s.ping(ctx, rdb, s.node(""), 2, bucket, recordKey(bucket, ""))
	}
	if err != nil {
		return fmt.Errorf("redisbucket: ping: %w", named(err))
	}
	return nil
}

// pingAll pings what each goes through, until ctx ends.
func (s *Store) pingAll(ctx context.Context, each func(context.Context, func(context.Context, *redis.Client) error) error) error {
	w := s.watcher.enter(nil, nil)
	defer s.watcher.leave(w)
	result := make(chan error, 1)
	go func() {
		result <- each(ctx, func(ctx context.Context, c *redis.Client) error {
			n := s.node("")
			if _, cluster := s.rdb.(*redis.ClusterClient); cluster {
				n = s.node(c.Options().Addr)
				s.watcher.watch(n, c)
			}
			return s.ping(ctx, c, n, 0)
		})
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		select {
		case err := <-w.failed:
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		default:
			return context.Cause(ctx)
		}
	}
}

// ping runs each script with a request that it refuses before it looks at a key: alone and, since
// go-redis keeps other connections for pipelines, as a pipeline too.
func (s *Store) ping(ctx context.Context, rdb redis.UniversalClient, n *node, keys ...any) error {
	for _, call := range []struct {
		sc    *script
		times int
	}{{s.leaseScript, 1}, {s.configureScript, 1}, {s.leaseScript, 2}} {
		var args [][]any
		for range call.times {
			args = append(args, append(slices.Clone(keys), "", "", []byte{}))
		}
		cmds, _, err := s.runOn(ctx, rdb, n, call.sc, nil, args)
		if err != nil {
			return err
		}
		for _, c := range cmds {
			v, err := c.Result()
			if err != nil {
				return err
			}
			if _, err = decodeGrant(v, &lease.Request{}); !errors.Is(err, lease.ErrInvalidRequest) {
				return err
			}
		}
	}
	return nil
}
