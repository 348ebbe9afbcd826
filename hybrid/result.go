package hybrid

import (
	"fmt"
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Source says what a decision rests on.
type Source int

const (
	// SourceLocal: tokens that this process held, or what it last heard of the bucket.
	SourceLocal Source = iota
	// SourceStore: the answer of a lease call made for this request.
	SourceStore
	// SourceFallback: Policy.Fallback or Policy.ColdStart, because the store did not answer.
	SourceFallback
)

// String is "local", "store" or "fallback".
func (s Source) String() string {
	switch s {
	case SourceLocal:
		return "local"
	case SourceStore:
		return "store"
	case SourceFallback:
		return "fallback"
	}
	return fmt.Sprintf("Source(%d)", int(s))
}

// Result is one decision. It is a value.
//
// Above the limit denials come in stretches: a process that the bucket could not serve asks it
// again after half a Target or when the next token is due, whichever is later, and denies until
// then, although the bucket, and so Peek, may have a few tokens again.
type Result struct {
	// OK: the request is admitted.
	OK bool
	// Limit is the binding one: the one with the least left of its burst, or, for a denial, the longest wait.
	Limit Limit
	// Remaining is what this process holds plus what the bucket had at the last reply, at most Burst.
	Remaining int64
	// RetryAfter is the earliest time at which the tokens can exist; 0 where OK, and never 0 for a
	// denial. Asking sooner is in vain. Without the store it is when the local share has them, or
	// else a CallTimeout.
	RetryAfter time.Duration
	// ResetAfter is the time until Remaining is Burst, if nobody draws.
	ResetAfter time.Duration
	// Source says what the decision rests on.
	Source Source
}

// view is what the last reply said about the bucket; it never changes once published.
type view struct {
	limits []Limit
	levels [lease.LimitsMax]int64         // whole tokens
	next   [lease.LimitsMax]time.Duration // until a level has one token more; 0 where it is full, or not known
	others int64                          // tokens that other processes held
	at     clock.Instant                  // of the reply
	made   clock.Instant                  // the bucket executed the call then or later
	// shortOf tokens cannot be there before shortUntil; 0 where nothing was short. It knows the fractions of tokens.
	shortOf    int64
	shortUntil clock.Instant
}

// earliest is a time before which n tokens cannot be there, even if the others gave back all that they held.
func (v *view) earliest(n int64) clock.Instant {
	at := v.made
	n -= v.others
	rest := time.Duration(math.MaxInt64) // of what is needed beyond shortOf, by the fastest of the limits
	for k, l := range v.limits {
		at = max(at, v.made.Add(timeFor(l, n-v.levels[k]-1))) // a level may be almost a token higher
		rest = min(rest, timeFor(l, n-v.shortOf))
	}
	if v.shortOf > 0 && n >= v.shortOf {
		at = max(at, v.shortUntil.Add(rest))
	}
	return at
}

// result describes a decision on n tokens at time now with held tokens in this process.
func (v *view) result(ok bool, n, held int64, now clock.Instant, src Source) Result {
	r := Result{OK: ok, Source: src}
	since := now.Sub(v.at)
	least := 2.0
	longest := time.Duration(math.MinInt64)
	for k, l := range v.limits {
		capacity := l.Capacity()
		left := min(capacity, v.levels[k]+held)
		wait := v.until(k, n-held) - since
		if v.shortOf > 0 && len(v.limits) == 1 && n-held >= v.shortOf {
			// Whoever comes back is not to come too early, so as if the bucket had executed the call when it replied.
			wait = v.shortUntil.Sub(v.made) + timeFor(l, n-held-v.shortOf) - since
		}
		binding := float64(left)/float64(capacity) < least
		if !ok {
			binding = wait > longest
		}
		if binding {
			least, longest = float64(left)/float64(capacity), wait
			r.Limit, r.Remaining = l, left
			r.ResetAfter = max(0, v.until(k, capacity-held)-since)
		}
	}
	if !ok {
		r.RetryAfter = max(longest, 1)
	}
	return r
}

// until is how long after the reply level k has n tokens, if nobody draws.
func (v *view) until(k int, n int64) time.Duration {
	missing := n - v.levels[k]
	if missing > 0 && v.next[k] > 0 {
		return v.next[k] + timeFor(v.limits[k], missing-1)
	}
	return timeFor(v.limits[k], missing)
}

// timeFor is how long l takes to make n tokens, at most 292 years.
func timeFor(l Limit, n int64) time.Duration {
	if n <= 0 {
		return 0
	}
	d := float64(n) / float64(l.Tokens) * float64(l.Per)
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}
