package redisbucket

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Exchange implements lease.Store with one pipeline, so one round trip, for each Redis node. A slow node
// delays only its own calls. When ctx ends, Exchange calls done at once for unfinished calls, with an error
// that wraps lease.ErrUnavailable, and drops later answers. Exchange itself returns when the Redis client
// does, which may be as late as the client's read timeout. Exchange sends a call again only if the server
// reports that it executed nothing, because the script is unknown or the slot is moving to another node.
func (s *Store) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	valid := newGroup(nil, len(calls))
	var invalid []*lease.Call
	now, together := s.now(), len(calls) > 1 && s.together()
	for _, c := range calls {
		c.Grant, c.Err, c.Before = lease.Grant{}, nil, 0
		c.SetSent(0)
		if err := valid.build(s, c, now, together); err != nil {
			c.Err = wrap(c.Key, err)
			invalid = append(invalid, c)
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

// byNode splits g by the node that serves each call. Only a cluster client has several nodes. If the client
// does not know the cluster's slots yet, byNode asks for them, at most until ctx ends.
func (s *Store) byNode(ctx context.Context, g *group) ([]*group, error) {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		g.node = s.node("")
		return []*group{g}, nil
	}
	masters := make([]*redis.Client, 0, len(g.parts))
	locate := func(ctx context.Context) error {
		for _, p := range g.parts {
			master, err := cluster.MasterForKey(ctx, p.keys[0].(string))
			if err != nil {
				s.reload()
				return err
			}
			masters = append(masters, master)
		}
		return nil
	}
	var before time.Duration
	var err error
	if s.slotsKnown.Load() { // a client that knows the slots asks no server
		err = locate(ctx)
	} else {
		var p *pipeline
		p, err = s.pipeline(ctx, nil, g.calls, func(p *pipeline) error {
			err := locate(p.ctx)
			p.written.Store(int64(time.Since(p.begun)))
			return err
		})
		before = p.before()
	}
	if err != nil {
		return nil, notSent(err)
	}
	s.slotsKnown.Store(true)
	var groups []*group
	of := make(map[*redis.Client]*group)
	for i, p := range g.parts {
		theirs := of[masters[i]]
		if theirs == nil {
			theirs = newGroup(s.nodeOf(masters[i]), len(g.parts)-i)
			theirs.before = before
			of[masters[i]] = theirs
			groups = append(groups, theirs)
		}
		theirs.add(p)
	}
	return groups, nil
}

// tryAgain is the pause before a retry of calls whose slot is moving to another node.
const tryAgain = 5 * time.Millisecond

// exchange fills Grant or Err of every call of g, and calls done. exchange sends calls again whose slot is
// moving, until their keys are on one node or ctx ends. Draws that cannot share a command are sent again too,
// each as a call of its own.
func (s *Store) exchange(ctx context.Context, g *group, done func([]*lease.Call)) {
	for _, c := range g.calls {
		c.Node = g.node.number
	}
	watching := g.calls // calls to report dials to; a call that is sent again keeps its error
	for {
		now, begun := g, time.Now()
		cmds, before, err := s.run(ctx, s.rdb, g.node, watching, g.before, g.invocations(),
			func(err error) { now.fail(err, done) })
		if errors.Is(err, errGone) {
			return
		} else if err != nil {
			g.fail(err, done)
			return
		}
		again, pause := newGroup(g.node, 0), false
		answered := make([]*lease.Call, 0, len(g.calls))
		for i, p := range g.parts {
			v, err := cmds[i].Result()
			if err != nil && redis.HasErrorPrefix(err, "TRYAGAIN") {
				for _, c := range p.calls {
					c.Err = wrap(c.Key, err)
					c.SetUnsent(c.Err)
				}
				again.add(p)
				pause = true
				continue
			}
			for k, c := range p.calls {
				v, err := p.reply(s, v, err, k)
				if errors.Is(err, errApart) {
					_ = again.build(s, c, s.now(), false) // the call was valid before
					continue
				}
				if c.Before = g.before + before; err == nil {
					c.Grant, err = decodeGrant(v, &c.Request)
				}
				c.Err = wrap(c.Key, err)
				answered = append(answered, c)
			}
		}
		left := s.toFind(answered)
		if len(answered) > 0 {
			done(answered)
		}
		s.find(ctx, g.node, left)
		if len(again.calls) == 0 {
			return
		}
		if pause {
			select {
			case <-time.After(tryAgain):
			case <-ctx.Done():
				done(again.calls)
				return
			}
		}
		again.before = g.before + time.Since(begun)
		g, watching = again, nil
	}
}
