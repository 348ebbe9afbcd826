package redisbucket

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Draws of several keys may travel in one command if one server has all the keys. Some proxies (Envoy,
// twemproxy) in front of several servers send a script to the server of its first key. The server of the
// first key would find no buckets for the other keys, and create new buckets with full bursts. Therefore the
// first draws of a Store travel alone, until scripts have found the buckets of several keys together.

// foundEnough is the number of buckets that scripts must find, beside the first of each script, before draws
// travel together. With a proxy that sends nine of ten keys to one server, find still fails 999 times in
// 1,000.
const foundEnough = drawsMost - 1

// findTime bounds the time that Exchange spends in find.
const findTime = time.Second

// together reports whether draws of several keys may travel in one command.
func (s *Store) together() bool { return !s.alone.Load() && s.found.Load() >= foundEnough }

// toFind returns the buckets of answered draws, or nil if it is known whether draws may travel together.
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
// alone: a missing bucket may have been evicted, or may be on another server. Callers do not wait for find,
// so it continues after ctx has ended.
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
