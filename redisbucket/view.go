package redisbucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// Holder describes the lease of one process, as of the last call of that process.
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
// reads only (SCAN, GET, MGET, TIME), so a read-only user or a replica is enough. Redis has no list of the
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
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, redisKey)
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

// Order names the figure by which Store.Busiest sorts keys, the largest first.
type Order string

// The orders of Store.Busiest.
const (
	BySpent   Order = "spent"
	ByDenied  Order = "denied"
	ByCalls   Order = "calls"
	ByWaiting Order = "waiting"
)

// Orders lists the valid orders.
var Orders = []Order{BySpent, ByDenied, ByCalls, ByWaiting}

// BusiestOptions select the keys that Store.Busiest reads, and bound the load and the memory of a call. The
// zero value selects the 20 keys that spend most tokens.
type BusiestOptions struct {
	Prefix   string        // prefix of the keys, such as "@login:" for the Limiter "login"; "" for all keys
	By       Order         // "" means BySpent
	Count    int           // number of keys to return; 0 means 20
	Interval time.Duration // min time between the starts of the two readings; 0 means 2 s
	// KeysPerSecond is the max number of Redis keys to look at per second, including keys of other programs:
	// 50,000 if 0, no limit if negative.
	KeysPerSecond int
	// KeysMax is the max number of buckets to count, 1,000,000 if 0. Busiest keeps the name of each bucket
	// and about 130 bytes in memory.
	KeysMax int
}

// Busiest holds the answer of Store.Busiest.
type Busiest struct {
	Keys       []KeyUse // at most Count, the busiest first
	Read       int      // number of buckets read
	LeftOut    int      // number of buckets that KeysMax left out
	Unreadable int      // values under the Store's Prefix that this version cannot read
}

// KeyUse describes the use of one key between two readings.
type KeyUse struct {
	// Key is the stored key. Package hybrid stores a key as "@" + Config.Name + ":" + key, and a long one by
	// its hash, see lease.ShortKey. A method of a Limiter takes the key without "@name:", and never a hash.
	Key string
	// New reports that the bucket has no earlier reading, or has lost calls since that reading: all rates are
	// 0.
	New    bool
	Limits []lease.Limit // limits in force; nil if the bucket has expired
	Levels []int64       // tokens in the bucket for each of Limits; negative if tokens are owed

	Spent, Denied float64 // tokens per second, as processes have reported them
	Calls         float64 // lease calls per second
	Holders       int64   // processes with a lease
	Waiting       int64   // tokens for which requests wait
}

// Busiest reads the counters of all buckets twice, and returns the busiest keys between the two readings.
//
// Each reading looks at all keys of the server, by SCAN, and sends one GETRANGE of 79 bytes per bucket and
// per lease, 512 in a pipeline. Each returned key costs one GET. At the default pace a million keys take 20
// seconds per reading, and rates are averages over these 20 seconds. Busiest writes nothing and runs no
// script: a user with the permissions +@read and +time, or a replica, is enough. In a cluster Busiest reads
// all masters. Busiest may miss a key that is created, expires or moves meanwhile.
func (s *Store) Busiest(ctx context.Context, o BusiestOptions) (Busiest, error) {
	o.By, o.Count = cmp.Or(o.By, BySpent), cmp.Or(o.Count, 20)
	o.Interval, o.KeysMax = cmp.Or(o.Interval, 2*time.Second), cmp.Or(o.KeysMax, 1_000_000)
	o.KeysPerSecond = cmp.Or(o.KeysPerSecond, 50_000)
	if !slices.Contains(Orders, o.By) || o.Count < 0 || o.Interval < 0 || o.KeysMax < 0 {
		return Busiest{}, fmt.Errorf("%w: redisbucket: By is %q, Count %d, Interval %v, KeysMax %d; By must be one "+
			"of %q, the others 0 or more", lease.ErrInvalidConfig, o.By, o.Count, o.Interval, o.KeysMax, Orders)
	}
	u := uses{keysMax: o.KeysMax, keys: map[string]*use{}}
	w := walk{Store: s, of: o.Prefix, count: scanCount, perSecond: o.KeysPerSecond, each: u.add}
	second := time.Now().Add(o.Interval)
	err := u.take(ctx, 1, w)
	if err == nil {
		err = sleep(ctx, time.Until(second))
	}
	if err == nil {
		err = u.take(ctx, 2, w)
	}
	if err != nil {
		return Busiest{}, named(err)
	}
	maps.DeleteFunc(u.keys, func(_ string, k *use) bool { return k.pass != u.pass })
	b := Busiest{Keys: u.top(o.By, o.Count), Read: len(u.keys), LeftOut: u.leftOut, Unreadable: u.unreadable}
	return b, s.levels(ctx, b.Keys)
}

