package engine

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// process is one member of the fleet. After a kill and a start, the process has a new life: other members see
// a new process, but the clock and the rank in the group stay the same.
type process struct {
	clocks
	index  int32
	group  *group
	rank   int   // rank in the group
	number int   // index in the rivals' fleet, which begins with the processes that run at the start
	life   int32 // number of starts
	state  processState

	pausedUntil int64 // true time when the pause ends; 0 while the process runs

	entries  map[int32]*entry // entries of the process, by key
	single   *entry           // the entry of the only key, if the scenario has one key
	resting  map[int32]atRest
	links    []*link // one link per shard; see network.linkTo
	calls    int64   // number of calls since the warm-up
	forgetAt int     // length of resting that triggers the next clean-up
	seq      int64   // number of the process's last lease call
	id       string  // instance id of the process
	renames  int
	policy   lease.Policy
	config   lease.Config // limits and settings that the process proposes

	stream   random.Stream // source of the costs and keys of requests
	pauses   random.Stream
	restarts random.Stream
	holders  random.Stream // source of the jitter of holders

	reservations random.Stream // source of the final costs of reserved requests
}

type processState uint8

const (
	down    processState = iota
	running              // the process serves requests
	leaving              // the process serves no requests, and gives tokens back before it ends
)

func (p *process) rename() string {
	p.renames++
	p.id = strconv.Itoa(int(p.index)) + "." + strconv.Itoa(p.renames)
	return p.id
}

// sees returns the time at which a paused process handles an event. When the process continues, it serves
// requests for a microsecond before it handles timers and sockets.
func (p *process) sees(kind eventKind) int64 {
	if kind == evArrival {
		return p.pausedUntil
	}
	return p.pausedUntil + 1000
}

// recall returns the stored state of a key without an entry.
func (p *process) recall(key int32, now clock.Instant) protocol.Key {
	k := p.resting[key]
	if now >= k.until {
		return protocol.Key{}
	}
	return k.key
}

// rest stores the state of a key without an entry until the process forgets the key, as hybrid's table does.
func (p *process) rest(key int32, k atRest, now clock.Instant) {
	p.resting[key] = k
	if len(p.resting) < p.forgetAt {
		return
	}
	for key, k := range p.resting { // map order, which changes no result
		if now >= k.until {
			delete(p.resting, key)
		}
	}
	p.forgetAt = 2*len(p.resting) + 64
}

// localStart is the initial time of every process's monotonic clock.
const localStart = int64(time.Hour)

// clocks has a process's monotonic clock, which may be fast or slow, and a wall clock, which has the same
// drift and may be set wrong.
type clocks struct{ offset, drift int64 } // offset in nanoseconds, drift in parts per million

// ticks returns the reading of the process's oscillator at true time now.
func (c clocks) ticks(now int64) int64 {
	if c.drift == 0 {
		return now
	}
	return now + now/1_000_000*c.drift + now%1_000_000*c.drift/1_000_000
}

// local returns the monotonic clock's reading at true time now.
func (c clocks) local(now int64) clock.Instant { return clock.Instant(localStart + c.ticks(now)) }

// wall returns the wall clock's reading at true time now, in microseconds.
func (c clocks) wall(now int64) int64 { return serverStart + (c.ticks(now)+c.offset)/1000 }

// when returns the true time at which the monotonic clock reads at, but not earlier than now.
func (c clocks) when(now int64, at clock.Instant) int64 {
	ticks, speed := int64(at)-localStart, uint64(1_000_000+c.drift)
	if ticks <= 0 {
		return now
	}
	// ticks(t) is t*speed/10^6, rounded down for a fast clock and up for a slow clock.
	high, low := bits.Mul64(uint64(ticks-1), 1_000_000)
	more := speed
	if c.drift >= 0 {
		more += 999_999
	}
	low, carry := bits.Add64(low, more, 0)
	if high += carry; high >= speed {
		return never
	}
	t, _ := bits.Div64(high, low, speed)
	return max(now, int64(min(t, never)))
}

