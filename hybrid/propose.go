package hybrid

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/lease"
)

// proposal is what this process proposes for one key, or why it cannot.
type proposal struct {
	config lease.Config
	err    error
}

// proposal is the configuration that this process proposes for key, which may come by k: with the
// limits that k was given, or else with those of LimitsFor or of Config.
func (l *Limiter) proposal(key string, k *Key) (lease.Config, error) {
	if own := k.given(); own != nil {
		return own.config, own.err
	}
	if l.cfg.LimitsFor == nil {
		return l.defaults, nil
	}
	limits := l.cfg.LimitsFor(key)
	if limits == nil && len(l.cfg.Limits) > 0 {
		return l.defaults, nil
	}
	p := l.propose("LimitsFor", limits)
	if p.err != nil {
		l.refuseLimits(key, p.err)
	}
	return p.config, p.err
}

// sharedMax bounds how many configurations are kept to be shared.
const sharedMax = 1024

// sharedConfigs are what this process proposes for keys at rest: many keys share few of them.
type sharedConfigs struct {
	mu  sync.Mutex
	all map[[lease.LimitsMax]Limit]*lease.Config // what differs between keys are the limits
}

// of is a configuration like c, which nobody changes.
func (s *sharedConfigs) of(c lease.Config) *lease.Config {
	var key [lease.LimitsMax]Limit
	copy(key[:], c.Limits)
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.all[key]; have != nil {
		return have
	}
	if s.all == nil {
		s.all = make(map[[lease.LimitsMax]Limit]*lease.Config)
	}
	if len(s.all) < sharedMax {
		s.all[key] = &c
	}
	return &c
}

// propose is a proposal with limits that come from source.
func (l *Limiter) propose(source string, limits []Limit) proposal {
	c := l.cfg.Policy.ConfigFor(slices.Clone(limits), l.cfg.Version, l.cfg.CallTimeout)
	if err := c.Validate(); err != nil {
		return proposal{err: fmt.Errorf("%w: %s: %w", ErrInvalidConfig, source, err)}
	}
	l.warn(limits)
	return proposal{config: c}
}

// Refresh asks Config.LimitsFor for the limits of key again, if this process uses the key now;
// otherwise the next use does. What it says is proposed to the bucket from the next call on. Under
// an equal Config.Version the bucket takes it over when no process has proposed the old limits for
// two TTLs, so every process of the fleet must refresh; SetLimits is for a change that one process
// orders for all. A key with a KeyWith keeps the limits that were given. Where LimitsFor blocks, so
// does Refresh.
//
// The error wraps ErrInvalidConfig where LimitsFor gives limits that cannot be used; then the old
// ones stay. It is ErrClosed for a closed Limiter, and wraps ErrInvalidKey for an empty key.
func (l *Limiter) Refresh(key string) error {
	switch {
	case l.state.Load() != stateOpen:
		return ErrClosed
	case key == "":
		return errEmptyKey
	}
	var failed error
	l.eachSibling(func(l *Limiter) {
		l.refreshes.Add(1)
		var err error
		if e := l.keys.inUse(key); e != nil {
			err = l.refresh(e, key)
		} else if s := l.keys.find(key); s != nil {
			err = l.refreshAtRest(s, key)
		}
		if err != nil {
			failed = fmt.Errorf("hybrid: refresh: %w", err)
		}
	})
	return failed
}

// RefreshAll is Refresh for every key in use. Keys longer than lease.KeyMax, of which this process
// keeps only a hash, are left out: Refresh is for them. The error is that of one key, with how many
// there were.
func (l *Limiter) RefreshAll() error {
	if l.state.Load() != stateOpen {
		return ErrClosed
	}
	var failed error
	failures := 0
	l.eachSibling(func(l *Limiter) {
		l.refreshes.Add(1)
		var drawing []*draw
		l.keys.atRest(func(s *slot) {
			if s.own == nil || s.given || s.unheard != nil || lease.IsKeyHash(s.name) {
				return
			}
			s.proposeLocked(nil) // the next use asks
			if s.draw != nil {
				drawing = append(drawing, s.draw)
			}
		})
		for _, d := range drawing {
			d.takeOver() // now, or an entry that does so later would go on with the old limits
		}
		l.keys.each(func(e *entry) {
			if lease.IsKeyHash(e.slot.name) {
				return
			}
			if err := l.refresh(e, e.slot.name); err != nil {
				failed = err
				failures++
			}
		})
	})
	if failed != nil {
		return fmt.Errorf("hybrid: refresh all: %d keys: %w", failures, failed)
	}
	return nil
}

