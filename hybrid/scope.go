package hybrid

import (
	"context"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// processStore is the Store of a Limiter with ScopeProcess. Local buckets in memory decide requests, and
// adopt the limits that were set in the remote store.
type processStore struct {
	cfg      *Config
	ctx      context.Context // canceled by Close
	observer *observer
	remote   lease.Store
	local    *memory.Store

	askSlots *semaphore.Weighted // bounds the concurrent reads of the remote store

	mu      sync.Mutex
	heard   map[string]heardLimits
	sweepAt int // size of heard that starts the next sweep of heard
}

// heardLimits is the last answer of the remote store about a key's bucket.
type heardLimits struct {
	askAt   clock.Instant // earliest time of the next read
	epoch   int64         // epoch in the last answer
	version lease.Version
}

// asksMax bounds the concurrent reads of the remote store.
const asksMax = 16

var (
	_ lease.Store  = (*processStore)(nil)
	_ lease.Pinger = (*processStore)(nil)
)

func newProcessStore(ctx context.Context, cfg *Config, o *observer, remote lease.Store) *processStore {
	return &processStore{
		cfg: cfg, ctx: ctx, observer: o, remote: remote, local: memory.New(cfg.Clock),
		askSlots: semaphore.NewWeighted(asksMax), heard: make(map[string]heardLimits), sweepAt: 1024,
	}
}

// Exchange implements lease.Store.
func (s *processStore) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	s.local.Exchange(ctx, calls, func([]*lease.Call) {})
	for _, c := range calls {
		if c.Err == nil && s.claimAsk(c) {
			key, e := c.Key, c.Owner.(*entry) // with ScopeProcess only entries make calls
			go func() {
				defer s.askSlots.Release(1)
				if st, err := s.ask(s.ctx, key); err != nil {
					s.complain(e.name(), err)
				} else if changed, err := s.adopt(key, st); err == nil && changed {
					e.bucketChanged(st.Config.Limits)
				}
			}()
		}
	}
	done(calls)
}

// claimAsk reports whether the caller is to read the limits of c's key from the remote store now.
func (s *processStore) claimAsk(c *lease.Call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Clock.Now()
	h := s.heard[c.Key]
	if now < h.askAt || !s.askSlots.TryAcquire(1) {
		return false
	}
	h.askAt = now.Add(c.Grant.Config.TTL)
	s.noteLocked(c.Key, h)
	return true
}

// noteLocked stores h. When the answers have doubled, noteLocked drops those of keys out of use.
func (s *processStore) noteLocked(key string, h heardLimits) {
	s.heard[key] = h
	if len(s.heard) >= s.sweepAt {
		now := s.cfg.Clock.Now()
		maps.DeleteFunc(s.heard, func(_ string, h heardLimits) bool { return now >= h.askAt })
		s.sweepAt = 2*len(s.heard) + 1024
	}
}

func (s *processStore) ask(ctx context.Context, key string) (lease.State, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.cfg.Clock.AfterFunc(s.cfg.CallTimeout, func() { cancel(errOverdue) }).Stop()
	return s.remote.Configure(ctx, key, lease.OpInspect, lease.Config{})
}

func (s *processStore) complain(key string, err error) {
	if s.ctx.Err() == nil {
		s.observer.warnSeldom(lineNotFollowed, key,
			"hybrid: cannot read the limits set for a key; keeping the last known ones",
			"error", safetext.Error(err))
	}
}

// adopt copies limits that were set in the remote store to the local bucket; st is the remote bucket's state.
// adopt ignores a state older than the last one.
func (s *processStore) adopt(key string, st lease.State) (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := st.Config.Version
	h := s.heard[key]
	overtaken := st.Epoch < h.epoch || st.Epoch == h.epoch && protocol.Wins(h.version, v)
	if !st.Exists || overtaken {
		return false, nil
	}
	h.epoch, h.version = st.Epoch, v
	s.noteLocked(key, h)
	ctx, op := context.Background(), lease.OpSet // the local store needs no deadline
	have, err := s.local.Configure(ctx, key, lease.OpInspect, lease.Config{})
	switch own := s.cfg.Version; {
	case err != nil || v.Deploy < own:
		return false, err
	case v.Deploy == own && !protocol.IsSet(v): // no limits are set: the process's proposal is in force
		op = lease.OpClear
	case have.Exists && sameBucket(have.Config, st.Config):
		return false, nil
	}
	c := st.Config
	c.TTL = max(c.TTL, have.Config.TTL) // a TTL that shrinks and grows again would burn leases
	after, err := s.local.Configure(ctx, key, op, c)
	return after.Changed, err
}

// sameBucket reports whether the configurations c and o make a bucket behave alike.
func sameBucket(c, o lease.Config) bool {
	return slices.EqualFunc(c.Limits, o.Limits, Limit.Equal) && c.Overcommit == o.Overcommit &&
		c.Target == o.Target && c.StartEmpty == o.StartEmpty
}

// Configure implements lease.Store. For OpInspect the local bucket first adopts the remote limits.
func (s *processStore) Configure(
	ctx context.Context, key string, op lease.Op, c lease.Config,
) (st lease.State, err error) {
	switch op {
	case lease.OpInspect:
		if remote, err := s.ask(ctx, key); err == nil {
			if _, err = s.adopt(key, remote); err != nil {
				return st, err
			}
		}
		if ctx.Err() != nil {
			return lease.State{}, ctx.Err()
		}
		return s.local.Configure(ctx, key, op, c)
	case lease.OpReset:
		return s.local.Configure(ctx, key, op, c)
	}
	if st, err = s.remote.Configure(ctx, key, op, c); err != nil {
		return st, err
	}
	if op >= lease.OpReplace {
		_, err = s.local.Configure(ctx, key, op, c)
	}
	if err == nil {
		_, err = s.adopt(key, st)
	}
	return st, err
}

// Ping implements lease.Pinger.
func (s *processStore) Ping(ctx context.Context) error {
	if p, ok := s.remote.(lease.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}
