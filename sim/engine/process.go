package engine

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/random"
)

// process is one member of the fleet. Killed and started again it is another one to everybody else
// (life), with the same clock and the same place in its group.
type process struct {
	clocks
	index int32
	group *group
	rank  int   // in its group
	life  int32 // how often it has been started
	state processState

	pausedUntil int64 // 0 while it is not stopped

	entries  map[int32]*entry // by key
	single   *entry           // the only key's, where there is one key
	resting  map[int32]memory
	forgetAt int    // look for what may be forgotten when so many rest
	seq      int64  // of its lease calls
	id       string // its instance id
	renames  int
	policy   lease.Policy
	config   lease.Config // that it proposes

	stream   random.Stream // of what its requests ask for, and how patient they are
	pauses   random.Stream
	restarts random.Stream
	holders  random.Stream // of the jitter of its holders

	reservations random.Stream // of what reserved requests cost in the end
}

// processState says what a process does.
type processState uint8

const (
	down    processState = iota
	running              // it serves requests
	leaving              // it serves none, and gives back before it ends
)

// rename gives it another instance id.
func (p *process) rename() string {
	p.renames++
	p.id = strconv.Itoa(int(p.index)) + "." + strconv.Itoa(p.renames)
	return p.id
}

// sees is when a process that is stopped handles an event. When it goes on it serves some requests
// before its timers and sockets.
func (p *process) sees(kind eventKind) int64 {
	if kind == evArrival || kind == evUser {
		return p.pausedUntil
	}
	return p.pausedUntil + 1000
}

// rest remembers what an entry that is let go must know, until its time has passed, as hybrid's
// table does.
func (p *process) rest(bucket int32, m memory, now clock.Instant) {
	p.resting[bucket] = m
	if len(p.resting) < p.forgetAt {
		return
	}
	for bucket, m := range p.resting { // in any order: what has passed is not looked at
		if now >= m.until {
			delete(p.resting, bucket)
		}
	}
	p.forgetAt = 2*len(p.resting) + 64
}

// localStart is what every process's monotonic clock shows at the beginning.
const localStart = int64(time.Hour)

// clocks are a process's monotonic clock, which may be too fast or too slow, and its wall clock,
// which goes with it and may be set wrong.
type clocks struct{ offset, drift int64 } // nanoseconds, parts per million

// ticks is what the oscillator has counted at true time now.
func (c clocks) ticks(now int64) int64 {
	if c.drift == 0 {
		return now
	}
	return now + now/1_000_000*c.drift + now%1_000_000*c.drift/1_000_000
}

// local is the monotonic clock at true time now.
func (c clocks) local(now int64) clock.Instant { return clock.Instant(localStart + c.ticks(now)) }

// wall is the wall clock at true time now, in microseconds.
func (c clocks) wall(now int64) int64 { return serverStart + (c.ticks(now)+c.offset)/1000 }

// when is the true time at which the monotonic clock shows at, but not before now.
func (c clocks) when(now int64, at clock.Instant) int64 {
	ticks, speed := int64(at)-localStart, uint64(1_000_000+c.drift)
	if ticks <= 0 {
		return now
	}
	// ticks(t) is t*speed/10^6, rounded down where the clock is fast, and up where it is slow.
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

// after is the true time at which the monotonic clock has gone on for d.
func (c clocks) after(now int64, d time.Duration) int64 { return c.when(now, c.local(now).Add(d)) }
