package redisbucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Scan sets the keys and the pace of Store.Scan. The zero value reads all keys, without a pause.
type Scan struct {
	// Of is the prefix of the keys to read, as "@login:" for the Limiter of that name; "" for all.
	Of string
	// Count is the approximate number of keys that one command looks at. 0 means 512.
	Count int
	// PerSecond is the most keys to look at in a second, foreign ones included. 0 means no limit.
	PerSecond int
	// Progress, if not nil, is called with the number of keys looked at so far, and of all.
	Progress func(done, of int64)
}

// Reading holds the counters that Store.Scan reads from a bucket, or from one holder's record.
type Reading struct {
	Key    string    // or its hash, see lease.ShortKey
	Holder string    // of a record; "" of a bucket
	At     time.Time // when it was read, by this machine's clock

	Created, Epoch, Counter, Spent, Denied int64 // of a bucket, as lease.State says
	// Of a record, as Holder says, if its lease has not ended by the server's clock. That is not the bucket's own
	// time where the clock has stepped back, and the bucket may be another one: Look knows.
	Held, Weight, Waiting int64

	Err error // the text is no bucket of this version
}

// Scan reads the counters of all buckets and calls each with them, one after the other. It sends commands
// that read a few keys each (SCAN, GETRANGE, DBSIZE, TIME): a read-only user or a replica is enough. In a
// cluster it reads all masters. Scan may report a key twice, and may miss a key that comes or goes meanwhile.
func (s *Store) Scan(ctx context.Context, o Scan, each func(Reading)) error {
	if o.Count <= 0 {
		o.Count = scanCount
	}
	nodes, err := s.readers(ctx)
	if err != nil {
		return named(err)
	}
	w := &walk{Store: s, Scan: o, each: each, begun: time.Now()}
	for _, rdb := range nodes {
		n, err := rdb.DBSize(ctx).Result()
		if err != nil {
			return named(err)
		}
		w.size += n
	}
	for _, rdb := range nodes {
		if err := w.node(ctx, rdb); err != nil {
			return named(err)
		}
	}
	return nil
}

func (s *Store) readers(ctx context.Context) (all []redis.UniversalClient, err error) {
	var mu sync.Mutex
	add := func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, c)
		return nil
	}
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, add)
		return all, err
	}
	return []redis.UniversalClient{s.rdb}, nil
}

type walk struct {
	*Store
	Scan
	each       func(Reading)
	begun      time.Time
	done, size int64
}

func (w *walk) node(ctx context.Context, rdb redis.UniversalClient) error {
	clock, err := w.clock(ctx, rdb)
	if err != nil {
		return err
	}
	asked := time.Now()
	pattern := literal(w.bucketKey(w.Of))
	pattern = pattern[:len(pattern)-len("}")] + "*"
	if w.Of == "" {
		pattern = literal(w.prefix+"{") + "*"
	}
	for cursor := uint64(0); ; {
		var names []string
		names, cursor, err = rdb.Scan(ctx, cursor, pattern, int64(w.Count)).Result()
		if err == nil {
			err = w.read(ctx, rdb, names, clock+time.Since(asked).Microseconds())
		}
		if err != nil || cursor == 0 {
			return err
		}
		w.done += max(int64(w.Count), int64(len(names)))
		if w.Progress != nil {
			w.Progress(min(w.done, w.size), w.size)
		}
		if err = w.pause(ctx); err != nil {
			return err
		}
	}
}

// pause waits until PerSecond allows to look at more.
func (w *walk) pause(ctx context.Context) error {
	if w.PerSecond <= 0 {
		return ctx.Err()
	}
	due := time.Duration(float64(w.done) / float64(w.PerSecond) * float64(time.Second))
	select {
	case <-time.After(due - time.Since(w.begun)):
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read tells what names hold when the server's clock says clock.
func (w *walk) read(ctx context.Context, rdb redis.UniversalClient, names []string, clock int64) error {
	type one struct {
		Reading
		text *redis.StringCmd
	}
	var all []one
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			if key, holder, ok := w.userKey(name); ok {
				all = append(all, one{Reading{Key: key, Holder: holder}, p.GetRange(ctx, name, 0, int64(readSize-1))})
			}
		}
		return nil
	})
	if answer := redis.Error(nil); err != nil && !errors.As(err, &answer) {
		return err
	}
	at := time.Now()
	for _, r := range all {
		text, err := r.text.Result()
		ends := int64(0)
		switch {
		case err == nil && text == "", redis.HasErrorPrefix(err, "MOVED"), redis.HasErrorPrefix(err, "ASK"):
			continue // it has gone
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			r.Err = err
		case err != nil:
			return err
		default:
			ends = r.parse(text)
		}
		r.At = at
		if r.Holder == "" || r.Err != nil || ends > clock {
			w.each(r.Reading)
		}
	}
	return nil
}

// readSize is how many bytes of a bucket, or of a record, a scan reads: all but the charges of windows.
var readSize = layoutMark + bucketSize(formDated-1+formDated+formUsed+formPast)

// parse reads the beginning of a bucket, or of a record if there is a holder. ends is when the
// record's lease ends, in the bucket's running time.
func (r *Reading) parse(text string) (ends int64) {
	rest, form, err := ofLayout(text)
	if size := bucketSize(form); err == nil && r.Holder == "" && len(rest) < size ||
		r.Holder != "" && len(rest) != recordSize {
		err = cmp.Or(err, fmt.Errorf("%w: the length is %d bytes", errLayout, len(rest)))
	}
	if r.Err = err; err != nil {
		return 0
	}
	in := reader{left: rest}
	if r.Holder != "" {
		r.Created, r.Epoch = in.time(wholeMax), in.time(wholeMax)
		in.whole(7) // seq
		ends, r.Held, r.Weight = in.time(wholeMax), in.number(7, 0, wholeMax), in.whole(4)
		r.Waiting = in.number(7, 0, wholeMax)
		r.Err = in.err
		return ends
	}
	r.Epoch, r.Counter = in.number(7, 1, lease.WaitingMax), in.whole(6)
	in.whole(7) // now
	in.whole(4) // ttl
	r.Created, r.Spent, r.Denied = r.Epoch, in.whole(6), in.whole(6)
	if form&formPast != 0 {
		limits := int(form%formDated) + 1
		in.left = rest[bucketSize(form)-configSize(limits)-owedSize*limits-pastSize:]
		r.Created = in.time(wholeMax)
	}
	r.Err = in.err
	return 0
}
