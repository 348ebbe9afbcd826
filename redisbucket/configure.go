package redisbucket

import (
	"context"
	"fmt"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Configure implements lease.Store: it inspects, sets, sets if absent, or resets the bucket of key. c is used by
// lease.OpSet and lease.OpSetIfAbsent only. Like a lease call it is never repeated on its own, and ends with ctx.
func (s *Store) Configure(ctx context.Context, key string, op lease.Op, c lease.Config) (lease.State, error) {
	st, err := s.configure(ctx, key, op, &c)
	return st, wrap(key, err)
}

// Inspect reports the bucket of key and changes nothing; a bucket that does not exist is not created.
func (s *Store) Inspect(ctx context.Context, key string) (lease.State, error) {
	return s.Configure(ctx, lease.ShortKey(key), lease.OpInspect, lease.Config{})
}

func (s *Store) configure(ctx context.Context, key string, op lease.Op, c *lease.Config) (lease.State, error) {
	bucket := s.bucketKey(key)
	var proposal []byte
	var r lease.Request // the ttl alone
	switch op {
	case lease.OpInspect, lease.OpReset:
	case lease.OpSet, lease.OpSetIfAbsent:
		if err := c.Validate(); err != nil {
			return lease.State{}, err
		}
		text, err := appendConfig(nil, c)
		if err != nil {
			return lease.State{}, err
		}
		proposal, r.Config.TTL = text, c.TTL
	default:
		return lease.State{}, fmt.Errorf("%w: %v is not an operation", lease.ErrInvalidConfig, op)
	}
	args := []any{1, bucket, proposal, s.now(), appendRequest(nil, &r), op.String()}
	n, err := s.nodeOf(ctx, args)
	if err != nil {
		return lease.State{}, err
	}
	cmds, _, err := s.run(ctx, n, s.configureScript, nil, [][]any{args})
	if err != nil {
		return lease.State{}, err
	}
	v, err := cmds[0].Result()
	if err != nil {
		return lease.State{}, err
	}
	return decodeState(v)
}

// nodeOf is the node that serves the bucket named in args.
func (s *Store) nodeOf(ctx context.Context, args []any) (*node, error) {
	groups, err := s.group(ctx, []*lease.Call{{}}, [][]any{args})
	if err != nil {
		return nil, err
	}
	return groups[0].node, nil
}
