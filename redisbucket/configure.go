package redisbucket

import (
	"context"
	"fmt"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Configure implements lease.Store: it inspects, sets, sets if absent, or resets the bucket of key.
// Only lease.OpSet and lease.OpSetIfAbsent use c. Like a lease call it is never repeated on its
// own, and ends with ctx.
func (s *Store) Configure(ctx context.Context, key string, op lease.Op, c lease.Config) (lease.State, error) {
	st, err := s.configure(ctx, key, op, &c)
	return st, wrap(key, err)
}

// Inspect reports the bucket of key and changes nothing. It does not create one.
func (s *Store) Inspect(ctx context.Context, key string) (lease.State, error) {
	return s.Configure(ctx, lease.ShortKey(key), lease.OpInspect, lease.Config{})
}

func (s *Store) configure(
	ctx context.Context, key string, op lease.Op, c *lease.Config,
) (lease.State, error) {
	var proposal []byte
	var r lease.Request // of which the script reads the ttl
	switch op {
	case lease.OpInspect, lease.OpReset:
	case lease.OpSet, lease.OpSetIfAbsent:
		if err := c.Validate(); err != nil {
			return lease.State{}, err
		}
		var err error
		if proposal, err = appendConfig(nil, c); err != nil {
			return lease.State{}, err
		}
		r.Config.TTL = c.TTL
	default:
		return lease.State{}, fmt.Errorf("%w: %v is not an operation", lease.ErrInvalidConfig, op)
	}
	one, request := &group{}, appendRequest(nil, &r)
	one.add(&lease.Call{Key: key}, []any{1, s.bucketKey(key), proposal, s.now(), request, op.String()})
	groups, err := s.byNode(ctx, one)
	if err != nil {
		return lease.State{}, err
	}
	cmds, _, err := s.run(ctx, s.rdb, groups[0].node, s.configureScript, nil, one.args)
	if err != nil {
		return lease.State{}, err
	}
	v, err := cmds[0].Result()
	if err != nil {
		return lease.State{}, err
	}
	return decodeState(v)
}
