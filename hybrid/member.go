package hybrid

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// member is one process as the store sees it: a holder with a number for each call. A Limiter has one
// for each class of Config.Priorities that is in use. Each has a table of keys and a scheduler.
type member struct {
	limiter  *Limiter // for Key.Limiter
	cfg      Config   // of the Limiter, with the headroom of the class
	store    lease.Store
	proposer *proposer
	observer *observer
	life     *lifecycle

	instance string                 // the label and random bits
	id       atomic.Pointer[string] // of new entries: instance, or another after a clone was met
	seq      atomic.Int64
	keys     table
	nodes    nodes

	scheduler scheduler
}

// newMember is a member that leaves headroom. It shares the health of nodes with first, if there is
// one. The caller starts its scheduler.
func (l *Limiter) newMember(first *member, headroom float64) *member {
	m := &member{
		limiter: l, cfg: l.cfg, store: l.store, proposer: l.proposer, observer: l.observer, life: l.life,
		instance: randomText(),
	}
	m.cfg.Policy.Headroom = headroom
	if l.cfg.InstanceID != "" {
		m.instance = l.cfg.InstanceID + "-" + m.instance
	}
	m.id.Store(&m.instance)
	m.keys.init()
	m.nodes.target, m.nodes.ttl = l.proposer.defaults.Target, l.proposer.defaults.TTL
	if first != nil {
		m.nodes.first = &first.nodes
	}
	m.scheduler.init(m)
	return m
}

// randomText is 64 random bits. They are the kernel's, which differ between copies of a machine.
func randomText() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// seqStepMax bounds the step between two calls' numbers: 2^52 of them last for 8 * 10^12 calls.
const seqStepMax = 1 << 10

// nextSeq is the number of the next call. The steps are random, by the kernel's randomness, so that
// two clones of a process soon differ (docs/protocol.md section 5.12).
func (m *member) nextSeq() int64 {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return m.seq.Add(1 + int64(binary.LittleEndian.Uint16(b[:])%seqStepMax))
}

func (m *member) storedKey(name string) string { return storedKey(m.cfg.Name, name) }

// known is the entry of a key that the table has, which comes into use if it is at rest. It is nil
// for another key, and for one whose limits cannot be used. The request came by k, or by name if
// that is nil.
func (m *member) known(name string, k *Key) *entry {
	s := m.keys.find(name)
	if s == nil {
		return nil
	}
	r := request{name: name, key: k, spot: spot{slot: s}}
	e, _ := m.activate(&r)
	return e
}

// activate is the entry of r's key, which comes into use, and into the table, if it has none.
func (m *member) activate(r *request) (*entry, error) {
	if err := m.proposer.check(r.name, r.key.given()); err != nil {
		return nil, err
	}
	for {
		if e := r.spot.entry(); e != nil {
			return e, nil
		}
		own, err := m.proposed(r)
		if err == nil {
			err = m.addSlot(&r.spot)
		}
		if err != nil {
			return nil, err
		}
		if e := m.newEntry(r.spot.slot, own); e != nil {
			if m.outdated(&own) {
				_ = e.refresh(r.name)
			}
			return e, nil
		}
		r.spot = m.keys.locate(r.name) // its slot has left the table
	}
}

// addSlot gives the key at p a slot, unless it has one.
func (m *member) addSlot(p *spot) error {
	if p.slot != nil {
		return nil
	}
	if m.keys.size.Load() >= int64(m.cfg.KeysMax) && !m.makeRoom() {
		return fmt.Errorf("%w: all of KeysMax (%d) keys are in use", ErrUnavailable, m.cfg.KeysMax)
	}
	p.slot = m.keys.add(*p)
	return nil
}

// newEntry is the entry of a key that was at rest or is new, for which this process proposes own. It is
// nil where the slot has left the table.
func (m *member) newEntry(s *slot, own proposed) *entry {
	e := &entry{m: m, slot: s, index: -1, given: own.given, asked: own.asked}
	e.client.Start(m.cfg.Clock.Now(), e, protocol.ClientConfig{
		ID:          *m.id.Load(),
		Policy:      &m.cfg.Policy,
		Proposed:    *own.config,
		CallTimeout: m.cfg.CallTimeout,
		Seed:        mathrand.Uint64(),
		Stripes:     runtime.GOMAXPROCS(0),
	})
	have, took := m.keys.idle.activate(s, e)
	state := m.life.state.Load()
	switch {
	case have == nil:
		m.keys.remove(s)
	case have == e && state != stateOpen && (took == nil || state == stateClosed):
		e.close() // Close or Shutdown may have come too early to see it; Shutdown sees all with a draw
	case have == e:
		if took != nil {
			e.timeOut(took)
		}
		e.Wake(false) // so that it goes to rest even if it never needs a call
	}
	return have
}

// proposed is a proposal for a key that comes into use, and its source.
type proposed struct {
	config *lease.Config // nil where it is not known
	given  bool          // by a KeyWith
	kept   bool          // by the slot of the key
	asked  int64         // the number of the Refresh before which LimitsFor was asked
}

// proposed is the proposal of m for the key of r: the same as since the key was last out of use, or
// what the proposer says.
func (m *member) proposed(r *request) (p proposed, err error) {
	p.asked = m.proposer.refreshes.Load()
	if own := r.key.given(); own != nil {
		p.config, p.given = &own.config, true
		return p, own.err
	}
	if r.spot.slot != nil {
		if p.config, p.given = m.keys.idle.proposed(r.spot.slot, m.cfg.Clock.Now()); p.config != nil {
			p.kept = true
			return p, nil
		}
	}
	if m.cfg.LimitsFor == nil {
		p.config = &m.proposer.defaults
		return p, nil
	}
	c, err := m.proposer.of(r.name, nil)
	p.config = m.proposer.share(c)
	return p, err
}

