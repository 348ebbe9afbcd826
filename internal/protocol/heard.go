package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Heard is the last reply about the bucket, a value: any goroutine may read a copy. Zero means no reply.
type Heard struct {
	Memory
	headroom  float64 // Policy.Headroom; levels are lower than the bucket's by it
	contended bool    // another holder could not be served because of the tokens that others hold
	active    int64   // sum of the weights of all holders
	limits    []lease.Limit
	levels    [lease.LimitsMax]int64         // whole tokens
	next      [lease.LimitsMax]time.Duration // until a level has one token more; 0 for a full level
	at        clock.Instant                  // time of the reply; 0 if none has come since the key came into use
	others    int64                          // tokens that other processes held, which they may give back
	frozen    time.Duration                  // counted from the reply, during a freeze
	// At the reply the bucket had fewer tokens than the shortOf that were needed, and it cannot have them
	// before shortUntil; shortOf is 0 if it had them. The two are more exact than levels and next, because
	// the bucket counts fractions of tokens.
	shortOf    int64
	shortUntil clock.Instant
}

// hear records the reply g to the call open, which was first sent at sent.
func (h *Heard) hear(now, sent clock.Instant, open *lease.Request, g *lease.Grant) {
	h.Memory.hear(sent, open.Weight, h.counts(sent, open), g)
	h.at, h.frozen, h.contended, h.active = now, g.Frozen, g.Contended, g.ActiveWeight
	h.levels, h.next = g.Levels, g.Next
	h.others = max(0, g.Ledger-open.Remaining-(g.Granted-g.Waited))
	h.shortOf, h.shortUntil = 0, 0
	if g.RetryAfter > 0 {
		h.shortOf, h.shortUntil = max(1, open.Need), sent.Add(g.RetryAfter)
	}
}

// Replied reports whether any reply has come.
func (h *Heard) Replied() bool { return h.replied }

// Frozen reports whether the bucket was frozen after a loss at the reply.
func (h *Heard) Frozen() bool { return h.frozen > 0 }

// counts reports whether the reply to open names all processes that call as often as this one (8.14).
func (h *Heard) counts(sent clock.Instant, open *lease.Request) bool {
	return !open.Draw && h.at > 0 && sent.Sub(h.executed) <= h.ttl
}

func (h *Heard) level() int64 {
	least := h.levels[0]
	for k := range h.limits {
		least = min(least, h.levels[k])
	}
	return least
}

// Limits returns the bucket's limits by the last reply. The caller must not change them.
func (h *Heard) Limits() []lease.Limit { return h.limits }

// binding returns the first of the limits with the longest wait for the tokens that the last call needed.
func (h *Heard) binding() (k int) {
	n := max(1, h.shortOf)
	for i := range h.limits {
		if h.until(i, n) > h.until(k, n) {
			k = i
		}
	}
	return k
}

// earliest returns a time before which n tokens cannot exist, even if the others gave all of theirs back.
func (h *Heard) earliest(n int64) clock.Instant {
	at := h.executed
	n -= h.others
	further := time.Duration(math.MaxInt64) // for the tokens beyond shortOf, by the fastest of the limits
	for k, l := range h.limits {
		at = max(at, h.executed.Add(h.until(k, n)))
		further = min(further, timeFor(l, n-h.shortOf))
	}
	if h.shortOf > 0 && n >= h.shortOf {
		at = max(at, h.shortUntil.Add(further))
	}
	return at
}

// Outlook is the information about a key that goes with a decision.
type Outlook struct {
	Limit      lease.Limit   // the limit with the smallest part of its burst left; for a denial, with the longest wait
	Remaining  int64         // tokens of Limit in the process and in the bucket, 0 to the burst less headroom
	RetryAfter time.Duration // until the tokens can exist, at least 1 ns
	ResetAfter time.Duration // until Remaining is the burst, without further draws
}

// Outlook judges at now a request for n tokens by a process that held held tokens.
func (h *Heard) Outlook(now clock.Instant, n, held int64, admitted bool) Outlook {
	var o Outlook
	since := now.Sub(h.at)
	least := 2.0 // above any part of a burst
	longest := time.Duration(math.MinInt64)
	for k, l := range h.limits {
		capacity := grantable(l, h.headroom)
		left := min(capacity, h.levels[k]+held)
		wait := h.until(k, n-held) - since
		if h.shortOf > 0 && len(h.limits) == 1 && n-held >= h.shortOf {
			// Count as if the bucket had executed the call at its reply: no caller may come back too early.
			wait = h.shortUntil.Sub(h.executed) + timeFor(l, n-held-h.shortOf) - since
		}
		part := float64(left) / float64(capacity)
		binding := part < least
		if !admitted {
			binding = wait > longest
		}
		if binding {
			least, longest = part, wait
			o.Limit, o.Remaining = l, max(left, 0)
			reset := h.until(k, capacity-held)
			if capacity-held > h.levels[k] && l.Kind == lease.KindSliding {
				reset = l.TimeToFull() // the latest charges are dropped by then
			}
			o.ResetAfter = max(0, reset-since)
		}
	}
	o.RetryAfter = max(longest, 1)
	return o
}

// until returns how long after the reply level k has n tokens, without further draws. A sliding window gets
// one token more when its oldest cell is dropped, and perhaps all of them.
func (h *Heard) until(k int, n int64) time.Duration {
	l, missing := h.limits[k], n-h.levels[k]
	if missing > 0 && h.next[k] > 0 {
		return h.next[k] + timeFor(l, missing-1)
	}
	return timeFor(l, missing)
}

// timeFor returns how long l takes to make n tokens, at most 292 years. A window makes none with time: its
// tokens come when old spending is no longer counted, perhaps all at once.
func timeFor(l lease.Limit, n int64) time.Duration {
	d := float64(max(n, 0)) / float64(l.Tokens) * float64(l.Per)
	switch {
	case l.Windowed():
		return 0
	case d >= math.MaxInt64:
		return math.MaxInt64
	}
	return time.Duration(d)
}

// GrantOutlook judges a request for n tokens that g admitted, by a process that holds nothing.
func GrantOutlook(g *lease.Grant, n int64, headroom float64) Outlook {
	h := Heard{limits: g.Config.Limits, levels: g.Levels, next: g.Next, headroom: headroom}
	return h.Outlook(0, n, 0, true)
}

// StateOutlook judges a request for n tokens at the time of s, the Status of a State, by a process that holds
// held tokens and has this Policy.Headroom.
func StateOutlook(s *lease.Status, n, held int64, headroom float64, admitted bool) Outlook {
	h := Heard{limits: s.Config.Limits, levels: s.Levels, next: s.Next, headroom: headroom}
	for k, l := range h.limits {
		h.levels[k] -= l.Capacity() - grantable(l, headroom)
	}
	return h.Outlook(0, n, held, admitted)
}

// drawnBy returns the dating of tokens drawn at running times of the bucket, by the last reply.
func (h *Heard) drawnBy() dating { return dating{true, h.limits, h.serverTime, h.running, 1} }
