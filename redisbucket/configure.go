package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Configure implements lease.Store: it executes op on the bucket of key. lease.OpInspect and lease.OpReset do
// not use c. Configure never repeats its command, and returns at the latest when ctx ends.
func (s *Store) Configure(
	ctx context.Context, key string, op lease.Op, c lease.Config,
) (st lease.State, err error) {
	defer func() { err = wrap(key, err) }()
	var proposal []byte
	var r lease.Request // the script reads only the TTL of a request
	switch op {
	case lease.OpInspect, lease.OpReset:
	case lease.OpSet, lease.OpReplace, lease.OpClear:
		if proposal, err = appendConfig(nil, &c); err != nil {
			return st, err
		}
		r.Config.TTL = c.TTL
	default:
		return st, fmt.Errorf("%w: %v is not an operation", lease.ErrInvalidConfig, op)
	}
	one := newGroup(nil, 1)
	one.add(&part{calls: []*lease.Call{{Key: key}}, invocation: &invocation{
		sc: s.configureScript, keys: []any{s.bucketKey(key)},
		args: []any{proposal, s.now(), &payload{data: appendRequest(nil, &r)}, op.String()},
	}})
	groups, err := s.byNode(ctx, one)
	if err != nil {
		return st, err
	}
	cmds, err := s.await(ctx, s.rdb, groups[0].node, one.invocations()...)
	if err != nil {
		return st, err
	}
	v, err := cmds[0].Result()
	if err != nil {
		return st, err
	}
	return decodeState(v)
}

// Inspect returns the state of the bucket of key. Inspect changes nothing and creates no bucket.
func (s *Store) Inspect(ctx context.Context, key string) (lease.State, error) {
	return s.Configure(ctx, lease.ShortKey(key), lease.OpInspect, lease.Config{})
}

// Ping implements lease.Pinger: it opens a connection to every node that serves buckets, runs the scripts
// there and tries a write, which a replica or a server without free memory refuses. Ping changes nothing and
// needs only the permissions of lease calls.
func (s *Store) Ping(ctx context.Context) error {
	var err error
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		_, err = s.pipeline(ctx, nil, nil, func(p *pipeline) error {
			return cluster.ForEachMaster(p.ctx, func(ctx context.Context, c *redis.Client) error {
				return s.ping(ctx, c, s.nodeOf(c), s.keyOn(ctx, cluster, c))
			})
		}) // notSent must not wrap err: some nodes may have answered
	} else {
		err = s.ping(ctx, s.rdb, s.node(""), s.bucketKey(""))
	}
	if err != nil {
		return fmt.Errorf("redisbucket: ping: %w", named(err))
	}
	return nil
}

// keyOn returns the key of a bucket that the master c serves, or "" if c serves no slots.
func (s *Store) keyOn(ctx context.Context, cluster *redis.ClusterClient, c *redis.Client) string {
	for i := range 1 << 14 { // the number of slots
		key := s.bucketKey(strconv.Itoa(i))
		if m, err := cluster.MasterForKey(ctx, key); err == nil && m.Options().Addr == c.Options().Addr {
			return key
		}
	}
	return ""
}

// ping runs each script with a request that the script refuses before it reads a key. ping runs scripts alone
// and in a pipeline, because go-redis may use other connections for pipelines. At last ping tries a write to
// the slot of bucket. If bucket is "", ping does nothing.
func (s *Store) ping(ctx context.Context, rdb redis.UniversalClient, n *node, bucket string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("node %s: %w", s.NodeName(n.number), err)
		}
	}()
	if bucket == "" {
		return nil
	}
	keys := []any{bucket, recordKey(bucket, "")} // a proxy may need a key to route a script
	pipelines := [][]*script{{s.leaseScript}, {s.configureScript}, {s.leaseScript, s.leaseScript}}
	if !s.alone.Load() {
		pipelines = append(pipelines, []*script{s.drawsScript})
	}
	for _, scripts := range pipelines {
		var all []*invocation
		for _, sc := range scripts {
			all = append(all, &invocation{sc, keys, []any{"", "", &payload{}}})
		}
		cmds, err := s.await(ctx, rdb, n, all...)
		if err != nil {
			return err
		}
		for _, c := range cmds {
			v, err := c.Result()
			if err == nil {
				_, err = decodeGrant(v, &lease.Request{})
			}
			if !errors.Is(err, lease.ErrInvalidRequest) {
				return err
			}
		}
	}
	// No script has written so far. A server that refuses writes refuses SETXX; others find no key.
	if err := rdb.SetXX(ctx, recordKey(bucket, ""), "", time.Millisecond).Err(); !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}
