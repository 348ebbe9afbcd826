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
	"sync"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid/internal/outage"
	"github.com/yuzhi-go/yuzhi/internal/hook"
	"github.com/yuzhi-go/yuzhi/internal/keyhash"
	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// group is the members of a Limiter and what they share.
type group struct {
	cfg      Config // with defaults
	store    lease.Store
	proposer *proposer
	observer *observer
	outages  *outage.Nodes // of the store
	watcher  *outage.Watcher

	beforeReport func(key string) // of an adversary in a test; nil for all others

	first   *member                  // class 0
	classes []atomic.Pointer[member] // of Config.Priorities; nil until it is used
	making  sync.Mutex               // a class

	state   atomic.Int32       // rises
	ctx     context.Context    // ends with Close
	cancel  context.CancelFunc // of ctx
	leaving sync.WaitGroup     // the entries that Shutdown waits for, and Shutdown until it knows them all
	lost    atomic.Int64       // how many of them could not give back what they held
}

// The states of a Limiter, in their order.
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

// watch shares the outages of the store with its other Limiters.
func (g *group) watch() {
	g.watcher = &outage.Watcher{
		Clock: g.cfg.Clock, Logger: g.cfg.Logger, Away: g.observer.nodeAway, Back: g.observer.nodeBack,
	}
	name := func(number int) string { return nodeName(g.store, number) }
	g.outages = outage.Watch(storeIdentity(g.store), identityOf(g.cfg.Clock), name, g.watcher)
}

func (g *group) open() bool { return g.state.Load() == stateOpen }

// class is the member for class p of Config.Priorities. It is made when it is first used; class 0
// stands for one that was not made before the Limiter was closed.
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

// members are class 0 and those that have been used.
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

// member is one process as the store sees it: a holder with a number for each call. A Limiter has one
// for each class of Config.Priorities that is in use. Each has a table of keys and a scheduler.
type member struct {
	*group
	cfg Config // with the headroom of the class

	instance string                 // the label and random bits
	id       atomic.Pointer[string] // of new entries: instance, or another after a clone was met
	seq      atomic.Int64
	keys     table
	nodes    nodes

	scheduler scheduler
}

// newMember is a member that leaves headroom. It shares the health of nodes with the first one.
func (g *group) newMember(headroom float64) *member {
	m := &member{group: g, cfg: g.cfg, instance: randomText()}
	m.cfg.Policy.Headroom = headroom
	if m.cfg.InstanceID != "" {
		m.instance = m.cfg.InstanceID + "-" + m.instance
	}
	m.id.Store(&m.instance)
	m.keys.init()
	m.nodes.m, m.nodes.target, m.nodes.ttl = m, g.proposer.defaults.Target, g.proposer.defaults.TTL
	if g.first != nil {
		m.nodes.first = &g.first.nodes
	}
	m.scheduler.m, m.scheduler.signal = m, make(chan struct{}, 1)
	return m
}

// run starts the scheduler, which ends with Close.
func (m *member) run() { go m.scheduler.run() }

// wake has the scheduler look at what has come into the idle list.
func (m *member) wake() { m.scheduler.wake() }

func (m *member) close() {
	m.endDraws()
	m.keys.each((*entry).close)
}

func (m *member) leave() {
	m.endDraws()
	m.keys.each((*entry).leave)
}

// refreshKey refreshes key in every member.
func (g *group) refreshKey(ctx context.Context, key string) (failed error) {
	for _, m := range g.members() {
		if err := m.refresh(ctx, key); err != nil {
			failed = err
		}
	}
	return failed
}

// refreshAll refreshes all keys in use, and calls note with the outcome of each.
func (m *member) refreshAll(ctx context.Context, note func(error)) {
	for _, d := range m.proposeAnew() {
		d.takeOver() // now, or an entry that does so later would go on with the old limits
	}
	m.keys.each(func(e *entry) {
		if !keyhash.Is(e.slot.name) {
			note(e.refresh(ctx, e.slot.name))
		}
	})
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
// for another key, and for one whose limits cannot be used. own is the proposal of a KeyWithLimits, or nil.
func (m *member) known(name string, own *proposal) *entry {
	s := m.keys.find(name)
	if s == nil {
		return nil
	}
	r := request{name: name, own: own, spot: spot{slot: s}}
	e, _ := m.activate(&r)
	return e
}

// activate is the entry of r's key, which comes into use, and into the table, if it has none.
func (m *member) activate(r *request) (*entry, error) {
	if err := m.proposer.check(r.name, r.own); err != nil {
		return nil, err
	}
	for {
		if e := r.spot.entry(); e != nil {
			return e, nil
		}
		own, err := r.proposed, error(nil)
		if own.config == nil || own.kept || m.outdated(&own) {
			own, err = m.proposed(r)
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
				ctx, end := m.proposer.bounded(r.context())
				_ = e.refresh(ctx, r.name)
				end()
			}
			return e, nil
		}
		r.spot = m.keys.locate(r.name) // its slot has left the table
	}
}