// outdated reports whether LimitsFor may say something else by now.
func (m *member) outdated(p *proposed) bool { return m.proposer.refreshes.Load() != p.asked }

// proposeAnew has the keys at rest ask for their limits with their next use, and returns their draws
// under way.
func (m *member) proposeAnew() (drawing []*draw) {
	m.keys.atRest(func(s *slot) {
		if s.own == nil || s.given || s.unheard != nil || lease.IsKeyHash(s.name) {
			return
		}
		s.proposeLocked(nil)
		if s.draw != nil {
			drawing = append(drawing, s.draw)
		}
	})
	return drawing
}

// refresh proposes what LimitsFor says by now for key, if that is in use.
func (m *member) refresh(key string) error {
	s := m.keys.find(key)
	if s == nil {
		return nil
	}
	if e := s.entry.Load(); e != nil {
		return e.refresh(key)
	}
	idle := &m.keys.idle
	if own, given := idle.proposed(s, m.cfg.Clock.Now()); own == nil || given {
		return nil
	}
	asked := m.proposer.refreshes.Load()
	c, err := m.proposer.of(key, nil)
	if err != nil {
		return err
	}
	own := m.proposer.share(c)
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if m.proposer.refreshes.Load() != asked && s.draw == nil {
		own = nil // it may have been outdated already, so the next use asks again
	}
	if s.own != nil && !s.given {
		s.proposeLocked(own)
	}
	return nil
}

// knownLimits are the limits of a key that were last heard of; nil where it is not in use.
func (m *member) knownLimits(key string) []Limit {
	s := m.keys.find(key)
	if s == nil {
		return nil
	}
	if e := s.entry.Load(); e != nil {
		return e.limits()
	}
	return m.keys.idle.limits(s, m.cfg.Clock.Now())
}

// refund is Refund; k is the handle that it came by, or nil.
func (m *member) refund(key string, k *Key, n int64) {
	if n < 0 || key == "" || !m.life.open() {
		m.observer.invalid.Add(1)
		return
	}
	for n > 0 && m.life.open() {
		if e := m.known(key, k); e == nil || e.refund(n) {
			return
		}
	}
}

// charge has a key's bucket take n tokens more than it has granted, or as many as may be charged.
func (m *member) charge(key string, k *Key, n int64) (charged int64, err error) {
	for m.life.open() {
		r := request{name: key, key: k, spot: m.keys.locate(key)}
		e, err := m.activate(&r)
		if err != nil {
			return 0, err
		}
		if charged, ok := e.charge(n); ok {
			m.observer.charged.Add(charged)
			return charged, nil
		}
	}
	return 0, ErrClosed
}

// nodeOf is the node of a key that last was on the node of this number, or on an unknown one. The
// store knows better where a key is new, or its node has been replaced.
func (m *member) nodeOf(name string, number int) *node {
	n := m.nodes.of(number)
	if router, ok := m.store.(lease.Router); ok && (number == nodeUnknown || n.breaker.Suspect()) {
		if number := router.NodeOf(m.storedKey(name)); number != nodeUnknown {
			return m.nodes.of(number)
		}
	}
	return n
}

// makeRoom has the key that is idle for longest leave the table; false where every key is in use.
func (m *member) makeRoom() bool {
	for {
		if s, e, _ := m.keys.idle.pop(0, true); s == nil || m.drop(s, e) {
			return s != nil
		}
	}
}

// leavesMax bounds how many keys leave in one round of the scheduler, which has calls to send.
const leavesMax = 1000

// sweep has the keys leave whose time has come, and returns when to come again.
func (m *member) sweep(now clock.Instant) clock.Instant {
	for range leavesMax {
		s, e, next := m.keys.idle.pop(now, false)
		if s == nil {
			return next
		}
		m.drop(s, e)
	}
	return now
}

// drop takes a slot that was popped, with e, out of the table; false where it stays, because its
// key is in use or has gone to rest meanwhile.
func (m *member) drop(s *slot, e *entry) bool {
	if e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.client.Forgettable() {
			return false
		}
		e.endLocked()
		m.keys.idle.leave(s)
		e.Wake(false) // the scheduler forgets it too
	}
	m.keys.remove(s)
	return true
}

// addTo counts a key at rest in st if it is in use all the same: it draws. The idle list's lock is
// held.
func (m *member) addTo(st *Stats, s *slot) {
	drawing := s.state == slotDrawing
	if s.own == nil || !drawing && !s.memory.Recent(m.cfg.Clock.Now()) || m.life.state.Load() == stateClosed {
		return
	}
	st.InUse++
	if drawing {
		st.Waiting++
	}
	c := &m.observer.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keysLocked(s.memory.Limits(s.own))
}

// lifecycle says how far a Limiter is on its way to its end. Its members share it.
type lifecycle struct {
	state   atomic.Int32       // rises
	ctx     context.Context    // ends with Close
	cancel  context.CancelFunc // of ctx, by Close
	leaving sync.WaitGroup     // the entries that Shutdown waits for, and Shutdown until it knows them all
	lost    atomic.Int64       // how many of them could not give back what they held
}

// The states of a Limiter, in their order.
const (
	stateOpen int32 = iota
	stateLeaving
	stateClosed
)

func (c *lifecycle) open() bool { return c.state.Load() == stateOpen }
