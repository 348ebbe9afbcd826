package redisbucket

import (
	"context"
	"fmt"
	"sync"

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
		wg.Go(func() { s.exchange(ctx, g); done(g.calls) })
	}
	s.exchange(ctx, groups[0])
	done(groups[0].calls)
	wg.Wait()
}

// group is the calls of one Exchange that one node serves.
type group struct {
	node  *node
	calls []*lease.Call
	args  [][]any
}

// prepare checks every call and builds the arguments of its script; invalid ones already have their error.
func (s *Store) prepare(calls []*lease.Call) (ready []*lease.Call, args [][]any, invalid []*lease.Call) {
	ready, args = make([]*lease.Call, 0, len(calls)), make([][]any, 0, len(calls))
	now := s.now()
	for _, c := range calls {
		c.Grant, c.Err = lease.Grant{}, nil
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
		addrs []string
		err   error
	}
	found := make(chan result, 1)
	go func() {
		r := result{addrs: make([]string, len(args))}
		for i := range args {
			master, err := cluster.MasterForKey(ctx, args[i][1].(string))
			if err != nil {
				r.err = err
				break
			}
			r.addrs[i] = master.Options().Addr
		}
		found <- r
	}()
	var r result
	select {
	case r = <-found:
	case <-ctx.Done():
		return nil, ended(ctx, false)
	}
	if r.err != nil {
		s.reload()
		return nil, &notSentError{r.err}
	}
	var groups []*group
	byAddr := make(map[string]*group)
	for i, c := range calls {
		g := byAddr[r.addrs[i]]
		if g == nil {
			g = &group{node: s.node(r.addrs[i])}
			byAddr[r.addrs[i]] = g
			groups = append(groups, g)
		}
		g.calls, g.args = append(g.calls, c), append(g.args, args[i])
	}
	return groups, nil
}

// exchange fills Grant or Err of every call of g.
func (s *Store) exchange(ctx context.Context, g *group) {
	for _, c := range g.calls {
		c.Node = g.node.number
	}
	cmds, err := s.run(ctx, g.node, s.leaseScript, g.args)
	if err != nil {
		fail(g.calls, err)
		return
	}
	for i, c := range g.calls {
		v, err := cmds[i].Result()
		if err == nil {
			c.Grant, err = decodeGrant(v, &c.Request)
		}
		c.Err = wrap(c.Key, err)
	}
}

// run executes sc once for each of args on n, as one pipeline, and returns when that is finished or ctx ends. In the
// latter case the commands belong to the goroutine that still waits for the client, which ends with the client's
// own timeouts and gives its place at the node back only then.
func (s *Store) run(ctx context.Context, n *node, sc *script, args [][]any) ([]command, error) {
	if err := n.slots.Acquire(ctx, 1); err != nil {
		return nil, ended(ctx, false)
	}
	if ctx.Err() != nil {
		n.slots.Release(1)
		return nil, ended(ctx, false)
	}
	finished := make(chan []command, 1)
	go func() {
		defer n.slots.Release(1)
		cmds := guarded(ctx, sc, s.rdb, args)
		for _, c := range cmds {
			if err := c.Err(); err != nil && classify(err) <= refused {
				s.reload()
				break
			}
		}
		finished <- cmds
	}()
	select {
	case cmds := <-finished:
		return cmds, nil
	case <-ctx.Done():
		s.reload()
		return nil, ended(ctx, true)
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
