package lease

import "time"

// Steps 1 to 3 of docs/protocol.md section 4: time, refill, and forgetting what has run out.

// clockSwing is the longest step back of the server's clock after which the running time waits for
// it. Clocks that disagree a little, as those of callers do where they are used instead of the
// server's, would otherwise make every other call a step forward.
const clockSwing = time.Second

// settle brings the levels and the ledger to the server's time clock.
func (b *Bucket) settle(clock int64) {
	s := &b.state
	if !s.exists {
		return
	}
	if clock < s.clock && s.clock-clock <= micros(clockSwing) {
		clock = s.clock
	}
	at := s.now
	now := at + max(0, clock-s.clock)
	s.clock = clock
	// Where holdings ran out, refill up to that moment with the ledger that still holds them.
	// Refilling after forgetting would credit time during which the ledger was full.
	last := at/s.ring.width + ringSlices
	for ends := s.ring.ends(); ends <= now && s.ring.base < last; ends = s.ring.ends() {
		if s.ring.held[s.ring.base%ringSlices] != 0 {
			b.refill(at, ends)
			at = ends
		}
		s.ring.expire()
	}
	s.ring.base = now / s.ring.width
	b.refill(at, now)
	s.now = now
}

// refill is step 2 for the interval (from, to], during which the ledger does not change.
func (b *Bucket) refill(from, to int64) {
	s := &b.state
	from = max(from, s.frozen)
	if to <= from {
		return
	}
	ledger := s.ring.ledger()
	for k := range b.config.Limits {
		sc := &b.scales[k]
		room := b.room(k, ledger) - s.level[k]
		if room <= 0 {
			s.rest[k] = 0
			continue
		}
		// The product is formed only where it is below room + step, which is below 2^53.
		elapsed := to - from + s.rest[k]
		ticks := elapsed / sc.Tick
		if ticks >= (room+sc.Step-1)/sc.Step {
			s.level[k] += room
			s.rest[k] = 0
			continue
		}
		s.level[k] += ticks * sc.Step
		s.rest[k] = elapsed % sc.Tick
		b.brim(k, room-ticks*sc.Step)
	}
}

// room is how far level k may fill while ledger tokens are held: B, or B + E - O where that is
// less.
func (b *Bucket) room(k int, ledger int64) int64 {
	sc := &b.scales[k]
	return max(0, min(sc.Capacity, sc.Capacity+b.config.Overcommit-ledger)) * sc.Unit
}

// brim drops the rest of level k where it is full; room is how many units it is short of that.
// Between two coarse ticks the level of one central bucket goes on rising and stops at the brim. A
// rest that already reaches the brim counts now, or it would be credited again after the next draw.
func (b *Bucket) brim(k int, room int64) {
	s, sc := &b.state, &b.scales[k]
	if room <= 0 || room < sc.Step && room*sc.Tick <= sc.Step*s.rest[k] { // a negative room may not be multiplied
		s.level[k] += max(room, 0)
		s.rest[k] = 0
	}
}

// clip ends step 2: no level is above its room.
func (b *Bucket) clip() {
	ledger := b.state.ring.ledger()
	for k := range b.config.Limits {
		b.state.level[k] = min(b.state.level[k], b.room(k, ledger))
	}
}
