package hybrid

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid/internal/outage"
	"github.com/yuzhi-go/yuzhi/internal/hook"
	"github.com/yuzhi-go/yuzhi/internal/keyhash"
	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// group has the members of a Limiter and their shared state.
type group struct {
	cfg      Config // configuration with all defaults filled in
	store    lease.Store
	proposer *proposer
	observer *observer
	outages  *outage.Nodes
	watcher  *outage.Watcher

	beforeReport func(key string) // test hook that disturbs calls; nil outside of tests

	first   *member                  // class 0
	classes []atomic.Pointer[member] // members of classes 1 and up; nil before their first use
	making  sync.Mutex               // held while a member is created

	state   atomic.Int32       // stateOpen, stateLeaving or stateClosed; never decreases
	ctx     context.Context    // canceled by Close
	cancel  context.CancelFunc // cancels ctx
	leaving sync.WaitGroup     // counts entries that Shutdown waits for, plus 1 until all are counted
	lost    atomic.Int64       // number of entries whose last call failed during Shutdown
}

// stateOpen, stateLeaving and stateClosed are the states of a Limiter, in order.
const (
	stateOpen int32 = iota
	stateLeaving
	stateClosed
)

func newGroup(store lease.Store, cfg Config) *group {
	g := &group{cfg: cfg, store: store, classes: make([]atomic.Pointer[member], len(cfg.Priorities)),
		beforeReport: hook.Of(cfg.InstanceID)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.leaving.Add(1)
	g.observer = &observer{cfg: &g.cfg, ctx: g.ctx}
	g.proposer = &proposer{
		cfg: &g.cfg, observer: g.observer, shared: make(map[[lease.LimitsMax]Limit]*lease.Config),
		failed:   make(map[string]bool),
		defaults: cfg.Policy.ConfigFor(cfg.Limits, cfg.Version, cfg.CallTimeout),
		inspect: func(ctx context.Context, key string) (lease.State, error) {
			return g.configure(ctx, "limits", key, lease.OpInspect)
		},
		refresh: g.refreshKey,
	}
	return g
}

func (g *group) open() bool { return g.state.Load() == stateOpen }

// class returns the member of class p, and creates the member on first use. After Shutdown or Close, class
// returns the member of class 0 instead of a new one.
func (g *group) class(p int) *member {
	if p = min(p, len(g.classes)); p <= 0 {
		return g.first
	}
	made := &g.classes[p-1]
	if m := made.Load(); m != nil {
		return m
	}
	g.making.Lock()
	defer g.making.Unlock()
	if m := made.Load(); m != nil {
		return m
	}
	if !g.open() {
		return g.first
	}
	m := g.newMember(g.cfg.Priorities[p-1])
	m.run()
	made.Store(m)
	return m
}

func (g *group) members() []*member {
	g.making.Lock()
	defer g.making.Unlock()
	all := []*member{g.first}
	for i := range g.classes {
		if m := g.classes[i].Load(); m != nil {
			all = append(all, m)
		}
	}
	return all
}

func (g *group) allNodes() (all []*nodes) {
	for _, m := range g.members() {
		all = append(all, &m.nodes)
	}
	return all
}

// member is one process as the store sees it. A Limiter has one member for each used class.
type member struct {
	*group
	cfg Config // configuration with the headroom of the class

	instance string                 // Config.InstanceID and random bits
	id       atomic.Pointer[string] // holder name of new entries; see entry.NewID
	seq      atomic.Int64
	keys     table
	nodes    nodes

	scheduler scheduler
}

func (g *group) newMember(headroom float64) *member {
	m := &member{group: g, cfg: g.cfg, instance: randomText()}
	m.cfg.Policy.Headroom = headroom
	if m.cfg.InstanceID != "" {
		m.instance = m.cfg.InstanceID + "-" + m.instance
	}
	m.id.Store(&m.instance)
	m.keys.init()
	m.nodes = nodes{
		cfg: &g.cfg, ctx: g.ctx, store: g.store, observer: g.observer, outages: g.outages, watcher: g.watcher,
		target: g.proposer.defaults.Target, ttl: g.proposer.defaults.TTL,
		members: g.allNodes, hurry: m.scheduler.hurry,
	}
	if g.first != nil {
		m.nodes.first = &g.first.nodes
	}
	m.scheduler.m, m.scheduler.clock, m.scheduler.signal = m, m.cfg.Clock, make(chan struct{}, 1)
	return m
}

func (m *member) run() { go m.scheduler.run() }

func (m *member) close() {
	m.endDraws()
	m.keys.each((*entry).close)
}

func (m *member) leave() {
	m.endDraws()
	m.keys.each((*entry).leave)
}

func (g *group) refreshKey(ctx context.Context, key string) (failed error) {
	for _, m := range g.members() {
		if err := m.refresh(ctx, key); err != nil {
			failed = err
		}
	}
	return failed
}

func (m *member) refreshAll(ctx context.Context, note func(error)) {
	for _, d := range m.proposeAnew() {
		d.takeOver() // an entry that took over the draw later would keep the old limits
	}
	m.keys.each(func(e *entry) {
		if !keyhash.Is(e.slot.name) {
			note(m.refresh(ctx, e.slot.name))
		}
	})
}

// randomText returns 64 random bits from the kernel, which differ between copies of a virtual machine.
func randomText() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// seqStepMax bounds the step between the numbers of two calls: 2^52 numbers suffice for 8 * 10^12 calls.
const seqStepMax = 1 << 10

// nextSeq returns the number of the next call. The steps are random, so two clones of a process soon have
// different numbers (docs/protocol.md section 5.12).
func (m *member) nextSeq() int64 {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return m.seq.Add(1 + int64(binary.LittleEndian.Uint16(b[:])%seqStepMax))
}

// nameMark begins the stored keys of a Limiter with a name; nameEnd follows the Limiter's name.
const nameMark, nameEnd = "@", ":"

// storedKey returns the store's key of the bucket for name, a key in the table. A Limiter without a name
// stores a key unchanged, unless the key begins with nameMark. No two Limiters and keys share a stored key.
func (g *group) storedKey(name string) string {
	limiter := g.cfg.Name
	if limiter == "" && !strings.HasPrefix(name, nameMark) {
		return name
	}
	prefix := nameMark + limiter + nameEnd
	if len(prefix)+len(name) > lease.KeyMax {
		name = keyhash.Of(name) // hash the name alone, because the store would hash the prefix too
	}
	return prefix + name
}

// knownEntry returns the entry of a key in the table, and activates the key if it is at rest. knownEntry
// returns nil for a key outside the table and for invalid limits.
func (m *member) knownEntry(name string, own *proposal) *entry {
	s := m.keys.find(name)
	if s == nil {
		return nil
	}
	r := request{name: name, own: own, spot: spot{slot: s}}
	e, _ := m.activate(&r)
	return e
}

// activate returns the entry of r's key, and makes a slot and an entry if there is none.
func (m *member) activate(r *request) (*entry, error) {
	if err := m.proposer.checkHandle(r.name, r.own); err != nil {
		return nil, err
	}
	for {
		if e := r.spot.entry(); e != nil {
			return e, nil
		}
		own, err := r.proposed, error(nil)
		if own.config == nil || own.fromSlot || m.outdated(&own) {
			own, err = m.proposalFor(r)
		}
		if err == nil {
			err = m.addSlot(&r.spot)
		}
		if err != nil {
			m.forget(r.spot.slot)
			return nil, err
		}
		if e := m.newEntry(r.spot.slot, own); e != nil {
			if m.outdated(&own) {
				ctx, end := m.proposer.withTimeout(r.context())
				_ = m.refresh(ctx, r.name)
				end()
			}
			return e, nil
		}
		r.spot = m.keys.locate(r.name) // the slot has left the table
	}
}

// forget makes s leave the table if a failed request has just added s.
func (m *member) forget(s *slot) {
	if s == nil {
		return
	}
	m.keys.idle.mu.Lock()
	defer m.keys.idle.mu.Unlock()
	if s.key.AtRest() && s.key.UnderWay() == nil && s.next == nil {
		m.idleLocked(s, m.cfg.Clock.Now(), 0)
	}
}

// idleLocked makes s leave the table after lifetime, unless s is used again.
func (m *member) idleLocked(s *slot, now clock.Instant, lifetime time.Duration) {
	idle := &m.keys.idle
	idle.unlinkLocked(s)
	if idle.linkLocked(s, now, lifetime) {
		m.scheduler.wake()
	}
}

func (m *member) addSlot(p *spot) error {
	if p.slot != nil {
		return nil
	}
	if m.keys.size.Load() >= int64(m.cfg.KeysMax) && !m.makeRoom() {
		full := fmt.Errorf("%w: all %d keys are in use", ErrTableFull, m.cfg.KeysMax)
		return &timedError{full, m.proposer.defaults.TTL} // after a TTL an unused key can leave the table
	}
	p.slot = m.keys.add(*p, nodeUnknown)
	return nil
}

// newEntry returns the entry of s, or a new one that proposes own, or nil if s has left the table.
func (m *member) newEntry(s *slot, own proposed) *entry {
	e := &entry{m: m, slot: s, index: -1, byHandle: own.byHandle, refreshes: own.refreshes}
	e.client.Start(m.cfg.Clock.Now(), e, protocol.ClientConfig{
		ID:          *m.id.Load(),
		Policy:      &m.cfg.Policy,
		Proposed:    own.config,
		CallTimeout: m.cfg.CallTimeout,
		Seed:        mathrand.Uint64(),
		Stripes:     runtime.GOMAXPROCS(0),
	})
	have, took := e.activate()
	state := m.state.Load()
	switch {
	case have == nil:
		m.keys.remove(s)
	case have == e && state != stateOpen && (took == nil || state == stateClosed):
		e.close() // Close or Shutdown may have missed e, but Shutdown misses no entry with a draw
	case have == e:
		if took != nil {
			e.timeOut(&took.Waiter, took.until.Sub(e.Now())) // the draw's request may wait for later calls
		}
		e.Wake(false) // poll puts an entry that needs no call to rest
	}
	return have
}

// activate makes e the entry of its slot, and returns e and the draw that e has taken over, if any. If the
// slot already has an entry, activate returns that entry. If the slot has left the table, activate returns
// nil.
func (e *entry) activate() (have *entry, took *draw) {
	s, idle := e.slot, &e.m.keys.idle
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if s.key.Gone() {
		return nil, nil
	}
	if have := s.entry.Load(); have != nil {
		return have, nil
	}
	idle.unlinkLocked(s)
	e.node.Store(e.m.nodeOf(s.name, int(s.key.Node)))
	e.denied = s.key.Denied()
	if d := s.key.Activate(e.Now(), &e.client); d != nil {
		took = d.Owner.(*draw)
		e.flight, took.entry = &took.call, e
	}
	s.entry.Store(e)
	return e, took
}

// proposed is the proposal for a key that becomes active, with its source.
type proposed struct {
	config    *lease.Config // nil if unknown
	byHandle  bool          // whether KeyWithLimits gave the proposal
	fromSlot  bool          // whether the key's slot stored the proposal
	refreshes int64         // number of Refresh calls before LimitsFor ran
}

// proposalFor returns the proposal of KeyWithLimits for r's key, or of the slot, or else of the proposer.
func (m *member) proposalFor(r *request) (p proposed, err error) {
	p.refreshes = m.refreshCount()
	if own := r.own; own != nil {
		p.config, p.byHandle = &own.config, true
		return p, m.proposer.checkHandle(r.name, own)
	}
	if r.spot.slot != nil {
		now := m.cfg.Clock.Now()
		m.keys.idle.withKey(r.spot.slot, func(k *protocol.Key) { p.config, p.byHandle = k.Proposed(now), k.Given })
		if p.config != nil {
			p.fromSlot = true
			return p, nil
		}
		p.byHandle = false
	}
	if m.cfg.LimitsFor == nil {
		p.config = &m.proposer.defaults
		return p, nil
	}
	c, err := m.proposer.configForNew(r.context(), r.name)
	p.config = m.proposer.share(c)
	return p, err
}

func (g *group) refreshCount() int64 { return g.proposer.refreshes.Load() }

// outdated reports whether a Refresh has run since p was made.
func (m *member) outdated(p *proposed) bool { return m.refreshCount() != p.refreshes }

// proposeAnew makes the next use of each key at rest call LimitsFor, and returns the keys' draws under way.
func (m *member) proposeAnew() (drawing []*draw) {
	m.keys.atRest(func(s *slot) {
		if s.key.Own() == nil || s.key.Given || s.key.Owes() || keyhash.Is(s.name) {
			return
		}
		s.key.Propose(nil)
		if d := s.key.UnderWay(); d != nil {
			drawing = append(drawing, d.Owner.(*draw))
		}
	})
	return drawing
}

// refresh calls LimitsFor for key, if the key is in use, and proposes the result. If two Refresh calls race,
// the later call wins: it called LimitsFor after both changes.
func (m *member) refresh(ctx context.Context, key string) error {
	s := m.keys.find(key)
	if s == nil {
		return nil
	}
	idle, asks, now, asked := &m.keys.idle, false, m.cfg.Clock.Now(), m.refreshCount()
	e := s.entry.Load()
	if e != nil {
		e.with(func() { asks = !e.byHandle })
	} else {
		idle.withKey(s, func(k *protocol.Key) { asks = k.Proposed(now) != nil && !k.Given })
	}
	if !asks {
		return nil
	}
	c, err := m.proposer.configFor(ctx, key, nil)
	if err != nil {
		return err
	}
	own := m.proposer.share(c)
	if e != nil {
		e.with(func() { e.proposeAgain(own, asked) })
		return nil
	}
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if m.refreshCount() != asked && s.key.UnderWay() == nil {
		own = nil // another Refresh has run: the key's next use calls LimitsFor again
	}
	if s.key.Own() != nil && !s.key.Given {
		s.key.Propose(own)
	}
	return nil
}

func (m *member) cachedLimits(key string) []Limit {
	s := m.keys.find(key)
	if s == nil {
		return nil
	}
	now, limits := m.cfg.Clock.Now(), []Limit(nil)
	if m.keys.idle.withKey(s, func(k *protocol.Key) { limits = k.Limits(now) }); limits != nil {
		return limits
	}
	if e := s.entry.Load(); e != nil { // read the entry last, because the key may just have become active
		return e.limits()
	}
	return nil
}

// nodeOf returns the node of a key. number is the key's last node; if that node is unknown or away, nodeOf
// asks the store.
func (m *member) nodeOf(name string, number int) *storeNode {
	n := m.nodes.node(number)
	if router, ok := m.store.(lease.Router); ok && (number == nodeUnknown || n.breaker.Away()) {
		if number := router.NodeOf(m.storedKey(name)); number != nodeUnknown {
			return m.nodes.node(number)
		}
	}
	return n
}

// makeRoom makes the longest idle key leave the table, or returns false if every key is in use.
func (m *member) makeRoom() bool {
	for {
		if s, e, _ := m.keys.idle.pop(0, true); s == nil || m.drop(s, e) {
			return s != nil
		}
	}
}

// leavesMax bounds the keys that leave the table in one scheduler round, so that calls need not wait.
const leavesMax = 1000

// sweep removes idle keys whose leaveAt has passed, and returns the time of the next sweep.
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

// drop takes s, which idleList.pop returned with e, out of the table, or returns false if the key is in use.
func (m *member) drop(s *slot, e *entry) bool {
	if e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.client.Forgettable() {
			return false
		}
		e.endLocked()
		m.keys.idle.leave(s)
		e.Wake(false) // makes the scheduler forget e
	}
	m.keys.remove(s)
	return true
}