// forget has s leave the table that was added for a request and knows nothing.
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

func (m *member) addSlot(p *spot) error {
	if p.slot != nil {
		return nil
	}
	if m.keys.size.Load() >= int64(m.cfg.KeysMax) && !m.makeRoom() {
		full := fmt.Errorf("%w: all %d keys are in use", ErrTableFull, m.cfg.KeysMax)
		return &timedError{full, m.proposer.defaults.TTL} // an unused key rests after that
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
		Proposed:    own.config,
		CallTimeout: m.cfg.CallTimeout,
		Seed:        mathrand.Uint64(),
		Stripes:     runtime.GOMAXPROCS(0),
	})
	have, took := m.keys.idle.activate(s, e)
	state := m.state.Load()
	switch {
	case have == nil:
		m.keys.remove(s)
	case have == e && state != stateOpen && (took == nil || state == stateClosed):
		e.close() // Close or Shutdown may have come too early to see it; Shutdown sees all with a draw
	case have == e:
		if took != nil {
			e.timeOut(&took.Waiter, took.until.Sub(e.Now())) // other calls may follow the draw
		}
		e.Wake(false) // so that it goes to rest even if it never needs a call
	}
	return have
}

// proposed is a proposal for a key that comes into use, and its source.
type proposed struct {
	config *lease.Config // nil where it is not known
	given  bool          // by a KeyWithLimits
	kept   bool          // by the slot of the key
	asked  int64         // the number of the Refresh before which LimitsFor was asked
}

// proposed is m's proposal for the key of r: that which its slot has kept, or the proposer's.
func (m *member) proposed(r *request) (p proposed, err error) {
	p.asked = m.refreshed()
	if own := r.own; own != nil {
		p.config, p.given = &own.config, true
		return p, own.err
	}
	if r.spot.slot != nil {
		now := m.cfg.Clock.Now()
		m.keys.idle.with(r.spot.slot, func(k *protocol.Key) { p.config, p.given = k.Proposed(now), k.Given })
		if p.config != nil {
			p.kept = true
			return p, nil
		}
		p.given = false
	}
	if m.cfg.LimitsFor == nil {
		p.config = &m.proposer.defaults
		return p, nil
	}
	c, err := m.proposer.ofNew(r.context(), r.name)
	p.config = m.proposer.share(c)
	return p, err
}

func (g *group) refreshed() int64 { return g.proposer.refreshes.Load() }

// outdated reports whether LimitsFor may say something else by now.
func (m *member) outdated(p *proposed) bool { return m.refreshed() != p.asked }

// proposeAnew has the keys at rest ask for limits with their next use, and returns their draws.
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

// refresh proposes what LimitsFor says by now for key, if that is in use.
func (m *member) refresh(ctx context.Context, key string) error {
	s := m.keys.find(key)
	if s == nil {
		return nil
	}
	if e := s.entry.Load(); e != nil {
		return e.refresh(ctx, key)
	}
	idle, asks, now := &m.keys.idle, false, m.cfg.Clock.Now()
	if idle.with(s, func(k *protocol.Key) { asks = k.Proposed(now) != nil && !k.Given }); !asks {
		return nil
	}
	asked := m.refreshed()
	c, err := m.proposer.of(ctx, key, nil)
	if err != nil {
		return err
	}
	own := m.proposer.share(c)
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if m.refreshed() != asked && s.key.UnderWay() == nil {
		own = nil // it may have been outdated already, so the next use asks again
	}
	if s.key.Own() != nil && !s.key.Given {
		s.key.Propose(own)
	}
	return nil
}

// cachedLimits are the limits of a key that were last heard of; nil where it is not in use.
func (m *member) cachedLimits(key string) []Limit {
	s := m.keys.find(key)
	if s == nil {
		return nil
	}
	now, limits := m.cfg.Clock.Now(), []Limit(nil)
	if m.keys.idle.with(s, func(k *protocol.Key) { limits = k.Limits(now) }); limits != nil {
		return limits
	}
	if e := s.entry.Load(); e != nil { // after the idle list was asked: the key may just have come into use
		return e.limits()
	}
	return nil
}

// refund is Refund of tokens of draw d, nil if that is not known; own is the proposal of a KeyWithLimits, if
// the request came by one.
func (m *member) refund(key string, own *proposal, n int64, d *pool.Draw) {
	if n < 0 || key == "" || !m.open() {
		m.observer.invalid.Add(1)
		return
	}
	for n > 0 && m.open() {
		if e := m.known(key, own); e == nil || e.refund(n, d) {
			return
		}
	}
}

