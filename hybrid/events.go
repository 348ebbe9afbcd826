package hybrid

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/safetext"
)

// Events are hooks. A nil one costs nothing. Where no request is at hand, a key longer than
// lease.KeyMax comes as lease.ShortKey of it.
//
// Those about what became of a key (Degraded, Recovered, Lost, Conflict, LimitsChanged) come one at
// a time and in the order in which it happened, on whatever goroutine of the Limiter is at hand.
// They may use the Limiter but may not block: its calls and its other events wait for them.
type Events struct {
	// BeforeReport runs before a lease call for key is built, on the scheduler's goroutine or, for a
	// key at rest, on that of its request, so it should take microseconds. Of the Limiter it may use
	// TryAllow.
	BeforeReport func(key string)
	// Granted runs after a lease call brought n tokens, on the goroutine of the call. It may not
	// block.
	Granted func(key string, n int64)
	// Denied runs for every denied request, on its goroutine, with the n it asked for; a negative n
	// is an error and no denial. With Policy.Shadow it runs for those that would have been denied.
	// It may block, which only that request waits for; a denial costs the call of it and no more.
	Denied func(key string, n int64)

	// Degraded runs when the lease calls for key begin to fail, or a request for it meets a node that
	// is away, with why, on one line of about 1,000 bytes: from now on Policy.Fallback decides on what
	// the process does not hold.
	Degraded func(key string, err error)
	// Recovered runs when a call has succeeded again, with the time since Degraded. It does not run
	// for a key that nobody has asked for meanwhile, so that it is at rest or has left the table, nor
	// after Close.
	Recovered func(key string, after time.Duration)
	// Lost runs when n leased tokens have come to nothing.
	Lost func(key string, n int64, reason LossReason)
	// Conflict runs when the store turns out to have other limits for key, under the version that
	// this process has: those of another process, or of another handle of this one (see KeyWith). The
	// stored ones hold.
	Conflict func(key string, stored []Limit)
	// LimitsChanged runs when this process has learned that limits are in force for key which are not
	// those that it went by before: by SetLimits, here or elsewhere, or by another deploy. A key that
	// had left the table goes by what this process proposes, until its first reply.
	LimitsChanged func(key string, limits []Limit)
	// Misconfigured runs when Config.LimitsFor returned limits that cannot be used, on the goroutine
	// of the request, which it may block.
	Misconfigured func(key string, err error)
}

// LossReason says why leased tokens came to nothing.
type LossReason string

const (
	// LossVoid: the bucket does not know the lease. It was evicted, flushed or failed over, or has
	// not heard of this process for a TTL.
	LossVoid LossReason = "void"
	// LossExpired: the lease ended before a reply renewed it, or the call that was to bring tokens
	// back got no answer in time.
	LossExpired LossReason = "expired"
)

// herald calls hooks one after the other, in the order in which things happened, with no lock held:
// what happens is announced under an entry's lock, and told when that is free again.
type herald struct {
	mu      sync.Mutex
	news    []func()
	telling bool        // somebody is at it
	any     atomic.Bool // there are news, so that asking costs no lock
}

// announce has tell call f.
func (h *herald) announce(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.news = append(h.news, f)
	h.any.Store(true)
}

// tell calls what was announced, unless somebody else is at it, who then calls it.
func (h *herald) tell() {
	if !h.any.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.telling {
		return
	}
	h.telling = true
	for len(h.news) > 0 {
		f := h.news[0]
		h.news = h.news[1:]
		h.mu.Unlock()
		f()
		h.mu.Lock()
	}
	h.news, h.telling = nil, false
	h.any.Store(false)
}

// The announcements of an entry, whose lock is held.

func (e *entry) announceDegraded(err error) {
	if f := e.l.cfg.Events.Degraded; f != nil {
		e.l.herald.announce(func() { f(e.slot.name, safetext.Error(err)) })
	}
}

func (e *entry) announceRecovered(after time.Duration) {
	if f := e.l.cfg.Events.Recovered; f != nil {
		e.l.herald.announce(func() { f(e.slot.name, after) })
	}
}

// announceLost announces what was burnt since it was last asked.
func (e *entry) announceLost(reason LossReason) {
	f := e.l.cfg.Events.Lost
	if f == nil {
		return
	}
	burnt := e.client.Account().Burnt
	if n := burnt - e.burntTold; n > 0 {
		e.l.herald.announce(func() { f(e.slot.name, n, reason) })
	}
	e.burntTold = burnt
}

func (e *entry) announceConflict() {
	if f := e.l.cfg.Events.Conflict; f != nil {
		stored := slices.Clone(e.client.Limits())
		e.l.herald.announce(func() { f(e.slot.name, stored) })
	}
}

// announceLimits announces the limits in force where they are not those of before.
func (e *entry) announceLimits(before []Limit) {
	f := e.l.cfg.Events.LimitsChanged
	if now := e.client.Limits(); f != nil && !slices.Equal(now, before) {
		now = slices.Clone(now)
		e.l.herald.announce(func() { f(e.slot.name, now) })
	}
}