func (m *member) addTo(st *Stats) {
	st.Keys += int(m.keys.size.Load())
	st.RTT = max(st.RTT, m.nodes.worst())
	if m == m.first { // all members share the counts of nodes
		st.Nodes = m.nodes.stats(m.cfg.Clock.Now())
	}
	m.keys.each(func(e *entry) { e.addTo(st) })
	m.keys.atRest(func(s *slot) { m.addAtRest(st, s) })
}

// addAtRest counts a key at rest that was used in the last TTL. The caller holds the idle list's lock.
func (m *member) addAtRest(st *Stats, s *slot) {
	limits := s.key.InUse(m.cfg.Clock.Now())
	if limits == nil || m.state.Load() == stateClosed {
		return
	}
	st.InUse++
	if s.key.UnderWay() != nil {
		st.Waiting++
	}
	c := &m.observer.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keysLocked(limits)
}

// configure executes an operation on key's bucket, and ends after ten CallTimeouts at the latest.
func (g *group) configure(
	ctx context.Context, operation, key string, op lease.Op, limits ...Limit,
) (lease.State, error) {
	switch {
	case !g.open():
		return lease.State{}, ErrClosed
	case key == "":
		return lease.State{}, errEmptyKey
	case ctx.Err() != nil:
		return lease.State{}, endedBy(ctx, operation)
	}
	var c lease.Config
	if op == lease.OpClear {
		own, err := g.proposer.configFor(ctx, key, nil)
		if err != nil {
			return lease.State{}, fmt.Errorf("hybrid: %s: %w", operation, err)
		}
		limits = own.Limits
	}
	if op == lease.OpSet || op >= lease.OpReplace {
		c = g.cfg.Policy.ConfigFor(slices.Clone(limits), g.cfg.Version, g.cfg.CallTimeout)
		// Propose no shorter TTL than a member has: a TTL that shrinks and grows again burns leases.
		if own, err := g.proposer.configFor(ctx, key, nil); err == nil {
			c.TTL = max(c.TTL, own.TTL)
		}
		for _, m := range g.members() {
			if e := m.knownEntry(key, nil); e != nil {
				e.with(func() { c.TTL = max(c.TTL, e.client.TTL()) })
			}
		}
	}
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer g.cfg.Clock.AfterFunc(node.Longest(g.cfg.CallTimeout), func() { cancel(errOverdue) }).Stop()
	defer context.AfterFunc(g.ctx, func() { cancel(ErrClosed) })()
	st, err := lease.State{}, error(nil)
	if len(c.Limits) > 0 {
		err = c.Validate()
	}
	if err == nil {
		if op != lease.OpInspect {
			defer g.giveBack(bounded, key)()
		}
		st, err = g.store.Configure(bounded, g.storedKey(lease.ShortKey(key)), op, c)
	}
	switch {
	case err == nil:
		g.follow(key, st)
		return st, nil
	case ctx.Err() != nil:
		err = endedBy(ctx, operation)
	case g.ctx.Err() != nil:
		err = fmt.Errorf("hybrid: %s: %w", operation, ErrClosed)
	case errors.Is(err, lease.ErrInvalidConfig):
		err = fmt.Errorf("hybrid: %s: %w: %w", operation, ErrInvalidConfig, err)
	default:
		n := g.first.nodeOf(lease.ShortKey(key), nodeUnknown)
		err = unavailable(operation+": node "+n.Name(), err)
	}
	return lease.State{}, err
}

