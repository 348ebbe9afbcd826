package redisbucket

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Exchange implements lease.Store with one pipeline, so one round trip, for each Redis node. A slow
// node delays only its own calls. When ctx ends, done is called at once for unfinished calls, with
// an error that wraps lease.ErrUnavailable, and what is answered later is dropped. Exchange itself
// returns when the client does, which may be as late as its read timeout. A call is sent again only
// where the server said that it executed nothing, because it does not know the script, or because
// the slot is on its way to another node.
func (s *Store) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	valid := newGroup(nil, len(calls))
	var invalid []*lease.Call
	now := s.now()
	for _, c := range calls {
		c.Grant, c.Err, c.Before = lease.Grant{}, nil, 0
		c.SetUnsent(nil)
		if err := valid.build(s, c, now); err != nil {
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

// group is calls and their commands, for one node once that is known. What the commands consist of
// is allocated together.
type group struct {
	node   *node
	calls  []*lease.Call
	words  [][]any       // of each call's command, see script.words
	before time.Duration // what passed before the round trip

	spareWords    []any
	spareBytes    []byte
	sparePayloads []payload
	config        []byte // the last one built, which the next call often shares
	configWord    any
}

// newGroup has room for so many calls.
func newGroup(n *node, room int) *group {
	return &group{node: n, calls: make([]*lease.Call, 0, room), words: make([][]any, 0, room)}
}

func (g *group) add(c *lease.Call, words []any) {
	g.calls, g.words = append(g.calls, c), append(g.words, words)
}

// build adds c with its call of lease.lua, unless c is not valid.
func (g *group) build(s *Store, c *lease.Call, now string) error {
	r := &c.Request
	if err := r.Validate(); err != nil {
		return err
	}
	if g.spareWords == nil {
		room := cap(g.calls)
		g.spareWords, g.sparePayloads = make([]any, 0, 8*room), make([]payload, 0, room)
		g.spareBytes = make([]byte, 0, room*requestSize+configSize(len(r.Config.Limits)))
	}
	from := len(g.spareBytes)
	text, err := appendConfig(g.spareBytes, &r.Config)
	if err != nil {
		return err
	}
	if config := text[from:]; g.config == nil || !bytes.Equal(config, g.config) {
		g.spareBytes, g.config = text, config
		g.configWord = config
	}
	from = len(g.spareBytes)
	g.spareBytes = appendRequest(g.spareBytes, r)
	g.sparePayloads = append(g.sparePayloads, payload{data: g.spareBytes[from:]})
	bucket, record := s.leaseKeys(c.Key, r.Holder)
	from = len(g.spareWords)
	g.spareWords = s.leaseScript.words(g.spareWords, 2, bucket, record, g.configWord, now,
		&g.sparePayloads[len(g.sparePayloads)-1])
	g.add(c, g.spareWords[from:])
	return nil
}

// fail is done with all calls, for one reason.
func (g *group) fail(err error, done func([]*lease.Call)) {
	for _, c := range g.calls {
		c.Err = wrap(c.Key, err)
	}
	done(g.calls)
}

// byNode splits g by the node that serves each call. Only a cluster client has several. One that
// does not know the cluster yet asks for its slots, at most until ctx ends.
func (s *Store) byNode(ctx context.Context, g *group) ([]*group, error) {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		g.node = s.node("")
		return []*group{g}, nil
	}
	masters := make([]*redis.Client, 0, len(g.calls))
	locate := func(ctx context.Context) error {
		for _, words := range g.words {
			master, err := cluster.MasterForKey(ctx, words[firstKey].(string))
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
	if s.slotsKnown.Load() { // then the client asks nobody
		err = locate(ctx)
	} else {
		var p *pipeline
		p, err = s.pipeline(ctx, nil, g.calls, func(p *pipeline) error {
			err := locate(p.ctx)
			p.written.Store(int64(time.Since(p.begun)))
			return err
		})
		before = p.before(0)
	}
	if err != nil {
		return nil, notSent(err)
	}
	s.slotsKnown.Store(true)
	var groups []*group
	of := make(map[*redis.Client]*group)
	for i, c := range g.calls {
		part := of[masters[i]]
		if part == nil {
			part = newGroup(s.nodeOf(masters[i]), len(g.calls)-i)
			part.before = before
			of[masters[i]] = part
			groups = append(groups, part)
		}
		part.add(c, g.words[i])
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
		now := g
		cmds, before, err := s.run(ctx, s.rdb, g.node, s.leaseScript, told, g.words,
			func(err error) { now.fail(err, done) })
		if errors.Is(err, errGone) {
			return
		} else if err != nil {
			g.fail(err, done)
			return
		}
		again := &group{node: g.node}
		answered := make([]*lease.Call, 0, len(g.calls))
		for i, c := range g.calls {
			v, err := cmds[i].Result()
			if err != nil && redis.HasErrorPrefix(err, "TRYAGAIN") {
				c.Err = wrap(c.Key, err)
				c.SetUnsent(c.Err)
				again.add(c, g.words[i])
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