// charge has a key's bucket take n tokens more than it has granted, or as many as may be charged.
func (m *member) charge(key string, own *proposal, n int64) (charged int64, err error) {
	for m.open() {
		r := request{name: key, own: own, spot: m.keys.locate(key)}
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
func (m *member) nodeOf(name string, number int) *storeNode {
	n := m.nodes.of(number)
	if router, ok := m.store.(lease.Router); ok && (number == nodeUnknown || n.breaker.Away()) {
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

func (m *member) addTo(st *Stats) {
	st.Keys += int(m.keys.size.Load())
	st.RTT = max(st.RTT, m.nodes.worst())
	if m == m.first { // whose counts are those of all members
		st.Nodes = m.nodes.stats(m.cfg.Clock.Now())
	}
	m.keys.each(func(e *entry) { e.addTo(st) })
	m.keys.atRest(func(s *slot) { m.addAtRest(st, s) })
}

// addAtRest counts a key at rest in st if it draws. The idle list's lock is held.
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

// configure executes one operation on the bucket, within a deadline of its own.
func (g *group) configure(
	ctx context.Context, what, key string, op lease.Op, limits ...Limit,
) (lease.State, error) {
	switch {
	case !g.open():
		return lease.State{}, ErrClosed
	case key == "":
		return lease.State{}, errEmptyKey
	case ctx.Err() != nil:
		return lease.State{}, endedBy(ctx, what)
	}
	var c lease.Config
	if op == lease.OpClear {
		own, err := g.proposer.of(ctx, key, nil)
		if err != nil {
			return lease.State{}, fmt.Errorf("hybrid: %s: %w", what, err)
		}
		limits = own.Limits
	}
	if op == lease.OpSet || op >= lease.OpReplace {
		c = g.cfg.Policy.ConfigFor(slices.Clone(limits), g.cfg.Version, g.cfg.CallTimeout)
		// A T that shrinks and grows again would burn leases.
		if own, err := g.proposer.of(ctx, key, nil); err == nil {
			c.TTL = max(c.TTL, own.TTL)
		}
		for _, m := range g.members() {
			if e := m.known(key, nil); e != nil {
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
		st, err = g.store.Configure(bounded, storedKey(g.cfg.Name, lease.ShortKey(key)), op, c)
	}
	switch {
	case err == nil:
		g.follow(key, st)
		return st, nil
	case ctx.Err() != nil:
		err = endedBy(ctx, what)
	case g.ctx.Err() != nil:
		err = fmt.Errorf("hybrid: %s: %w", what, ErrClosed)
	case errors.Is(err, lease.ErrInvalidConfig):
		err = fmt.Errorf("hybrid: %s: %w: %w", what, ErrInvalidConfig, err)
	default:
		n := g.first.nodeOf(lease.ShortKey(key), nodeUnknown)
		err = unavailable(what+": node "+n.Name(), err)
	}
	return lease.State{}, err
}

// follow has this process go by st, which an operation of its own has left. What it still holds of key was
// leased before and is burnt: no call could give it back.
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

// inspect returns the state of key's bucket, or that of a new one where there is none, and the tokens that
// this process holds. own is the proposal of a KeyWithLimits, if the request came by one.
func (m *member) inspect(
	ctx context.Context, what, key string, own *proposal,
) (st lease.State, held int64, err error) {
	if err := m.proposer.check(key, own); err != nil {
		return lease.State{}, 0, fmt.Errorf("hybrid: %s: %w", what, err)
	}
	if st, err = m.configure(ctx, what, key, lease.OpInspect); err != nil {
		return st, 0, err
	}
	if e := m.keys.active(key); e != nil {
		held = e.client.Holder.Pool.Held()
	}
	if st.Exists {
		return st, held, nil
	}
	if st.Config, err = m.proposer.of(ctx, key, own); err != nil {
		return lease.State{}, 0, fmt.Errorf("hybrid: %s: %w", what, err)
	}
	for k, limit := range st.Config.Limits {
		if !m.cfg.Policy.StartEmpty {
			st.Levels[k] = limit.Capacity()
		}
	}
	return st, held, nil
}

// peek is Peek; own is the proposal of a KeyWithLimits, if the request came by one.
func (m *member) peek(ctx context.Context, key string, own *proposal) (Result, error) {
	st, held, err := m.inspect(ctx, "peek", key, own)
	if err != nil {
		return Result{}, err
	}
	headroom := m.cfg.Policy.Headroom
	ok := true
	for i, limit := range st.Config.Limits {
		ok = ok && held+st.Levels[i]-keptOf(limit, headroom) > 0
	}
	return resultOf(key, ok, SourceStore, protocol.StateOutlook(&st.Status, 1, held, headroom, ok)), nil
}

// giveBack gives back what this process holds of key, and asks for nothing more until end is called.
func (g *group) giveBack(ctx context.Context, key string) (end func()) {
	var all []*entry
	var wg sync.WaitGroup
	for _, m := range g.members() {
		if e := m.known(key, nil); e != nil {
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
