package engine

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/arrival"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// localStart is what every process's monotonic clock shows at the beginning.
const localStart = int64(time.Hour)

// process is one member of the fleet. Killed and started again it is another one to everybody else (life), with the
// same clock and the same place in its group.
type process struct {
	w      *world
	index  int32
	number int // as rivals know it
	group  *group
	rank   int // in its group
	life   int32

	offset, drift int64 // nanoseconds, parts per million
	running       bool
	leaving       bool  // gives back before it ends
	pausedUntil   int64 // 0 while it runs
	adversary     bool

	entries   map[int32]*entry
	single    *entry // the only key's, where there is one key
	resting   map[int32]memory
	forgetAt  int    // look for what may be forgotten when so many rest
	links     []link // of each shard, and of keys whose shard has not answered yet
	copiedAt  int64  // when the last second copy of its requests arrives, where they keep their order
	seq       int64  // of its lease calls
	renames   int
	calls     int64
	policy    lease.Policy
	config    lease.Config // that it proposes
	rate      float64      // requests per second that it offers
	requests  arrival.Stream
	arrivalAt int64         // when the next request was meant to come
	arrival   uint64        // the event that brings it
	stream    random.Stream // of what a request asks for
	arrivals  random.Stream // of when it comes
	pauses    random.Stream
	restarts  random.Stream
	holders   random.Stream // of the jitter of its holders

	users   []int32 // of a closed loop
	usersOf int32   // the life in which they began

	offered int64 // tokens of the most popular key, since the warm-up
}

// ticks is what the process's oscillator has counted at true time t.
func (p *process) ticks(t int64) int64 {
	if p.drift == 0 {
		return t
	}
	return t + t/1_000_000*p.drift + t%1_000_000*p.drift/1_000_000
}

// local is its monotonic clock now.
func (p *process) local() clock.Instant { return clock.Instant(localStart + p.ticks(p.w.now)) }

// wall is its wall clock in microseconds.
func (p *process) wall() int64 { return p.wallAt(p.w.now) }

func (p *process) wallAt(t int64) int64 { return serverStart + (p.ticks(t)+p.offset)/1000 }

// trueTime is when its monotonic clock shows at, but not before now.
func (p *process) trueTime(at clock.Instant) int64 {
	ticks := int64(at) - localStart
	if ticks <= 0 {
		return p.w.now
	}
	t := ticks
	switch {
	case p.drift > 0: // ticks(t) is t*(10^6+drift)/10^6, rounded down
		t = scaled(ticks, 1_000_000, 1_000_000+p.drift, true)
	case p.drift < 0: // rounded up
		t = scaled(ticks-1, 1_000_000, 1_000_000+p.drift, false) + 1
	}
	return max(t, p.w.now)
}

// scaled is x*by/of, rounded up or down, or the end of time where that is later.
func scaled(x, by, of int64, up bool) int64 {
	high, low := bits.Mul64(uint64(x), uint64(by))
	if high >= uint64(of) {
		return arrival.Never - 1
	}
	y, rest := bits.Div64(high, low, uint64(of))
	if up && rest > 0 {
		y++
	}
	return int64(min(y, arrival.Never-1))
}

// after is when its clock has gone on for d.
func (p *process) after(d time.Duration) int64 { return p.trueTime(p.local().Add(d)) }

// name is its instance id.
func (p *process) name() string {
	p.renames++
	return strconv.Itoa(int(p.index)) + "." + strconv.Itoa(p.renames)
}

// start has it run, knowing nothing.
func (p *process) start() {
	if p.running {
		return
	}
	if p.leaving {
		p.end()
	}
	w := p.w
	p.life++
	p.running, p.leaving = true, false
	p.pausedUntil = 0
	if w.upgrade != nil {
		w.upgrade(p)
	}
	p.name()
	p.entries, p.resting, p.single = make(map[int32]*entry), make(map[int32]memory), nil
	p.links = make([]link, len(w.shards)+1)
	w.running++
	w.runningMost = max(w.runningMost, w.running)
}

