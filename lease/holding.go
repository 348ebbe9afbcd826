package lease

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// Account is where a holder's tokens went. At every report Granted = Admitted + Returned + Burnt +
// Held (Conserved). A refunded token stays counted as admitted, and in Refunded too; one that was
// drawn for a request which then was not admitted (Unused) is held until a report has brought it
// back, whatever the bucket still gives for it.
type Account struct {
	Granted  int64 // accepted from the bucket
	Admitted int64 // spent by takes, or given to requests that waited
	Returned int64 // given back in a call that the bucket executed
	Burnt    int64 // lost to an expired deadline, a void reply or a call that was given up
	Held     int64 // in the pool, unused, or on their way back
	Refunded int64 // of Admitted: reported as not having happened
}

// Conserved reports whether no token was lost or forged.
func (a Account) Conserved() bool {
	return a.Granted == a.Admitted+a.Returned+a.Burnt+a.Held && a.Held >= 0
}

// Plus adds two accounts.
func (a Account) Plus(o Account) Account {
	return Account{a.Granted + o.Granted, a.Admitted + o.Admitted, a.Returned + o.Returned,
		a.Burnt + o.Burnt, a.Held + o.Held, a.Refunded + o.Refunded}
}

// Ask is what one call asks for, beside what the Holding reports by itself.
type Ask struct {
	Config              Config
	Want, Need, Waiting int64
	Weight              int64
	// Return says how many of the held tokens to give back; nil gives none back.
	Return func(held int64) int64
}

// Accepted is what an accepted reply brought.
type Accepted struct {
	Waited   int64 // tokens for the requests that Ask.Waiting counted, and for them only
	Pooled   int64 // tokens added to the pool
	Reserved int64 // tokens withheld from the pool for who asked for them; they count as taken in Interval
	Interval Interval
	Drawn    Drawn // of all of them
}

// Drawn says when tokens left the bucket, in the bucket's own time. What comes back unused is worth
// what has not been refilled since. It is comparable within one epoch of the bucket. The zero value
// is worth nothing.
type Drawn struct{ epoch, running int64 }

// Holding is the holder's half of the protocol (docs/protocol.md section 5): one open call at a time,
// replies accepted once and for the open call only, and a deadline from the FIRST sending of the accepted
// call. It decides nothing about how much to ask for; Holder does. It owns the Pool; everything but the
// Pool's takes is serialised by its user's lock.
type Holding struct {
	Pool Pool

	id        string
	open      Request
	isOpen    bool
	firstSent clock.Instant
	deadline  clock.Instant // of the whole holding; at or past it nothing of it is spent or returned

	heard heard

	refund      int64 // admitted, and did not happen
	unused      int64 // drawn, since the running time unusedSince, for requests that were not admitted
	unusedSince int64
	debt        int64

	base     int64 // tokens in the pool when it was last counted
	lateSeen int64
	account  Account
}

// leaseSpan is the part of T for which the holder uses a lease; the rest covers the drift of two clocks
// against each other (1/16 is 62,500 ppm, a hundred times what quartz does).
func leaseSpan(ttl time.Duration) time.Duration { return ttl / 16 * 15 }

// init makes h usable. id identifies the holder to the bucket and must differ between processes.
func (h *Holding) init(id string, stripes int) {
	h.id = id
	h.Pool.init(stripes)
}

