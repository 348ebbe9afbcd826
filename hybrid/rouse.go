package hybrid

import (
	"fmt"
	"slices"

	"github.com/yuzhi-go/yuzhi/lease"
)

// entry is the entry of a key, which is made now if there is none.
func (l *Limiter) entry(name string) (*entry, error) {
	for {
		s := l.keys.load(name)
		if s == nil { // perhaps because its shard changes; then add finds it
			s = l.keys.newSlot(name)
			e, err := l.newEntry(s, name)
			if err != nil {
				return nil, err
			}
			if l.keys.size.Load() >= int64(l.cfg.KeysMax) && !l.makeRoom() {
				return nil, errTableFull(l.cfg.KeysMax)
			}
			s.entry.Store(e)
			have, loaded := l.keys.add(s)
			if !loaded {
				e.enter()
				return e, nil
			}
			s = have
		}
		if e, err := l.rouse(s, name); e != nil || err != nil {
			return e, err
		}
	}
}

// known is entry for a key that the table has; nil for any other.
func (l *Limiter) known(name string) *entry {
	if s := l.keys.find(name); s != nil {
		e, _ := l.rouse(s, name)
		return e
	}
	return nil
}

// rouse is the entry of s, the slot of name: a new one where the key is at rest, nil where s has
// left the table.
func (l *Limiter) rouse(s *slot, name string) (*entry, error) {
	if e := s.entry.Load(); e != nil {
		return e, nil
	}
	memory, node, ok := l.keys.idle.recall(s)
	if !ok {
		l.keys.remove(s)
		return nil, nil
	}
	e, err := l.newEntry(s, name)
	if err != nil {
		return nil, err
	}
	e.client.Recall(memory)
	e.node.Store(node)
	have := l.keys.idle.rouse(s, e)
	if have == e {
		e.enter()
	}
	return have, nil
}

// enter makes a new entry known to the rest of the Limiter.
func (e *entry) enter() {
	if e.l.state.Load() != stateOpen {
		e.close() // Close or Shutdown may have come too early to see it
		return
	}
	e.wake(false) // so that it goes to rest even if it never needs a call
}

// proposal is the configuration that this process proposes for a key.
func (l *Limiter) proposal(name string) (lease.Config, error) {
	var limits []Limit
	if l.cfg.LimitsFor != nil {
		limits = l.cfg.LimitsFor(name)
	}
	switch {
	case limits == nil && len(l.cfg.Limits) == 0:
		return lease.Config{}, fmt.Errorf("%w: LimitsFor has none for this key, and Limits is empty",
			ErrInvalidConfig)
	case limits == nil:
		return l.defaults, nil
	}
	c := l.cfg.Policy.ConfigFor(slices.Clone(limits), l.cfg.Version, l.cfg.CallTimeout)
	if err := c.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	l.warn(limits)
	return c, nil
}

// newEntry makes an entry for s, the slot of name, which may be shorter there.
func (l *Limiter) newEntry(s *slot, name string) (*entry, error) {
	e := &entry{l: l, slot: s, index: -1}
	e.node.Store(nodeUnknown)
	c, err := l.proposal(name)
	if err != nil {
		return nil, err
	}
	e.client.Start(l.cfg.Clock.Now(), e, lease.ClientConfig{
		ID:          *l.id.Load(),
		Policy:      &l.cfg.Policy,
		Proposed:    c,
		CallTimeout: l.cfg.CallTimeout,
		Seed:        l.nextSeed(),
		Stripes:     l.stripes,
		DecidesAll:  l.cfg.Events.Denied != nil, // whoever listens is told of every denial
	})
	return e, nil
}

func errTableFull(n int) error {
	return fmt.Errorf("%w: all of KeysMax (%d) keys are in use", ErrUnavailable, n)
}