// after returns the true time at which the monotonic clock has advanced by d.
func (c clocks) after(now int64, d time.Duration) int64 { return c.when(now, c.local(now).Add(d)) }

// fleet has all processes, in groups, and handles their starts, ends, pauses and autoscaling.
type fleet struct {
	time    *agenda
	s       *scenario.Scenario
	network *network
	books   *books
	demand  *demand

	groups    []*group
	processes []*process
	running   int
	most      int // largest number of processes at one time

	entries slots[entry]
	waiters slots[waiter]
}

// group is a set of processes with equal settings.
type group struct {
	scenario.Group
	place    int // index of the group in Scenario.Groups
	load     *scenario.Workload
	patience protocol.Patience // patience of the group's requests
	waits    time.Duration     // longest wait of the group's requests
	inLine   int64             // microseconds that the group's requests may wait in line
	members  []*process
	count    int // number of members that should run
	class    int // index in books.classes
	reserves bool
}

// assemble makes the groups and their processes, and starts none.
func (f *fleet) assemble(seed uint64) {
	config := f.s.Policy.ConfigFor(f.s.Limits, 1, f.s.CallTimeout)
	for i := range f.s.Groups {
		g := &group{Group: f.s.Groups[i], place: i, count: f.s.Groups[i].Count}
		g.load = cmp.Or(g.Workload, &f.s.Workload)
		g.reserves = g.load.Reserves()
		g.patience, g.waits = protocol.OneCall, f.s.CallTimeout
		switch {
		case g.load.Verb == scenario.VerbTry || g.load.Kind == scenario.Adversary:
			g.patience = protocol.NoWait
		case g.load.Verb == scenario.VerbWait && !g.Shadow: // no request waits for longer than a call takes
			g.patience, g.waits = protocol.InLine, g.load.Deadline
			g.inLine = int64(g.waits / time.Microsecond)
		}
		f.groups = append(f.groups, g)
		most := g.Count
		for _, next := range g.Scale {
			most = max(most, next.Count)
		}
		for rank := range most {
			p := &process{index: int32(len(f.processes)), group: g, rank: rank, policy: f.s.Policy, config: config}
			own := func(kind uint64) random.Stream { return random.New(seed, kind, uint64(i), uint64(rank)) }
			p.stream, p.holders = own(streamProcess), own(streamHolders)
			p.pauses, p.restarts = own(streamPauses), own(streamRestarts)
			p.reservations = own(streamReservations)
			r := own(streamClock)
			p.offset, p.drift = f.s.Clock.Draw(&r)
			p.policy.Weight, p.policy.Headroom = g.Weight, g.Headroom
			f.processes = append(f.processes, p)
			g.members = append(g.members, p)
		}
	}
}

// start runs p with an empty memory.
func (f *fleet) start(p *process) {
	if p.state == running {
		return
	}
	for _, e := range p.inOrder() {
		e.finish()
	}
	f.books.runs(p, true)
	p.life++
	p.state, p.pausedUntil = running, 0
	p.rename()
	p.entries, p.resting, p.single = make(map[int32]*entry), make(map[int32]atRest), nil
	f.network.join(p, f.s.Redis.Shards)
	f.running++
	f.most = max(f.most, f.running)
}

// end ends p, which is down at once, or leaving until its tokens are back in their buckets.
func (f *fleet) end(p *process, state processState) {
	if p.state != running {
		return
	}
	f.books.runs(p, false)
	p.state = state
	f.running--
	for _, e := range p.inOrder() {
		if state == down || e.state.AtRest() {
			e.finish()
		} else {
			e.client.Leave()
		}
	}
}

// inOrder returns p's entries in the order of their numbers, because a map has no order.
func (p *process) inOrder() []*entry {
	return slices.SortedFunc(maps.Values(p.entries), func(a, b *entry) int { return int(a.id - b.id) })
}

