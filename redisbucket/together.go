package redisbucket

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Draws of several keys may travel in one command if one server has all the keys. Some proxies (Envoy,
// twemproxy) in front of several servers send a script to the server of its first key. That server would find
// no buckets for the other keys, and begin new ones with full bursts. So the first draws of a Store travel
// alone, until one script has found the buckets of several keys.

// foundEnough is how many further buckets scripts must have found before draws travel together. A proxy that
// sends nine of ten keys to one server still fails 999 times in 1,000.
const foundEnough = drawsMost - 1

// findTime bounds how long Exchange may go on for that search.
const findTime = time.Second

// together reports whether draws of several keys may travel in one command.
func (s *Store) together() bool { return !s.alone.Load() && s.found.Load() >= foundEnough }

// toFind returns the buckets of answered calls, if it is unknown whether draws may travel together.
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

// find looks for all buckets with one script. If that script misses some, find looks for each bucket alone: a
// missing bucket may have been evicted, or is on another server. No caller waits for the search, so it goes
// on after ctx has ended.
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