// Open builds the call with the given seq, which must be above all earlier ones, and closes any other.
// The result stays valid, and unchanged, until the next Open; it is sent at once.
func (h *Holding) Open(now clock.Instant, seq int64, ask Ask) *Request {
	h.GiveUp()
	h.Expire(now)
	if now >= h.heard.forgetAt {
		h.heard.forget()
	}
	giveBack := ask.Return
	if giveBack == nil {
		giveBack = func(int64) int64 { return 0 }
	}
	// A refund counts only where the bucket still knows the holder. After a pause it does not, so the first call
	// goes without, and the next one carries it. (Sending it again after a void reply would not do: an earlier
	// sending of the same call may have been credited.)
	refund, unused := int64(0), int64(0)
	if now >= h.deadline {
		h.burnUnused() // it has ended with the lease that it came with
	} else {
		refund, unused = min(h.refund, WaitingMax), h.unused
		h.refund, h.unused = 0, 0
	}
	held, returned := h.Pool.report(giveBack)
	h.counted(held)
	h.base = held - returned
	h.open = Request{
		Holder: h.id, Seq: seq, Config: ask.Config,
		Remaining: held - returned, Returned: returned, Unused: unused, Refund: refund, Debt: min(h.debt, WaitingMax),
		Want: ask.Want, Need: ask.Need, Waiting: ask.Waiting, Weight: ask.Weight,
	}
	if unused > 0 {
		h.open.Drawn = h.unusedSince
	}
	if e := &h.heard; e.epoch > 0 {
		h.open.Epoch, h.open.Counter = e.epoch, e.counter
		h.open.LeaseMax, h.open.HeardAt, h.open.HeardAge = e.leaseMax, e.serverTime, e.age(now)
	}
	h.isOpen = true
	h.firstSent = now
	return &h.open
}

// Resend returns the open call for one more sending, or nil where there is none, or where its grant would
// arrive with less than half of its time left.
func (h *Holding) Resend(now clock.Instant) *Request {
	if !h.isOpen || now.Sub(h.firstSent) > h.open.Config.TTL/2 {
		return nil
	}
	return &h.open
}

// GiveUp closes the open call. What it carried back may or may not have been credited, so it is burnt.
// A debt is reported again: reporting it twice only admits less.
func (h *Holding) GiveUp() {
	if h.isOpen {
		h.account.Burnt += h.open.Returned + h.open.Unused
		h.isOpen = false
	}
}

// Accept takes in a reply. It reports false, and changes nothing, for any reply but the first one
// to the open call, and for one that no bucket gives. Whatever a Store may say, no more is accepted
// than was asked for. Up to reserve tokens of what would go to the pool are withheld from it for
// requests that wait and were not counted by the call: otherwise a Take could overtake them in
// between.
func (h *Holding) Accept(now clock.Instant, g *Grant, reserve int64) (Accepted, bool) {
	if min(g.Granted, g.Waited, g.Epoch, g.Counter, g.Running) < 0 || g.Config.TTL <= 0 {
		return Accepted{}, false
	}
	if !h.isOpen || g.Seq != h.open.Seq {
		return Accepted{}, false
	}
	h.isOpen = false
	h.debt -= h.open.Debt
	if g.Void {
		h.account.Burnt += h.open.Returned + h.open.Unused
	} else {
		h.account.Returned += h.open.Returned + h.open.Unused
		h.account.Refunded += h.open.Refund
	}
	h.Expire(now)
	if g.Void {
		h.burn()
	}
	h.setDeadline(h.firstSent.Add(leaseSpan(g.Config.TTL)))
	granted := min(g.Granted, h.open.Want)
	waited := min(g.Waited, h.open.Waiting, granted)
	pooled := granted - waited
	h.account.Granted += granted
	h.account.Admitted += waited
	reserved := min(max(reserve, 0), pooled)
	if now >= h.deadline { // the grant itself has come too late
		h.account.Burnt += pooled
		pooled, reserved = 0, 0
	}
	h.account.Admitted += reserved
	h.Pool.add(pooled - reserved)
	h.base += pooled - reserved
	h.Expire(now)

	if g.Epoch != h.heard.epoch {
		h.burnUnused()
	}
	h.heard.hear(now, h.firstSent, &h.open, g)
	return Accepted{Waited: waited, Pooled: pooled - reserved, Reserved: reserved, Interval: h.Pool.Interval(), Drawn: h.Drawn()}, true
}

