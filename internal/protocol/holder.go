package protocol

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// holder makes the calls that Client decides on, and accepts replies: docs/protocol.md section 5.
type holder struct {
	Pool pool.Pool

	id        string
	open      lease.Request // the last call built
	calling   bool          // open is under way
	isOpen    bool          // a reply to open may still be accepted
	firstSent clock.Instant // when open was first sent
	ended     int64         // the highest seq of a call that was answered or has failed

	heard Heard

	unused, refund lates // late tokens to give back, dated by the bucket's running time
	debt, charge   lates // late tokens to report until a reply confirms them, dated by the process's clock
	openDebt       lates
	openCharge     lates
	reported       int64 // heard.running at the start of the present report interval
	disowned       int64 // draws up to this running time belong to another id; see rename

	lent     bool  // Unlimited has lent the tokens in the pool, which are not in the ledger (6.17)
	base     int64 // tokens in the pool when they were last counted
	lateSeen int64 // result of Pool.Late at the last count
	account  Account
}

// ask has the demand of a call, to which the holder adds its report.
type ask struct {
	Config              lease.Config
	Want, Need, Waiting int64
	Denied              int64
	Weight              int64
	Headroom            float64
	Server              int64                  // the server's clock, in microseconds; 0 if unknown
	Return              func(held int64) int64 // how many of the held tokens to give back; nil means none
}

// Accepted has the tokens of an accepted reply, which Client.Serve hands out.
type Accepted struct {
	Waited   int64     // tokens for the requests that ask.Waiting counted
	Reserved int64     // tokens for requests in line; they count as taken from the pool
	draw     pool.Draw // the draw of Waited and Reserved
}

func (h *holder) init(id string, stripes int) {
	h.id = id
	h.Pool.Init(stripes)
}

// openCall ends the open call, if any, and builds the call with number seq. The request is valid until the
// next openCall.
func (h *holder) openCall(now clock.Instant, seq int64, a ask) *lease.Request {
	h.giveUp()
	h.Expire(now)
	if h.heard.epoch != 0 && h.heard.expired(now) {
		h.heard.lineage = lineage{}
		h.burnUnused() // the bucket may have expired: a new bucket starts full
		h.publish()
	}
	// Refund and unused travel only if the bucket knows the holder: after a pause with the second call (5.9).
	var reports []lease.Late
	if now < h.Deadline() {
		reports = h.refund.back(lease.LateRefund, h.unused.back(lease.LateUnused, nil))
		h.refund, h.unused = nil, nil
	}
	h.debt.join(usedBy(now, a.Server, a.Config.Limits))
	h.charge.join(usedBy(now, a.Server, a.Config.Limits))
	reports = h.charge.taken(now, lease.LateCharge, h.debt.taken(now, lease.LateDebt, reports))
	h.openDebt, h.openCharge, h.debt, h.charge = h.debt, h.charge, nil, nil
	held, returned := h.Pool.Report(a.Return)
	h.reported = h.heard.running
	h.counted(held)
	h.base = held - returned
	remaining := h.base
	if h.lent {
		h.account.Burnt += returned
		remaining, returned = 0, 0
	}
	h.open = lease.Request{
		Holder: h.id, Seq: seq, Config: a.Config,
		Remaining: remaining, Returned: returned,
		Late: reports,
		Want: a.Want, Need: a.Need, Waiting: a.Waiting, Denied: a.Denied,
		Weight: a.Weight, Headroom: a.Headroom,
	}
	h.heard.prove(now, &h.open)
	h.isOpen = true
	h.firstSent = now
	return &h.open
}

// resend returns the open call if it is due for a retry (5.2), or nil.
func (h *holder) resend(now clock.Instant) *lease.Request {
	if h.open.Draw || !h.isYoung(now) {
		return nil
	}
	return &h.open
}

// isYoung reports whether a call is open and young enough for a retry (5.2).
func (h *holder) isYoung(now clock.Instant) bool {
	return h.isOpen && now.Sub(h.firstSent) <= h.open.Config.TTL/2
}

// giveUp closes the open call. The tokens that the call returned are burnt, because the bucket may have
// credited them. The next call reports debt and charge again.
func (h *holder) giveUp() {
	if h.isOpen {
		h.account.Burnt += h.open.Returned + Reported(h.open.Late, lease.LateUnused)
		h.debt, h.charge = append(h.openDebt, h.debt...), append(h.openCharge, h.charge...)
		h.isOpen, h.openDebt, h.openCharge = false, nil, nil
	}
}