// pause stops p for a while, unless p is paused already; p's requests wait.
func (f *fleet) pause(p *process) {
	if p.state != running || p.pausedUntil > 0 {
		f.plan(p, evPause)
		return
	}
	p.pausedUntil = f.time.now + max(1, p.group.Pauses.For.Sample(&p.pauses))
	f.time.at(p.pausedUntil, evResume, p.index)
}

// resume ends p's pause, unless another pause is under way: p may have been killed and paused again.
func (f *fleet) resume(p *process) {
	if p.pausedUntil == f.time.now {
		p.pausedUntil = 0
	}
	f.plan(p, evPause)
}

func (f *fleet) fail(p *process) {
	if p.state != running {
		f.plan(p, evKill)
		return
	}
	f.end(p, down)
	f.time.at(f.time.now+p.group.Restarts.For.Sample(&p.restarts), evStart, p.index)
}

func (f *fleet) plan(p *process, kind eventKind) {
	stops, stream := p.group.Pauses, &p.pauses
	if kind == evKill {
		stops, stream = p.group.Restarts, &p.restarts
	}
	if stops.Every > 0 {
		f.time.at(f.time.now+int64(stream.Exp()*float64(stops.Every)), kind, p.index)
	} else if at := int64(stops.At); at > f.time.now && p.rank == 0 {
		f.time.at(at, kind, p.index)
	}
}

func (f *fleet) scale(g *group, to scenario.Step) {
	g.count = to.Count
	for i, p := range g.members {
		switch {
		case i < to.Count:
			f.start(p)
		case to.Kill:
			f.end(p, down)
		default:
			f.end(p, leaving)
		}
	}
}

// entryFor returns the entry that decides r, or nil if a draw decides r.
func (f *fleet) entryFor(r *request) *entry {
	e := r.p.entries[r.key]
	switch {
	case e == nil && f.draws(r):
		return nil
	case e == nil || e.state.AtRest():
		return f.entry(r.p, r.key)
	}
	return e
}

// draws sends a draw for r, whose key has no entry (docs/protocol.md, 8.17), and reports whether it did. A
// client starts and takes over the draw, unless the reply only admits r.
func (f *fleet) draws(r *request) bool {
	p := r.p
	if p.group.patience != protocol.OneCall {
		return false
	}
	now, l := p.local(f.time.now), f.network.linkTo(p, r.key%int32(f.s.Redis.Shards))
	key := p.recall(r.key, now)
	terms := protocol.Terms{
		ID: p.id, Policy: &p.policy, Proposed: &p.config, RTT: l.rules.RTT(), CallTimeout: f.s.CallTimeout,
	}
	ask := protocol.Ask{N: r.n, Patience: p.group.patience}
	if key.Asked(now, ask, &terms, l.breaker) != protocol.ByDraw || !l.breaker.Admit(now) {
		return false
	}
	e := f.add(p, r.key, key)
	p.seq++
	d := &struct {
		protocol.Draw
		call lease.Request
	}{}
	d.For, d.Request = &e.newWaiter(r, ask).Waiter, &d.call
	e.state.Draw(now, p.seq, &terms, &d.Draw)
	e.asked = p.seq
	e.flight = f.network.draw(e, now, &d.call)
	return true
}

// entry returns p's entry for a key, with a started client.
func (f *fleet) entry(p *process, key int32) *entry {
	e := p.entries[key]
	if e == nil {
		e = f.add(p, key, p.recall(key, p.local(f.time.now)))
	}
	e.activate()
	return e
}

// add makes an entry from the state of a key at rest. The entry's client is not started.
func (f *fleet) add(p *process, key int32, state protocol.Key) *entry {
	delete(p.resting, key)
	id := f.entries.number() // calls under way may refer to the slot's last entry
	e := &entry{fleet: f, p: p, key: key, id: id, shard: key % int32(f.s.Redis.Shards), alive: true, state: state}
	f.entries.all[id], p.entries[key] = e, e
	return e
}

func (f *fleet) held() (total int64) {
	for _, e := range f.entries.all {
		if e.alive {
			total += e.client.Holder.Pool.Held()
		}
	}
	return total
}
