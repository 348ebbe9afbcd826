package redisbucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// View describes a bucket at the time of Store.Look: the State that Store.Inspect returns, and more. The zero
// View describes a bucket that does not exist.
type View struct {
	lease.State
	Created   time.Time     // creation time by the server's clock
	Called    time.Duration // time since the last call
	Frozen    time.Duration // time until refills begin again after a loss
	Contended bool          // a recent call asked for more than the level while others held tokens
	Expiry    time.Duration // time until the bucket expires if no call comes
	Holders   []Holder      // leases that Store.Look found, sorted by ID
}

// Holder is the lease of one process, as of its last call.
type Holder struct {
	ID      string        // hybrid.Config.InstanceID and a random text
	Held    int64         // tokens held after the last call, spent or not since
	Waiting int64         // tokens for which requests waited after the last call
	Weight  int64         // hybrid.Policy.Weight of the holder
	Granted int64         // tokens granted by the last call
	Void    bool          // the last call reported a lease that the bucket did not know
	Heard   time.Duration // time since the last call
	Expiry  time.Duration // time until the lease expires if the holder makes no call
}

const scanCount = 512

// Look returns the bucket of a stored key (see KeyUse.Key) with its holders. Unlike Inspect, Look sends plain
// reads only (SCAN, GET, MGET, TIME): a read-only user or a replica is enough. Redis has no list of the
// holders, so Look scans all keys of the server, with a COUNT of 512, and reads 512 records at a time.
func (s *Store) Look(ctx context.Context, key string) (v View, err error) {
	defer func() { err = wrap(key, err) }()
	bucket := s.bucketKey(lease.ShortKey(key))
	rdb, err := s.reader(ctx, bucket)
	if err != nil {
		return v, err
	}
	text, err := rdb.Get(ctx, bucket).Result()
	if errors.Is(err, redis.Nil) {
		return v, nil
	}
	if err == nil {
		_, err = parseBucket(text)
	}
	if err != nil {
		return v, damaged(bucket, err)
	}
	var names []string
	records := recordKey(bucket, "")
	found := rdb.Scan(ctx, 0, literal(records)+"*", scanCount).Iterator()
	for found.Next(ctx) {
		names = append(names, found.Val())
	}
	if err := found.Err(); err != nil {
		return v, err
	}
	slices.Sort(names) // SCAN may return a key twice
	names = append([]string{bucket}, slices.Compact(names)...)
	var d protocol.BucketDump
	for names := range slices.Chunk(names, scanCount) {
		texts, err := rdb.MGet(ctx, names...).Result()
		if err != nil {
			return v, err
		}
		for i, name := range names {
			text, there := texts[i].(string)
			if name == bucket {
				if !there {
					return v, nil
				}
				if d, err = parseBucket(text); err != nil {
					return v, damaged(bucket, err)
				}
				d.Records = make(map[string]protocol.RecordDump)
			} else if there {
				r, of, err := parseRecord(text, &d)
				if err != nil {
					return v, damaged(name, err)
				}
				if of {
					d.Records[strings.TrimPrefix(name, records)] = r
				}
			}
		}
	}
	clock, err := s.clock(ctx, rdb)
	if err != nil {
		return v, err
	}
	return viewOf(d, clock), nil
}

// damaged adds the Redis key to err, if err reports a value that is no bucket or record.
func damaged(name string, err error) error {
	if redis.HasErrorPrefix(err, "WRONGTYPE") || errors.Is(err, errLayout) || errors.Is(err, errConfigText) {
		// not %w: err may wrap lease.ErrInvalidConfig, which blames the caller's argument
		return fmt.Errorf("%w: Redis key %.128q: %v", errDamaged, name, err)
	}
	return err
}

// viewOf returns the View of d at the server's time clock, in microseconds.
func viewOf(d protocol.BucketDump, clock int64) View {
	called := d.Clock
	d, st := d.At(clock)
	since := func(at int64) time.Duration { return time.Duration(max(0, d.Now-at)) * time.Microsecond }
	until := func(at int64) time.Duration { return time.Duration(max(0, at-d.Now)) * time.Microsecond }
	v := View{
		State: st, Created: time.UnixMicro(d.Created),
		Called: time.Duration(max(0, clock-called)) * time.Microsecond,
		Frozen: until(d.Frozen), Contended: d.ContendedUntil > d.Now, Expiry: until(d.Keep),
	}
	for id, r := range d.Records {
		v.Holders = append(v.Holders, Holder{ID: id, Held: r.Held, Waiting: r.Waiting, Weight: r.Weight,
			Granted: r.Granted, Void: r.Void, Heard: since(r.Last), Expiry: until(r.Ends)})
	}
	slices.SortFunc(v.Holders, func(a, b Holder) int { return cmp.Compare(a.ID, b.ID) })
	return v
}

// reader returns the client of the node that has redisKey, because a SCAN must go to that node.
func (s *Store) reader(ctx context.Context, redisKey string) (redis.UniversalClient, error) {
	switch rdb := s.rdb.(type) {
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, redisKey)
	case *redis.Ring:
		return rdb.GetShardClientForKey(redisKey)
	}
	return s.rdb, nil
}

// clock returns the time at which a script would execute a call now, in microseconds.
func (s *Store) clock(ctx context.Context, rdb redis.Cmdable) (int64, error) {
	if text := s.now(); text != "" {
		return strconv.ParseInt(text, 10, 64)
	}
	t, err := rdb.Time(ctx).Result()
	return t.UnixMicro(), err
}

// literal returns a SCAN pattern that matches text alone.
func literal(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}
