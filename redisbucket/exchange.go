package redisbucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Exchange implements lease.Store with one pipeline, and so one round trip, for each Redis node. A slow node
// delays only its own calls. When ctx ends, Exchange calls done at once for unfinished calls, with an error
// that wraps lease.ErrUnavailable. Exchange itself returns when the Redis client does, which may be as late
// as the client's read timeout. Exchange sends a call again only if the server reports that it executed
// nothing, because the script is unknown or the slot is moving to another node.
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
	if s.slotsKnown.Load() {
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

// exchange fills Grant or Err of every call of g, and calls done. A call whose slot is moving is sent again
// until its keys are on one node or ctx ends. Draws that cannot share a command are sent again as single
// calls.
func (s *Store) exchange(ctx context.Context, g *group, done func([]*lease.Call)) {
	for _, c := range g.calls {
		c.Node = g.node.number
	}
	watching := g.calls // calls that get reports of dials; a call that is sent again keeps its error
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
					_ = again.build(s, c, s.now(), false) // c is valid
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

// Draws of several keys may share a command if one server has all the keys. A proxy in front of several
// servers (Envoy, twemproxy) sends a script to the server of the first key, which would create a new bucket
// with a full burst for each other key. So draws travel alone until scripts have found the buckets of several
// keys together.

// foundEnough is the number of buckets that scripts must find, besides the first of each script, before draws
// share a command. If a proxy sends nine of ten keys to one server, scripts find all of them with a
// probability of 0.1 %.
const foundEnough = drawsMost - 1

const findTime = time.Second

// together reports whether draws of several keys may share a command.
func (s *Store) together() bool { return !s.alone.Load() && s.found.Load() >= foundEnough }

// toFind returns the buckets of answered draws, or nil if it is known whether draws may share a command.
func (s *Store) toFind(calls []*lease.Call) (buckets []any) {
	if s.alone.Load() || s.together() {
		return nil
	}
	for _, c := range calls {
		if c.Err != nil || !c.Request.Draw || len(buckets) == drawsMost {
			continue
		}
		if bucket := any(s.bucketKey(c.Key)); !slices.Contains(buckets, bucket) {
			buckets = append(buckets, bucket)
		}
	}
	return buckets
}

// find looks for all buckets with one script. If the script misses a bucket, find looks for each bucket
// alone: the bucket may have been evicted, or may be on another server. No caller waits for find, so find
// goes on after ctx has ended.
func (s *Store) find(ctx context.Context, n *node, buckets []any) {
	if len(buckets) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findTime)
	defer cancel()
	count := func(of ...[]any) (found int, ok bool) {
		var all []*invocation
		for _, keys := range of {
			all = append(all, &invocation{s.drawsScript, keys, []any{"", "", &payload{}, "found"}})
		}
		cmds, err := s.await(ctx, s.rdb, n, all...)
		for _, c := range cmds {
			var n int
			if n, err = c.Int(); err != nil {
				break
			}
			found += n
		}
		if err != nil && redis.HasErrorPrefix(err, "CROSSSLOT") {
			s.alone.Store(true)
		}
		return found, err == nil
	}
	beside, ok := count(buckets)
	switch {
	case !ok:
	case beside == len(buckets):
		s.found.Add(int64(beside - 1))
	default:
		apart, _ := count(slices.Collect(slices.Chunk(buckets, 1))...)
		if apart > beside {
			s.alone.Store(true)
		}
	}
}

// group holds calls to one node, and the scripts that execute them. The node is nil until it is known.
type group struct {
	node    *node
	calls   []*lease.Call
	parts   []*part
	before  time.Duration // time before the round trip
	scratch []byte
}

// part holds the calls of one script: a call of lease.lua, or several draws of draws.lua.
type part struct {
	*invocation
	calls  []*lease.Call
	config []byte // the draws' configuration, if the script is draws.lua
}

func newGroup(n *node, room int) *group {
	return &group{
		node: n, calls: make([]*lease.Call, 0, room), scratch: make([]byte, 0, configSize(1)+requestSize),
	}
}

func (g *group) add(p *part) {
	g.calls, g.parts = append(g.calls, p.calls...), append(g.parts, p)
}

func (g *group) invocations() []*invocation {
	all := make([]*invocation, len(g.parts))
	for i, p := range g.parts {
		all[i] = p.invocation
	}
	return all
}

// build adds c, or returns an error if c is invalid. If together is true and draws.lua can serve c, c joins
// other draws of its configuration.
func (g *group) build(s *Store, c *lease.Call, now string, together bool) (err error) {
	r := &c.Request
	if err := r.Validate(); err != nil {
		return err
	}
	if g.scratch, err = appendConfig(g.scratch[:0], &r.Config); err != nil {
		return err
	}
	size := len(g.scratch)
	g.scratch = appendRequest(g.scratch, r)
	config, request := g.scratch[:size], g.scratch[size:]
	if together && len(r.Config.Limits) == 1 && len(request) == drawSize {
		p := g.drawsOf(s, config, now)
		g.calls, p.calls = append(g.calls, c), append(p.calls, c)
		p.keys, p.request().data = append(p.keys, s.bucketKey(c.Key)), append(p.request().data, request...)
		return nil
	}
	bucket, record := s.leaseKeys(c.Key, r.Holder)
	text := slices.Clone(g.scratch)
	g.add(&part{calls: []*lease.Call{c}, invocation: &invocation{
		sc: s.leaseScript, keys: []any{bucket, record},
		args: []any{text[:size:size], now, &payload{data: text[size:]}},
	}})
	return nil
}

// drawsMost bounds the draws of one command, and so the time for which a command blocks the server.
const drawsMost = 64

func (g *group) drawsOf(s *Store, config []byte, now string) *part {
	for _, p := range slices.Backward(g.parts) {
		if p.config != nil && len(p.calls) < drawsMost && bytes.Equal(p.config, config) {
			return p
		}
	}
	room := min(cap(g.calls)-len(g.calls), drawsMost)
	p := &part{config: slices.Clone(config), calls: make([]*lease.Call, 0, room)}
	p.invocation = &invocation{
		sc: s.drawsScript, keys: make([]any, 0, room),
		args: []any{p.config, now, &payload{data: make([]byte, 0, room*drawSize)}},
	}
	g.parts = append(g.parts, p)
	return p
}

func (g *group) fail(err error, done func([]*lease.Call)) {
	for _, c := range g.calls {
		c.Err = wrap(c.Key, err)
	}
	done(g.calls)
}

// errApart reports that a draw needs a call of its own: draws.lua has not changed its bucket.
var errApart = errors.New("draw needs a call of its own")

// reply returns the answer to call k of p. v and err are the reply to the script.
func (p *part) reply(s *Store, v any, err error, k int) (any, error) {
	switch {
	case p.config == nil:
		return v, err
	case err != nil:
		if classify(err) != errForbidden {
			return nil, err
		}
		// The server executed nothing. A server that answers CROSSSLOT takes keys of one slot only.
		if redis.HasErrorPrefix(err, "CROSSSLOT") {
			s.alone.Store(true)
		}
		return nil, errApart
	}
	replies, ok := v.([]any)
	if !ok || len(replies) != len(p.calls) {
		return nil, fmt.Errorf("%w: %T, must be an array of %d replies", ErrReply, v, len(p.calls))
	}
	if replies[k] == nil {
		return nil, errApart
	}
	return replies[k], nil
}
