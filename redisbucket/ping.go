package redisbucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Ping implements lease.Pinger: it opens a connection to every node that serves buckets and brings
// it the scripts, so that the first calls take no longer than later ones. It writes nothing, and
// needs no permission that calls do not need.
func (s *Store) Ping(ctx context.Context) error {
	var err error
	switch rdb := s.rdb.(type) {
	case *redis.ClusterClient:
		err = s.pingEach(ctx, rdb.ForEachMaster)
	case *redis.Ring:
		err = s.pingEach(ctx, rdb.ForEachShard)
	default:
		bucket := s.bucketKey("") // a proxy may want a key to see where a script goes
		err = s.ping(ctx, rdb, s.node(""), 2, bucket, recordKey(bucket, ""))
	}
	if err != nil {
		return fmt.Errorf("redisbucket: ping: %w", named(err))
	}
	return nil
}

// pingEach pings every node that forEach visits, until ctx ends.
func (s *Store) pingEach(
	ctx context.Context, forEach func(context.Context, func(context.Context, *redis.Client) error) error,
) error {
	p := s.watcher.enter(nil, nil)
	defer s.watcher.leave(p)
	result := make(chan error, 1)
	go func() {
		result <- forEach(ctx, func(ctx context.Context, c *redis.Client) error {
			n := s.node("")
			if _, cluster := s.rdb.(*redis.ClusterClient); cluster {
				n = s.node(c.Options().Addr)
				s.watcher.watch(n, c)
			}
			return s.ping(ctx, c, n, 0)
		})
	}()
	answer, err := await(ctx, p, result)
	var notSent *notSentError
	if errors.As(err, &notSent) {
		return notSent.err // some nodes may have answered
	}
	return cmp.Or(err, answer)
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
		cmds, _, err := s.run(ctx, rdb, n, call.sc, nil, args)
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