// accept processes the reply to the open call (5.3). Any other reply changes nothing, and ok is false. Up to
// reserve tokens stay out of the pool, for requests in line. If burns is set, no token stays held.
func (h *holder) accept(now clock.Instant, g *lease.Grant, reserve int64, burns bool) (got Accepted, ok bool) {
	if min(g.Granted, g.Waited, g.Epoch, g.Counter, g.Running) < 0 || g.Config.TTL <= 0 {
		return Accepted{}, false
	}
	if !h.isOpen || g.Seq != h.open.Seq {
		return Accepted{}, false
	}
	h.isOpen, h.openDebt, h.openCharge = false, nil, nil
	h.Expire(now)
	if burns {
		h.burn()
	}
	if back := h.open.Returned + Reported(h.open.Late, lease.LateUnused); g.Void {
		h.account.Burnt += back
		h.burn()
	} else {
		h.account.Returned += back
		h.account.Refunded += Reported(h.open.Late, lease.LateRefund)
	}
	if !h.open.Draw { // a draw leases nothing, so the bucket may not know the holder
		h.Pool.SetDeadline(h.firstSent.Add(leaseSpan(g.Config.TTL)))
	}
	granted := min(g.Granted, h.open.Want)
	got.Waited = min(g.Waited, h.open.Waiting, granted)
	switch {
	case SwitchOf(g.Config.Limits) == SwitchUnlimited:
		h.lent, granted = true, h.open.Want // under Unlimited the bucket grants only the waited tokens
	case h.lent:
		h.burn()
	}
	pooled := granted - got.Waited
	h.account.Granted += granted
	if burns || now >= h.Deadline() { // the grant may have come after its deadline
		h.account.Burnt += pooled
		pooled = 0
	}
	got.Reserved = min(max(reserve, 0), pooled)
	h.account.Admitted += got.Waited + got.Reserved
	h.Pool.Add(pooled - got.Reserved)
	h.base += pooled - got.Reserved
	h.Expire(now)

	switch h.heard.epoch {
	case g.Epoch:
	case 0: // refunds of unknown draws count as drawn at the first reply (5.8)
		for i := range h.refund {
			h.refund[i].first, h.refund[i].last = g.Running, g.Running
		}
	default:
		h.burnUnused()
	}
	h.heard.hear(now, h.firstSent, &h.open, g)
	h.publish()
	got.draw = h.Pool.Drawn()
	return got, true
}

// publish dates the draw of the pool's tokens by the last reply, when they were in the ledger. A draw of lent
// tokens has no epoch, because the bucket never had the tokens.
func (h *holder) publish() {
	if h.lent {
		h.Pool.SetDrawn(0, h.heard.running)
	} else {
		h.Pool.SetDrawn(h.heard.epoch, h.heard.running)
	}
}

// Expire burns a holding whose deadline has passed.
func (h *holder) Expire(now clock.Instant) {
	// In an outage every request may call Expire: do not begin a report interval each time, because their
	// numbers wrap (5.7).
	if now >= h.Deadline() && h.Pool.Held() > 0 {
		h.burn()
	}
}

// Never is later than any reading of a clock.
const Never = clock.Instant(1<<63 - 1)

func (h *holder) endsAt() clock.Instant {
	if h.Pool.Held() == 0 {
		return Never
	}
	return h.Deadline()
}

// Deadline returns the time at which the whole holding expires. While the pool is empty, Deadline means
// nothing.
func (h *holder) Deadline() clock.Instant { return h.Pool.Deadline() }

// IsOpen reports whether a call is under way or may be retried.
func (h *holder) IsOpen() bool { return h.isOpen }

func (h *holder) notAdmitted(n int64) {
	h.counted(h.Pool.Held()) // first book the takes from the pool as admitted
	h.account.Admitted -= n
}

// putBack returns n unused tokens of draw d to the pool, from which they came, or with the next call (5.7).
// The running time of d rules out an older interval with the same number.
func (h *holder) putBack(now clock.Instant, n int64, d pool.Draw) {
	if n > 0 && now < h.Deadline() && d.Running >= h.reported && h.Pool.Put(n, d.Interval) {
		h.base += n
		h.notAdmitted(n)
		return
	}
	h.sendBack(n, d)
}

// sendBack returns n unused tokens of draw d with the next call, or burns those that h does not own.
func (h *holder) sendBack(n int64, d pool.Draw) {
	if n <= 0 {
		return
	}
	if !h.owns(d) || n > lease.WaitingMax-h.unused.sum() {
		h.burnTaken(n)
		return
	}
	h.notAdmitted(n)
	h.unused.add(n, d.Running, h.drawnBy())
}

