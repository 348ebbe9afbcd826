package hybrid

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Result is one decision. It is a value.
//
// Above the limit denials come in stretches: a process that the bucket could not serve asks it
// again after half a Target or when the next token is due, whichever is later, and denies until
// then, although the bucket, and so Peek, may have a few tokens again.
type Result struct {
	// OK: the request is admitted.
	OK bool
	// Limit is the binding one: the one with the least left of its burst, or, for a denial, the
	// longest wait.
	Limit Limit
	// Remaining is what this process holds plus what the bucket had at the last reply, at most
	// Burst.
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

// resultOf is a decision with what the process can tell about the key.
func resultOf(ok bool, source Source, o lease.Outlook) Result {
	r := Result{OK: ok, Limit: o.Limit, Remaining: o.Remaining, ResetAfter: o.ResetAfter, Source: source}
	if !ok {
		r.RetryAfter = o.RetryAfter
	}
	return r
}

// result is the answer to Take.
func (d decision) result(n int64) Result {
	if d.entry == nil {
		return Result{OK: d.ok, Source: d.source}
	}
	now := d.at
	if d.ok {
		now = d.entry.Now()
	}
	r := resultOf(d.ok, d.source, d.entry.outlook(now, n, d.ok))
	if d.ok {
		return r
	}
	if d.source == SourceFallback {
		r.RetryAfter = 0 // what was last heard of the bucket decides nothing now
	}
	r.RetryAfter = max(r.RetryAfter, d.until.Sub(d.at), 1)
	return r
}

// outlook is what e can tell about a request for n tokens, without the lock once there has been a
// reply.
func (e *entry) outlook(now clock.Instant, n int64, admitted bool) lease.Outlook {
	held := e.client.Pool.Held()
	if h := e.heard.Load(); h != nil {
		return h.Outlook(now, n, held, admitted)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	st := lease.State{Config: lease.Config{Limits: e.client.Limits()}}
	return st.Outlook(n, held, admitted)
}