// kill ends it: what it holds is gone.
func (p *process) kill() {
	if !p.running {
		return
	}
	p.running = false
	p.w.running--
	p.end()
}

// end closes what it has open.
func (p *process) end() {
	for _, id := range p.entryIDs() {
		p.w.entries[id].finish()
	}
	p.arrival = 0
}

// entryIDs lists its entries in the order of their numbers: a map has none.
func (p *process) entryIDs() []int32 {
	return sortedValues(p.entries)
}

// leave has it give back, and end when everything has gone.
func (p *process) leave() {
	if !p.running {
		return
	}
	p.running, p.leaving = false, true
	p.w.running--
	p.arrival = 0
	for _, id := range p.entryIDs() {
		e := p.w.entries[id]
		for e.queue.head != nil {
			e.settle(e.queue.head, false, true)
		}
		e.leaving = true
		e.kick(true)
	}
}

// entry is its entry of a key, made or woken now where there is none.
func (p *process) entry(key int32) *entry {
	if p.single != nil {
		return p.single
	}
	if e := p.entries[key]; e != nil {
		return e
	}
	w := p.w
	e := w.newEntry()
	e.p, e.key, e.shard = p, key, key%int32(len(w.shards))
	e.holder.Start(p.local(), lease.HolderConfig{ID: strconv.Itoa(int(p.index)) + "." + strconv.Itoa(p.renames), Seed: p.holders.Uint64()}, &p.policy, p.config)
	if m, ok := p.resting[key]; ok {
		delete(p.resting, key)
		if p.local() < m.until {
			e.holder.Recall(m.of)
			e.known = m.known
		}
	}
	p.entries[key] = e
	if w.s.Keys.Count == 1 {
		p.single = e
	}
	e.kick(false)
	return e
}

// atRest remembers what an entry that is let go must know, until its time has passed, as hybrid's table does.
func (p *process) atRest(key int32, m memory) {
	p.resting[key] = m
	if len(p.resting) < p.forgetAt {
		return
	}
	for key, m := range p.resting { // in any order: what has passed is not looked at
		if p.local() >= m.until {
			delete(p.resting, key)
		}
	}
	p.forgetAt = 2*len(p.resting) + 64
}

// offer has it offer its part of the load from now on.
func (p *process) offer() {
	w := p.w
	p.arrival = 0
	load := p.group.load
	switch load.Kind {
	case scenario.Closed:
		w.seat(p)
		return
	case scenario.Replay:
		p.requests = w.replayer(p)
	case scenario.Adversary:
		p.requests = metronome(w.config.Target / 4)
	default:
		if p.rate <= 0 {
			return
		}
		p.requests = arrival.New(arrival.Source{
			W: load, Rate: p.rate, Index: p.rank, Of: len(p.group.members), Start: w.now, Duration: int64(w.s.Duration),
			Stream: &p.arrivals, Common: random.SeedOf(w.seed, p.group.place),
		})
	}
	p.next(w.now)
}

// next makes the event of the request after the one that was meant for the moment from.
func (p *process) next(from int64) {
	p.arrivalAt = p.requests.Next(from)
	if p.arrivalAt >= int64(p.w.s.Duration) {
		p.arrival = 0
		return
	}
	p.arrival = p.w.at(max(p.arrivalAt, p.w.now), evArrival, p.index)
}

// metronome asks at even intervals, the adversary's way to have its leases renewed.
type metronome int64

func (m metronome) Next(now int64) int64 { return now + int64(m) }

// draw is what p's next request asks for.
func (p *process) draw() (key int32, n int64) {
	if r, ok := p.requests.(*arrival.Replayer); ok {
		return p.w.replayed(r)
	}
	w := p.w
	if w.s.Keys.Count > 1 {
		key = int32(w.weights.Draw(&p.stream))
	}
	n = p.group.load.Cost.Min
	if most := p.group.load.Cost.Max; most > n {
		n += p.stream.Int64N(most - n + 1)
	}
	return key, n
}