// refresh has e propose what LimitsFor says by now. Of two answers that of the later Refresh holds,
// as it was asked for after both changes that they are about.
func (l *Limiter) refresh(e *entry, key string) error {
	asked := l.refreshes.Load()
	e.mu.Lock()
	given := e.given
	e.mu.Unlock()
	if given {
		return nil
	}
	c, err := l.proposal(key, nil)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.given && asked >= e.asked {
		e.asked = asked
		e.client.Propose(e.Now(), c)
	}
	return nil
}

// refreshAtRest is refresh for a key at rest, if that is in use all the same.
func (l *Limiter) refreshAtRest(s *slot, key string) error {
	idle := &l.keys.idle
	if own, given := idle.proposed(s, l.cfg.Clock.Now()); own == nil || given {
		return nil
	}
	asked := l.refreshes.Load()
	c, err := l.proposal(key, nil)
	if err != nil {
		return err
	}
	own := l.shared.of(c)
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if l.refreshes.Load() != asked && s.draw == nil {
		own = nil // it may have been outdated already, so the next use asks again
	}
	if s.own != nil && !s.given {
		s.proposeLocked(own)
	}
	return nil
}

// proposeLocked has s, a key at rest, propose c from now on, or ask for it where it is nil. What it
// proposed before is still in force, if nothing else is known to be.
func (s *slot) proposeLocked(c *lease.Config) {
	s.memory.Propose(s.own)
	s.own = c
}

// KeyWith is Key for who has the key's limits at hand: they take the place of what LimitsFor or
// Limits say, from the first request that comes by this handle, and whenever the key comes back
// into use by it. They are a proposal like those (see Refresh): where the bucket has other ones, it
// takes these over when no process and no other handle has proposed the others for two TTLs, about a
// second by default. Until then the others hold, which Events.Conflict and the log say with the next
// call. SetLimits is for a plan that is to hold at once, and for all. Handles of one key that go on
// with different limits contradict each other for as long as they do.
//
// With limits that cannot be used, or none, every request fails as where LimitsFor returns such.
func (l *Limiter) KeyWith(name string, limits ...Limit) *Key {
	k, own := l.Key(name), l.propose("KeyWith", limits)
	k.own = &own
	return k
}

// given is what a KeyWith gave k; nil for others, and for no Key.
func (k *Key) given() *proposal {
	if k == nil {
		return nil
	}
	return k.own
}

// checkGiven is why the limits that k was given cannot be used.
func (l *Limiter) checkGiven(k *Key) error {
	own := k.given()
	if own == nil || own.err == nil {
		return nil
	}
	l.refuseLimits(k.name, own.err)
	return own.err
}

// bind has k, if there is one, point to its entry from now on, and that propose what k was given.
func (k *Key) bind(e *entry) {
	if k == nil {
		return
	}
	if own := k.given(); own != nil {
		e.mu.Lock()
		e.given = true
		e.client.Propose(e.Now(), own.config)
		e.client.Insist(e.Now())
		e.mu.Unlock()
	}
	k.e.Store(e)
}

// keysToldMax bounds how many keys with unusable limits have a line of the log each.
const keysToldMax = 1000

// misconfigured are the keys whose unusable limits the log has named.
type misconfigured struct {
	mu   sync.Mutex
	told map[uint64]struct{} // by their hashes
	more notice              // of those beyond keysToldMax
}

// refuseLimits says that key was given limits that cannot be used: to the log once for a key, and
// to the listener each time.
func (l *Limiter) refuseLimits(key string, err error) {
	const text = "hybrid: a key has limits that cannot be used, so nothing decides on its requests"
	m, hash := &l.base.misconfigured, maphash.String(l.base.keys.seed, key)
	m.mu.Lock()
	_, told := m.told[hash]
	full := len(m.told) >= keysToldMax
	if !told && !full {
		if m.told == nil {
			m.told = make(map[uint64]struct{})
		}
		m.told[hash] = struct{}{}
	}
	m.mu.Unlock()
	switch {
	case !told && !full:
		l.logger().Warn(text, "key", brief(key), "error", safetext.Error(err))
	case !told:
		m.more.warnOf(l, key, l.cfg.Clock.Now(), text, "error", safetext.Error(err))
	}
	if f := l.cfg.Events.Misconfigured; f != nil {
		f(key, err)
	}
}