// owns reports whether the draw d was made in this epoch of the bucket and under this id.
func (h *holder) owns(d pool.Draw) bool {
	return d.Epoch != 0 && d.Epoch == h.heard.epoch && d.Running > h.disowned
}

func (h *holder) burnTaken(n int64) {
	h.notAdmitted(n)
	h.account.Burnt += n
}

// burnUnused burns the unused tokens that wait for a report, and drops the refunds.
func (h *holder) burnUnused() {
	h.account.Burnt += h.unused.sum()
	h.unused, h.refund = nil, nil
}

// Refund reports with the next call that n admitted tokens of draw d, nil if unknown, were not used (5.8).
// Tokens that Unlimited has lent need no refund.
func (h *holder) Refund(n int64, d *pool.Draw) {
	switch {
	case d != nil && h.owns(*d):
		h.refund.add(n, d.Running, h.drawnBy())
	case d == nil && !h.lent:
		h.refund.add(n, h.heard.running, h.drawnBy())
	}
}

// drawnBy returns the dating of draws, whose times are running times of the bucket.
func (h *holder) drawnBy() dating {
	return dating{true, h.heard.limits, h.heard.serverTime, h.heard.running, 1}
}

// owes reports whether the next call must report late tokens (5.8).
func (h *holder) owes() bool { return len(h.unused)+len(h.refund)+len(h.debt)+len(h.charge) > 0 }

// rename burns the holding and takes another id after ErrStale (5.12). Another process has the old id, and
// may give back the earlier draws.
func (h *holder) rename(id string) {
	h.giveUp()
	h.burn()
	h.id = id
	h.burnUnused()
	h.disowned = max(h.disowned, h.heard.running)
	h.heard.lineage = lineage{}
	h.publish()
	h.Pool.SetDeadline(0) // the first call of a new id carries no refund (5.9)
}

func (h *holder) burn() {
	held := h.Pool.Drain()
	h.counted(held)
	h.account.Burnt += held
	h.base, h.lent = 0, false
}

// counted books the tokens taken since the last call of counted. held is the number of tokens in the pool.
func (h *holder) counted(held int64) {
	late := h.Pool.Late()
	h.account.Admitted += h.base - held - (late - h.lateSeen)
	h.account.Burnt += late - h.lateSeen
	h.lateSeen = late
	h.base = held
}

// BurnLate books tokens as burnt that takes found late after Close (StrictExpiry), and returns their number.
func (h *holder) BurnLate() int64 {
	n := h.Pool.Late() - h.lateSeen
	h.lateSeen += n
	h.account.Admitted -= n
	h.account.Burnt += n
	return n
}

// here returns how many tokens this process holds or is about to give back.
func (h *holder) here() int64 {
	n := h.Pool.Held() + h.refund.sum() + h.unused.sum()
	if h.isOpen {
		n += h.open.Returned + Reported(h.open.Late, lease.LateRefund) + Reported(h.open.Late, lease.LateUnused)
	}
	return n
}

// Account books a holder's tokens: Granted = Admitted + Returned + Burnt + Held. Refunded tokens stay in
// Admitted. Unused tokens count as held until the bucket has executed their report.
type Account struct {
	Granted  int64 // accepted from the bucket
	Admitted int64 // taken from the pool, or handed to waiting requests
	Returned int64 // given back in a call that the bucket executed
	Burnt    int64 // lost to an expired deadline, a void reply or a call that was given up
	Held     int64 // unused in the pool, or on the way back to the bucket
	Refunded int64 // admitted tokens that were refunded
}

// Conserved reports whether every token is accounted for exactly once.
func (a Account) Conserved() bool {
	return a.Granted == a.Admitted+a.Returned+a.Burnt+a.Held && a.Held >= 0
}

// Plus returns the sum of two accounts.
func (a Account) Plus(o Account) Account {
	return Account{a.Granted + o.Granted, a.Admitted + o.Admitted, a.Returned + o.Returned,
		a.Burnt + o.Burnt, a.Held + o.Held, a.Refunded + o.Refunded}
}

// Account returns the account up to now.
func (h *holder) Account() Account {
	h.counted(h.Pool.Held())
	a := h.account
	a.Held = h.base + h.unused.sum()
	if h.isOpen {
		a.Held += h.open.Returned + Reported(h.open.Late, lease.LateUnused)
	}
	return a
}
