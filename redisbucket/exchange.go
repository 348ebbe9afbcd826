package redisbucket

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Exchange implements lease.Store with one pipeline, so one round trip, for each Redis node. A slow
// node delays only its own calls. When ctx ends, unfinished calls come back at once with an error
// that wraps lease.ErrUnavailable, whatever the client's own timeouts are, and what is answered
// later is dropped. A call is sent again only where the server said that it executed nothing,
// because it does not know the script, or because the slot is on its way to another node.
func (s *Store) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	valid := &group{calls: make([]*lease.Call, 0, len(calls)), args: make([][]any, 0, len(calls))}
	var invalid []*lease.Call
	now := s.now()
	for _, c := range calls {
		c.Grant, c.Err, c.Before = lease.Grant{}, nil, 0
		c.SetUnsent(nil)
		if args, err := s.leaseArgs(c.Key, &c.Request, now); err != nil {
			c.Err = wrap(c.Key, err)
			invalid = append(invalid, c)
		} else {
			valid.add(c, args)
		}
	}
	if len(invalid) > 0 {
		done(invalid)
	}
	if len(valid.calls) == 0 {
		return
	}
	groups, err := s.byNode(ctx, valid)
	if err != nil {
		valid.fail(err, done)
		return
	}
	var wg sync.WaitGroup
	for _, g := range groups[1:] {
		wg.Go(func() { s.exchange(ctx, g, done) })
	}
	s.exchange(ctx, groups[0], done)
	wg.Wait()
}

// group is calls and the arguments of their scripts, for one node once that is known.
type group struct {
	node   *node
	calls  []*lease.Call
	args   [][]any
	before time.Duration // what passed before the round trip
}

func (g *group) add(c *lease.Call, args []any) {
	g.calls, g.args = append(g.calls, c), append(g.args, args)
}

// fail is done with all calls, for one reason.
func (g *group) fail(err error, done func([]*lease.Call)) {
	for _, c := range g.calls {
		c.Err = wrap(c.Key, err)
	}
	done(g.calls)
}

// leaseArgs is what follows the script in a call of lease.lua.
func (s *Store) leaseArgs(key string, r *lease.Request, now string) ([]any, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	config, err := appendConfig(make([]byte, 0, configSize(len(r.Config.Limits))), &r.Config)
	if err != nil {
		return nil, err
	}
	bucket := s.bucketKey(key)
	request := appendRequest(make([]byte, 0, requestSize), r)
	return []any{2, bucket, recordKey(bucket, r.Holder), config, now, request}, nil
}

// byNode splits g by the node that serves each call. Only a cluster client has several. One that
// does not know the cluster yet asks for its slots, at most until ctx ends.
func (s *Store) byNode(ctx context.Context, g *group) ([]*group, error) {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		g.node = s.node("")
		return []*group{g}, nil
	}
	var masters []*redis.Client
	p, err := s.pipeline(ctx, nil, g.calls, func(p *pipeline) error {
		for _, a := range g.args {
			master, err := cluster.MasterForKey(p.ctx, a[1].(string))
			if err != nil {
				s.reload()
				return err
			}
			masters = append(masters, master)
		}
		p.written.Store(int64(time.Since(p.begun)))
		return nil
	})
	if err != nil {
		return nil, notSent(err)
	}
	s.slotsKnown.Store(true)
	var groups []*group
	of := make(map[*node]*group)
	for i, c := range g.calls {
		n := s.nodeOf(masters[i])
		part := of[n]
		if part == nil {
			part = &group{node: n, before: p.before(0)}
			of[n] = part
			groups = append(groups, part)
		}
		part.add(c, g.args[i])
	}
	return groups, nil
}

// tryAgain is the pause before calls are sent again whose slot is on its way to another node.
const tryAgain = 5 * time.Millisecond

// exchange fills Grant or Err of every call of g, and is done with them. While a slot is being
// moved, both nodes refuse calls whose keys are not together. Those are sent again with the same
// content until they are, or ctx ends; the others do not wait for them.
func (s *Store) exchange(ctx context.Context, g *group, done func([]*lease.Call)) {
	for _, c := range g.calls {
		c.Node = g.node.number
	}
	told := g.calls // of dials; calls that are sent again say why instead
	for {
		cmds, before, err := s.run(ctx, s.rdb, g.node, s.leaseScript, told, g.args)
		if err != nil {
			g.fail(err, done)
			return
		}
		again := &group{node: g.node}
		var answered []*lease.Call
		for i, c := range g.calls {
			v, err := cmds[i].Result()
			if redis.HasErrorPrefix(err, "TRYAGAIN") {
				c.Err = wrap(c.Key, err)
				c.SetUnsent(c.Err)
				again.add(c, g.args[i])
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
		g, told = again, nil
	}
}