type uses struct {
	keysMax             int
	keys                map[string]*use
	pass                int // 1 or 2
	leftOut, unreadable int // numbers of keys in this pass
}

// use holds the last reading of one key, and the rates since the reading before.
type use struct {
	at               time.Time
	epoch            int64
	counts           [3]int64   // spent, denied, calls
	rates            [3]float64 // per second
	isNew            bool
	pass             int // the pass of the last reading
	summed           int // the pass that counted holders and waiting
	holders, waiting int64
}

// The counters of a bucket wrap to 0 at counterEnd (lease.State).
const counterEnd = 1 << 48

func (u *uses) take(ctx context.Context, pass int, w walk) error {
	u.pass, u.leftOut, u.unreadable = pass, 0, 0
	return w.all(ctx)
}

func (u *uses) add(r reading) {
	if r.err != nil {
		u.unreadable++
		return
	}
	k := u.keys[r.key]
	if k == nil {
		if len(u.keys) >= u.keysMax {
			if r.holder == "" {
				u.leftOut++
			}
			return
		}
		k = &use{}
		u.keys[r.key] = k
	}
	if k.summed != u.pass {
		k.holders, k.waiting, k.summed = 0, 0, u.pass
	}
	switch {
	case r.holder != "":
		k.holders++
		k.waiting += r.waiting
	case k.pass != u.pass: // a scan may return a key twice
		k.count(r)
		k.pass = u.pass
	}
}

// count sets the rates of a key from two readings. A changed epoch means another bucket, or lost calls.
func (k *use) count(r reading) {
	counts, seconds := [3]int64{r.spent, r.denied, r.counter}, r.at.Sub(k.at).Seconds()
	k.isNew = k.pass == 0 || r.epoch != k.epoch || r.counter < k.counts[2] || seconds <= 0
	for i := range counts {
		k.rates[i] = 0
		if !k.isNew {
			k.rates[i] = float64((counts[i]-k.counts[i]+counterEnd)%counterEnd) / seconds
		}
	}
	k.at, k.epoch, k.counts = r.at, r.epoch, counts
}

func (u *uses) top(by Order, n int) []KeyUse {
	all := make([]KeyUse, 0, len(u.keys))
	for key, k := range u.keys {
		all = append(all, KeyUse{Key: key, New: k.isNew, Spent: k.rates[0], Denied: k.rates[1], Calls: k.rates[2],
			Holders: k.holders, Waiting: k.waiting})
	}
	figure := func(k *KeyUse) float64 {
		return map[Order]float64{BySpent: k.Spent, ByDenied: k.Denied, ByCalls: k.Calls,
			ByWaiting: float64(k.Waiting)}[by]
	}
	slices.SortFunc(all, func(a, b KeyUse) int {
		return cmp.Or(cmp.Compare(figure(&b), figure(&a)), cmp.Compare(a.Key, b.Key))
	})
	return slices.Clone(all[:min(n, len(all))])
}

// levels reads the limits and levels of keys in one pipeline. A key whose bucket has expired gets none.
func (s *Store) levels(ctx context.Context, keys []KeyUse) error {
	texts := make([]*redis.StringCmd, len(keys))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, k := range keys {
			texts[i] = p.Get(ctx, s.bucketKey(k.Key))
		}
		return nil
	})
	if answer := redis.Error(nil); err != nil && !errors.As(err, &answer) {
		return named(err)
	}
	clock, err := s.clock(ctx, s.rdb)
	if err != nil {
		return named(err)
	}
	for i, text := range texts {
		if d, err := parseBucket(text.Val()); err == nil {
			_, st := d.At(clock)
			keys[i].Limits = st.Config.Limits
			keys[i].Levels = slices.Clone(st.Levels[:len(st.Config.Limits)])
		}
	}
	return nil
}