// follow makes the entries of key use st, the result of an operation, and burns tokens that they still hold.
func (g *group) follow(key string, st lease.State) {
	if !st.Changed {
		return
	}
	for _, m := range g.members() {
		if e := m.keys.active(key); e != nil {
			e.bucketChanged(st.Config.Limits)
		}
	}
}

// inspect returns the state of key's bucket, or of a new bucket if key has none, and the tokens that m holds.
func (m *member) inspect(
	ctx context.Context, operation, key string, own *proposal,
) (st lease.State, held int64, err error) {
	if err := m.proposer.checkHandle(key, own); err != nil {
		return lease.State{}, 0, fmt.Errorf("hybrid: %s: %w", operation, err)
	}
	if st, err = m.configure(ctx, operation, key, lease.OpInspect); err != nil {
		return st, 0, err
	}
	if e := m.keys.active(key); e != nil {
		held = e.client.Holder.Pool.Held()
	}
	if st.Exists {
		return st, held, nil
	}
	if st.Config, err = m.proposer.configFor(ctx, key, own); err != nil {
		return lease.State{}, 0, fmt.Errorf("hybrid: %s: %w", operation, err)
	}
	for k, limit := range st.Config.Limits {
		if limit == Blocked {
			st.Next[k] = limit.Per
		} else if !m.cfg.Policy.StartEmpty {
			st.Levels[k] = limit.Capacity()
		}
	}
	return st, held, nil
}

func (m *member) peek(ctx context.Context, key string, own *proposal) (Result, error) {
	st, held, err := m.inspect(ctx, "peek", key, own)
	if err != nil {
		return Result{}, err
	}
	headroom := m.cfg.Policy.Headroom
	ok := true
	for i, limit := range st.Config.Limits {
		ok = ok && held+st.Levels[i]-headroomOf(limit, headroom) > 0
	}
	return resultOf(key, ok, SourceStore, protocol.StateOutlook(&st.Status, 1, held, headroom, ok)), nil
}

// giveBack gives back the Limiter's tokens of key, and keeps entries of key from leasing until end is called.
func (g *group) giveBack(ctx context.Context, key string) (end func()) {
	var all []*entry
	var wg sync.WaitGroup
	for _, m := range g.members() {
		if e := m.knownEntry(key, nil); e != nil {
			all = append(all, e)
			wg.Go(func() { e.beginReset(ctx) })
		}
	}
	wg.Wait()
	return func() {
		for _, e := range all {
			e.endReset()
		}
	}
}