// Drawn is the stamp of tokens that are taken from the pool now: they have counted as held by this
// process until the last reply at least.
func (h *Holding) Drawn() Drawn { return Drawn{h.heard.epoch, h.heard.running} }

// Expire burns a holding whose deadline has come and reports whether it did.
func (h *Holding) Expire(now clock.Instant) bool {
	if now < h.deadline {
		return false
	}
	return h.burn() > 0
}

// Deadline is when the holding expires; it means nothing while the pool is empty.
func (h *Holding) Deadline() clock.Instant { return h.deadline }

// IsOpen reports whether a call is under way or waits for its retry.
func (h *Holding) IsOpen() bool { return h.isOpen }

// PutBack gives back n tokens that were taken in one report interval and not used: to the pool where no report has been
// built since, otherwise with the next call. drawn is of the oldest of them.
func (h *Holding) PutBack(n int64, in Interval, drawn Drawn) {
	if n <= 0 {
		return
	}
	// Tokens reserved from a grant were booked as admitted at once, those from the pool are at the next count.
	h.recount()
	if h.Pool.put(n, in) {
		h.account.Admitted -= n
		h.base += n
		return
	}
	h.Unused(n, drawn)
}

// Forfeit burns n tokens that were drawn for a request which was not admitted before their lease ended.
func (h *Holding) Forfeit(n int64) {
	h.recount()
	h.account.Admitted -= n
	h.account.Burnt += n
}

// Unused gives back, with the next call, n tokens that were drawn for a request which was not
// admitted, at drawn the earliest. Unlike refunded ones they never count as admitted. Those of an
// earlier epoch of the bucket are burnt: it has been set anew since, or it is another one.
func (h *Holding) Unused(n int64, drawn Drawn) {
	if n <= 0 {
		return
	}
	h.recount()
	h.account.Admitted -= n
	if drawn.epoch == 0 || drawn.epoch != h.heard.epoch || h.unused+n > WaitingMax {
		h.account.Burnt += n
		return
	}
	if h.unused == 0 {
		h.unusedSince = drawn.running
	}
	h.unused, h.unusedSince = h.unused+n, min(h.unusedSince, drawn.running)
}

func (h *Holding) burnUnused() {
	h.account.Burnt += h.unused
	h.unused = 0
}

// Refund reports n admitted tokens as not having happened, with the next call.
func (h *Holding) Refund(n int64) {
	h.refund += n
}

// Owe reports n tokens that were admitted without a grant.
func (h *Holding) Owe(n int64) { h.debt += n }

// Account says where the tokens went, up to now.
func (h *Holding) Account() Account {
	h.recount()
	a := h.account
	a.Held = h.base + h.unused
	if h.isOpen {
		a.Held += h.open.Returned + h.open.Unused
	}
	return a
}

// Rename burns the holding and goes on under another id. It is the answer to ErrStale: somebody else, such as a
// clone of this machine, calls under the present one.
func (h *Holding) Rename(id string) {
	h.GiveUp()
	h.burn()
	h.id = id
	h.burnUnused()
	h.heard.forget()
	h.setDeadline(0) // the new id is not known yet: no refund may travel with its first call
}

func (h *Holding) burn() int64 {
	held := h.Pool.drain()
	h.counted(held)
	h.account.Burnt += held
	h.base = 0
	return held
}

// counted books what was taken since the pool was last counted, now that it holds held tokens.
func (h *Holding) counted(held int64) {
	late := h.Pool.late.Load()
	h.account.Admitted += h.base - held - (late - h.lateSeen)
	h.account.Burnt += late - h.lateSeen
	h.lateSeen = late
	h.base = held
}

// recount is counted without a new report interval.
func (h *Holding) recount() { h.counted(h.Pool.Held()) }

func (h *Holding) setDeadline(at clock.Instant) {
	h.deadline = at
	h.Pool.deadline.Store(int64(at))
}