// reading holds the counters of a bucket, or the waiting tokens of one holder's record.
type reading struct {
	key    string    // the key as stored: a long key is stored as its hash
	holder string    // holder of a record; "" for a bucket
	at     time.Time // time by this machine's clock

	epoch, counter, spent, denied int64 // counters of a bucket, as in lease.State
	waiting                       int64 // waiting tokens in a record with a lease

	err error // set if this version cannot read the value
}

type walk struct {
	*Store
	of        string // prefix of the keys
	count     int    // approximate number of keys per command
	perSecond int    // max keys to look at per second; no limit if below 1
	each      func(reading)
}

func (w walk) all(ctx context.Context) error {
	cluster, ok := w.rdb.(*redis.ClusterClient)
	if !ok {
		return w.node(ctx, w.rdb)
	}
	var one sync.Mutex // held for one master at a time, because perSecond bounds all masters together
	return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		one.Lock()
		defer one.Unlock()
		return w.node(ctx, c)
	})
}

func (w walk) node(ctx context.Context, rdb redis.UniversalClient) error {
	clock, err := w.clock(ctx, rdb)
	if err != nil {
		return err
	}
	asked := time.Now()
	pattern := literal(w.bucketKey(w.of))
	pattern = pattern[:len(pattern)-len("}")] + "*"
	if w.of == "" {
		pattern = literal(w.prefix+"{") + "*"
	}
	looked := 0
	for cursor := uint64(0); ; {
		var names []string
		names, cursor, err = rdb.Scan(ctx, cursor, pattern, int64(w.count)).Result()
		if err == nil {
			err = w.read(ctx, rdb, names, clock+time.Since(asked).Microseconds())
		}
		if err != nil || cursor == 0 {
			return err
		}
		looked += max(w.count, len(names))
		due := time.Duration(0)
		if w.perSecond > 0 {
			due = time.Duration(float64(looked)/float64(w.perSecond)*float64(time.Second)) - time.Since(asked)
		}
		if err = sleep(ctx, due); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (w walk) read(ctx context.Context, rdb redis.UniversalClient, names []string, clock int64) error {
	type one struct {
		reading
		text *redis.StringCmd
	}
	var all []one
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			if key, holder, ok := w.userKey(name); ok {
				all = append(all, one{reading{key: key, holder: holder}, p.GetRange(ctx, name, 0, readSize-1)})
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
			continue // the key has expired or moved
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			r.err = err
		case err != nil:
			return err
		default:
			ends = r.parse(text)
		}
		r.at = at
		if r.holder == "" || r.err != nil || ends > clock {
			w.each(r.reading)
		}
	}
	return nil
}

// readSize is the number of bytes that a walk reads of a value: enough for a bucket's counters, and a byte
// more than a record has.
const readSize = layoutMark + recordSize + 1

// parse reads the start of a bucket's text, or a record, whose lease ends at the running time `ends`.
func (r *reading) parse(text string) (ends int64) {
	rest, form, err := ofLayout(text)
	if size := bucketSize(form); err == nil && r.holder == "" && len(rest) < min(size, readSize-layoutMark) ||
		r.holder != "" && len(rest) != recordSize {
		err = cmp.Or(err, fmt.Errorf("%w: the length is %d bytes", errLayout, len(rest)))
	}
	if r.err = err; err != nil {
		return 0
	}
	in := reader{left: rest}
	if r.holder != "" {
		in.time(wholeMax)
		in.time(wholeMax)
		in.whole(7) // seq
		ends = in.time(wholeMax)
		in.number(7, 0, wholeMax) // held
		in.whole(4)               // weight
		r.waiting = in.number(7, 0, wholeMax)
	} else {
		r.epoch, r.counter = in.number(7, 1, lease.WaitingMax), in.whole(6)
		in.whole(7) // now
		in.whole(4) // ttl
		r.spent, r.denied = in.whole(6), in.whole(6)
	}
	r.err = in.err
	return ends
}
