package protocol

import (
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Heard is the last reply about the bucket. Any goroutine may read a copy. The zero Heard means no reply.
type Heard struct {
	Memory
	headroom  float64 // Policy.Headroom, by which levels are below the bucket's levels
	contended bool    // a holder lately asked for more than the level while others held tokens
	active    int64   // sum of the weights of all holders
	limits    []lease.Limit
	levels    [lease.LimitsMax]int64         // whole tokens
	next      [lease.LimitsMax]time.Duration // until a level has one token more; 0 for a full level
	at        clock.Instant                  // time of the reply; 0 if none has arrived since the key became active
	others    int64                          // tokens that other processes held and may give back
	frozen    time.Duration                  // time from the reply to the end of a freeze
	// At the reply the bucket lacked the shortOf tokens that the call needed, and cannot have them before
	// shortUntil; shortOf is 0 if the bucket had enough. shortOf and shortUntil are more exact than levels
	// and next, because the bucket counts fractions of tokens.
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

// Replied reports whether any reply has arrived.
func (h *Heard) Replied() bool { return h.replied }

// Frozen reports whether the bucket was frozen at the time of the reply, after a loss.
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

// Limits returns the bucket's limits by the last reply. The caller must not change the slice.
func (h *Heard) Limits() []lease.Limit { return h.limits }

// binding returns the index of the limit with the longest wait for the tokens that the last call needed.
func (h *Heard) binding() (k int) {
	n := max(1, h.shortOf)
	for i := range h.limits {
		if h.until(i, n) > h.until(k, n) {
			k = i
		}
	}
	return k
}

// earliest returns a time before which n tokens cannot exist, even if the other holders gave all tokens back.
func (h *Heard) earliest(n int64) clock.Instant {
	at := h.executed
	n -= h.others
	further := time.Duration(math.MaxInt64) // refill time of the tokens beyond shortOf, by the fastest limit
	for k, l := range h.limits {
		at = max(at, h.executed.Add(h.until(k, n)))
		further = min(further, timeFor(l, n-h.shortOf))
	}
	if h.shortOf > 0 && n >= h.shortOf {
		at = max(at, h.shortUntil.Add(further))
	}
	return at
}

// Outlook is the information about a key that accompanies a decision.
type Outlook struct {
	Limit      lease.Limit   // the limit with the smallest part of its burst left; for a denial, with the longest wait
	Remaining  int64         // tokens of Limit in the process and in the bucket, 0 to the burst less headroom
	RetryAfter time.Duration // until the requested tokens can exist, at least 1 ns
	ResetAfter time.Duration // until Remaining is the burst, without further draws
}

// Outlook returns the Outlook at now of a request for n tokens by a process that held held tokens.
func (h *Heard) Outlook(now clock.Instant, n, held int64, admitted bool) Outlook {
	var o Outlook
	since := now.Sub(h.at)
	least := 2.0 // above any fraction of a burst: no limit yet
	longest := time.Duration(math.MinInt64)
	for k, l := range h.limits {
		capacity := grantable(l, h.headroom)
		left := min(capacity, h.levels[k]+held)
		wait := h.until(k, n-held) - since
		if h.shortOf > 0 && len(h.limits) == 1 && n-held >= h.shortOf {
			// Count as if the bucket had executed the call at the reply, so that no caller retries too early.
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
				reset = l.TimeToFull() // by then the latest charges are dropped
			}
			o.ResetAfter = max(0, reset-since)
		}
	}
	o.RetryAfter = max(longest, 1)
	return o
}

// until returns how long after the reply level k has n tokens, without further draws. A sliding window
// regains one token or more when its oldest cell is dropped, perhaps all tokens.
func (h *Heard) until(k int, n int64) time.Duration {
	l, missing := h.limits[k], n-h.levels[k]
	if missing > 0 && h.next[k] > 0 {
		return h.next[k] + timeFor(l, missing-1)
	}
	return timeFor(l, missing)
}

// timeFor returns how long the limit l takes to refill n tokens, at most 292 years. The result is 0 for a
// window, which regains tokens when old charges are dropped, perhaps all at once.
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

// GrantOutlook returns the Outlook of a request for n tokens that g admitted, by a process that holds none.
func GrantOutlook(g *lease.Grant, n int64, headroom float64) Outlook {
	h := Heard{limits: g.Config.Limits, levels: g.Levels, next: g.Next, headroom: headroom}
	return h.Outlook(0, n, 0, true)
}

// StateOutlook returns the Outlook of a request for n tokens at the time of s, the Status of a State, by a
// process that holds held tokens and has this Policy.Headroom.
func StateOutlook(s *lease.Status, n, held int64, headroom float64, admitted bool) Outlook {
	h := Heard{limits: s.Config.Limits, levels: s.Levels, next: s.Next, headroom: headroom}
	for k, l := range h.limits {
		h.levels[k] -= l.Capacity() - grantable(l, headroom)
	}
	return h.Outlook(0, n, held, admitted)
}

// drawnBy returns the dating of tokens drawn at running times of the bucket, by the last reply.
func (h *Heard) drawnBy() dating { return dating{true, h.limits, h.serverTime, h.running, 1} }
