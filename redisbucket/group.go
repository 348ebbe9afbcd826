package redisbucket

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

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
	config []byte // configuration of draws that travel together
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
// the draws of its configuration.
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

// drawsOf returns the part that takes one more draw of the given configuration.
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

// reply returns the answer to call k of p, taken from p's reply v and err.
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
		return nil, fmt.Errorf("%w: %T for %d draws", ErrReply, v, len(p.calls))
	}
	if replies[k] == nil {
		return nil, errApart
	}
	return replies[k], nil
}
