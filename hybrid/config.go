package hybrid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
)

// keysMaxDefault keys take 250 MB at rest, and 1.8 kB each while in use.
const keysMaxDefault = 1 << 20

// nearlyUsedAt is the share of a limit at which Events.NearlyUsed runs.
const nearlyUsedAt = 0.8

// callTimeoutMax bounds how long a method without a context may block.
const callTimeoutMax = time.Minute

// Config says what a Limiter limits and how. Limits or LimitsFor is required; every other zero
// field means a good default.
type Config struct {
	// Name tells this Limiter's keys from those of others on the same Store, as it is part of the
	// stored key: user 17 of "login" and user 17 of "api" have a bucket each. It is in the log and in
	// Stats. Up to 64 of A-Z, a-z, 0-9, '_', '.' and '-'. A service with one Limiter needs none.
	//
	// Limiters of one Store with the same Name and Version share their buckets, so New refuses one
	// whose Limits, Overcommit, Target or StartEmpty differ from those of another that is open. Their
	// LimitsFor are not compared.
	Name string
	// Limits, at most 4, apply to every key; all must have room, and one call leases from all.
	Limits []Limit
	// LimitsFor, if set, returns the limits of one key; nil means Limits. It is called when a key is used
	// that was not used for a TTL or longer, on the goroutine of the request, which it may block. Its context
	// is that of the request, or, for Allow and the like, one that ends after CallTimeout. Where several such
	// requests come at once, one answer is used. Refresh calls it again; KeyWithLimits takes its place.
	//
	// After an error, a database that is down say, the limits in force stay: those of the key's bucket, or
	// Limits where the key has no bucket yet. Without either the requests for the key get the error.
	// LimitsFor is called again after five seconds, while the key is in use. Log, Stats and Events tell of it
	// as of a mistake.
	//
	// An empty list, nil without Limits and limits that are not valid are a mistake: requests for
	// the key get ErrInvalidConfig or false, which the log says once for a key, Stats.Misconfigured
	// counts and Events.Misconfigured tells. A key that is not to be limited has Unlimited, one that
	// is to have nothing Blocked.
	LimitsFor func(ctx context.Context, key string) ([]Limit, error)
	// Version is the deploy half of the configuration's version: across processes the highest one
	// wins at once. Under equal ones, 0 as a rule, the limits of a deploy or of a rollback are in
	// force two TTLs after the last process that was started with the others has called. A limit that
	// is new then starts used up, since it could come and go; with a higher Version it starts full. So
	// raise Version to add a quota to a fleet at work. A higher Version also ends all that SetLimits has set,
	// blocks included.
	Version int64
	Policy  lease.Policy // tunes leasing
	Scope   Scope        // whether all processes share a key's bucket, the default, or each has its own
	// CallTimeout is the longest that Allow or Take waits for a lease call; 0 means 100 ms. A node whose
	// answer takes 15/16 of it is away, and Policy.Fallback decides, also for requests in Wait, which itself
	// waits for as long as its context allows. A lease lives for twice this time at least (Policy.TTL).
	CallTimeout time.Duration
	// Priorities are the shares of every burst that Key.Class leaves to the classes before it: class p
	// is granted tokens only while the level is above the share Priorities[p-1], so that the requests
	// that matter most go on when the bucket runs low. Rising, 0 to below 1.
	Priorities []float64
	// KeysMax bounds the table of keys; at the bound the longest idle ones leave. 0 means
	// 1,048,576. A key longer than 1 KiB (lease.KeyMax) is kept as its SHA-256.
	KeysMax    int
	Clock      clock.Clock // for tests; nil means the system's
	InstanceID string      // a label for this process in the store; random bits are appended
	// Logger gets what an operator should know. It may not use the Limiter. nil means
	// slog.Default(); slog.New(slog.DiscardHandler) discards.
	Logger *slog.Logger
	Events Events // called as things happen
}

// Validate reports every lease.Violation in one error that wraps ErrInvalidConfig.
func (c Config) Validate() error {
	bad := violation.List{Kind: ErrInvalidConfig}
	if !isName(c.Name) {
		bad.Add("Name", c.Name, "must be at most %d of A-Z, a-z, 0-9, '_', '.' and '-'", nameMax)
	}
	if len(c.Limits) == 0 && c.LimitsFor == nil {
		bad.Add("Limits", nil, "is empty and LimitsFor is nil, one must be set")
	}
	policy := c.Policy
	if err := policy.Validate(); err != nil {
		bad.Adopt(err, violation.Under("Policy"))
		policy = Policy{} // the limits are judged all the same
	}
	c.checkPriorities(&bad)
	if len(c.Limits) > 0 {
		timeout := min(max(c.CallTimeout, 0), callTimeoutMax)
		bad.Adopt(policy.ConfigFor(c.Limits, 0, timeout).Validate(), func(path string) string {
			if strings.HasPrefix(path, "Limits") {
				return path
			}
			return "Policy." + path
		})
	}
	violation.Between(&bad, "Version", c.Version, 0, 1<<52-1)
	if c.Scope < ScopeFleet || c.Scope > ScopeProcess {
		bad.Add("Scope", c.Scope, "must be ScopeFleet (%d) or ScopeProcess (%d)", ScopeFleet, ScopeProcess)
	}
	violation.Between(&bad, "CallTimeout", c.CallTimeout, 0, callTimeoutMax)
	if c.KeysMax < 0 {
		bad.Add("KeysMax", c.KeysMax, "must be at least 0")
	}
	if c.Clock != nil && isNil(c.Clock) {
		bad.Add("Clock", nil, "is a nil %T", c.Clock)
	}
	return bad.Err()
}

// watched reports whether a denial has consequences beside that it is counted.
func (c *Config) watched() bool { return c.Events.Denied != nil || c.Policy.Shadow }

func (c Config) withDefaults() Config {
	c.CallTimeout = cmp.Or(c.CallTimeout, lease.DefaultCallTimeout)
	c.KeysMax = cmp.Or(c.KeysMax, keysMaxDefault)
	c.Clock = cmp.Or(c.Clock, clock.System())
	return c
}

// isNil reports whether v is nil, or an interface around a nil pointer or the like, whose methods
// would crash the program later and elsewhere.
func isNil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Chan, reflect.Func, reflect.Map, reflect.Pointer, reflect.Slice:
		return r.IsNil()
	}
	return false
}

// Scope says which processes share a key's bucket.
type Scope int

const (
	// ScopeFleet has all processes share the bucket in the store. It is the default.
	ScopeFleet Scope = iota
	// ScopeProcess gives each Limiter buckets of its own, in its process: the limits hold for each
	// process by itself, and no request waits for the store. The limits that SetLimits and ReplaceLimits
	// store are shared: a Limiter follows within two TTLs, and asks for a key in use once in a TTL at most.
	// While the store is away the limits last heard of hold, or its own. Reset concerns this process alone.
	// Close forgets the use so far, as does a process that ends.
	ScopeProcess
)

// Events are hooks. A nil one costs nothing. A key longer than lease.KeyMax comes as lease.ShortKey
// of it where no request is at hand.
//
// NodeAway, NodeBack, KeyFailed, Lost, Conflict, LimitsChanged and NearlyUsed run one at a time, in the order in which
// things happened, on any goroutine of the Limiter. They may use the Limiter but may not block: its
// calls and its other events wait for them.
type Events struct {
	// Granted runs after a lease call brought n tokens, on its goroutine. It may not block.
	Granted func(key string, n int64)
	// Denied runs for every denied request, on its goroutine, with the n it asked for; a negative n
	// is an error and no denial. With Policy.Shadow it runs for those that would have been denied.
	// It may block, which only that request waits for; a denial costs the call of it and no more.
	Denied func(key string, n int64)

	// NodeAway runs when a node of the store is away: a call to it has failed, of this Limiter or of another one
	// on the same Store. err gives the cause on one line of about 1,000 bytes. From now on Policy.Fallback
	// decides on requests for the node's keys beyond the tokens that the process holds. See Stats.Nodes.
	NodeAway func(node string, err error)
	// NodeBack runs when the node has answered a call again, with the time since NodeAway. A node that no
	// request needs is not called. NodeBack does not run after Close.
	NodeBack func(node string, after time.Duration)
	// KeyFailed runs when a lease call for key has failed though its node is well: its bucket is damaged, say.
	// Policy.Fallback decides for this key until a call succeeds. KeyFailed runs again only after that.
	KeyFailed func(key string, err error)
	// Lost runs when n leased tokens have come to nothing.
	Lost func(key string, n int64, reason LossReason)
	// Conflict runs when the store turns out to have other limits for key, under the version that
	// this process has: those of another process, or of another handle of this one (see KeyWithLimits). The
	// stored ones hold.
	Conflict func(key string, stored []Limit)
	// LimitsChanged runs when this process has learned that limits are in force for key which are not
	// those that it went by before: by SetLimits, here or elsewhere, or by another deploy. A key that
	// had left the table goes by what this process proposes, until its first reply.
	LimitsChanged func(key string, limits []Limit)
	// NearlyUsed runs when a limit of key reaches four fifths: share is the part of its burst, or of
	// its window's tokens, that is used or leased by now. It runs in the process whose lease call has brought
	// it there, and in that once in the time in which the bucket fills, or once a window. If the level
	// crosses that share again meanwhile, another process may tell it too; if the reply is lost, none does.
	// The key is as the request had it: httplimit.FirstOf begins it with a number and a colon.
	NearlyUsed func(key string, limit Limit, share float64)
	// Misconfigured runs when Config.LimitsFor returned an error or limits that cannot be used, on the
	// goroutine of the request, which it may block.
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

// Types of package lease, which documents them.
type (
	Limit     = lease.Limit     // Tokens per Per, with Burst; or another Kind
	Kind      = lease.Kind      // what a Limit promises: a bucket, a sliding window or a calendar
	Policy    = lease.Policy    // how to lease; the zero value is a good default
	ColdStart = lease.ColdStart // what is answered before the first reply
	Fallback  = lease.Fallback  // what decides while the store is away
	Source    = lease.Source    // what a decision rests on
	Store     = lease.Store     // where the buckets are; package redisbucket has one in Redis
)

// The constants of Kind, of Source and of Policy.
const (
	KindBucket   = lease.KindBucket   // at most Burst + Tokens/Per*w in any window of length w
	KindSliding  = lease.KindSliding  // at most Tokens in any window of length Per
	KindCalendar = lease.KindCalendar // at most Tokens in each period of length Per

	SourceLocal    = lease.SourceLocal    // tokens that this process held, or what it last heard
	SourceStore    = lease.SourceStore    // the answer of a lease call made for this request
	SourceFallback = lease.SourceFallback // Policy.Fallback or ColdStart: the store did not answer

	ColdStartDeny      = lease.ColdStartDeny      // without any reply, and no call to wait for: deny
	ColdStartAllow     = lease.ColdStartAllow     // or admit
	FallbackLocalShare = lease.FallbackLocalShare // while the store is away: this process's part of the rate
	FallbackDeny       = lease.FallbackDeny       // or nothing, as a limit that a third party sets wants it
	FallbackAllowAll   = lease.FallbackAllowAll   // or everything
)

// Limits for keys that are not to be limited, and for keys that are to have nothing: from
// Config.LimitsFor for a customer, or by SetLimits for a key that is abused. Each stands alone, and suspends
// the limits that it replaces: when they come back, they go on as if time had passed alone.
var (
	Unlimited = lease.Unlimited // admits everything, also while the store is away
	Blocked   = lease.Blocked   // admits nothing, whatever Policy.Fallback says
)

// PerSecond returns a limit of n tokens per second with a burst of n. A key that was idle admits up to 2n in
// its first second, the burst and the refill, and then n a second.
//
// A partner that counts your calls counts them where they arrive, and they arrive less evenly than they
// leave. For its limit of n, use a small burst and a margin, such as PerSecond(n*9/10).WithBurst(1), and
// FallbackDeny. Sliding admits n in any window, but all at once, so it needs a larger margin.
func PerSecond(n int64) Limit { return lease.PerSecond(n) }

// PerMinute is n tokens per minute with a burst of n, as in redis_rate: after a rest up to 2n in a minute,
// unlike Sliding.
func PerMinute(n int64) Limit { return lease.PerMinute(n) }

// PerHour is n tokens per hour with a burst of n.
func PerHour(n int64) Limit { return lease.PerHour(n) }

// Every is one token per d with a burst of 1.
func Every(d time.Duration) Limit { return lease.Every(d) }

// Sliding is at most n tokens in any window of length w, wherever that begins; see lease.Sliding.
func Sliding(n int64, w time.Duration) Limit { return lease.Sliding(n, w) }

// Calendar is at most n tokens in each period, by the server's clock, from offset and its multiples
// of period since 1970 UTC; see lease.Calendar.
func Calendar(n int64, period, offset time.Duration) Limit { return lease.Calendar(n, period, offset) }

// ParseLimit reads "100/s", "5000/m burst 200", "1/250ms", "100 in 1m", "1000 each 24h from 16h";
// see lease.ParseLimit.
func ParseLimit(s string) (Limit, error) { return lease.ParseLimit(s) }

// The errors of this package wrap these.
var (
	ErrClosed        = errors.New("hybrid: limiter closed")
	ErrExceedsBurst  = errors.New("hybrid: n exceeds burst")             // no wait would ever help
	ErrOvershoot     = errors.New("hybrid: overshoot exceeds its bound") // and is charged up to that
	ErrInvalidKey    = errors.New("hybrid: invalid key")                 // it is empty
	ErrInvalidN      = errors.New("hybrid: invalid n")                   // it is negative
	ErrInvalidConfig = errors.New("hybrid: invalid configuration")       // each violation is in the text
	ErrUnavailable   = lease.ErrUnavailable                              // the store did not answer
	ErrTableFull     = errors.New("hybrid: key table full")              // all Config.KeysMax keys are in use
	// ErrWouldExceedDeadline: the tokens cannot be there before the context's deadline. It wraps
	// context.DeadlineExceeded, the error that waiting would have ended with. See RetryAfter.
	ErrWouldExceedDeadline = fmt.Errorf("hybrid: a wait would end with: %w", context.DeadlineExceeded)
)

// The causes of failed calls, which Events.NodeAway, Events.KeyFailed and the log tell.
var (
	errOverdue = fmt.Errorf("%w: no answer in time", lease.ErrUnavailable)
	errForeign = fmt.Errorf("%w: the reply belongs to another call", lease.ErrUnavailable)
)

var errEmptyKey = fmt.Errorf("%w: the key is empty", ErrInvalidKey)

// unavailable returns the error of an operation that failed with err at the store.
func unavailable(what string, err error) error {
	if errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("hybrid: %s: %w", what, err)
	}
	return fmt.Errorf("hybrid: %s: %w: %w", what, ErrUnavailable, err)
}

// invalidN returns the error of a number of tokens that is negative.
func invalidN(n int64) error {
	if n < 0 {
		return fmt.Errorf("%w: n is %d, must be at least 0", ErrInvalidN, n)
	}
	return nil
}

// RetryAfter returns how long a caller should wait before it repeats a request that got err: until the tokens
// can exist after ErrWouldExceedDeadline, or until a key can have left a table that is full. It is 0 if no
// time helps, as after ErrExceedsBurst, and if err is the context's own. It understands the errors of this
// package, and others that have a method RetryAfter() time.Duration.
func RetryAfter(err error) time.Duration {
	var timed interface{ RetryAfter() time.Duration }
	if errors.As(err, &timed) {
		return timed.RetryAfter()
	}
	return 0
}

// timedError is an error that a repeated request may not get after some time.
type timedError struct {
	error
	after time.Duration
}

func (e *timedError) Unwrap() error             { return e.error }
func (e *timedError) RetryAfter() time.Duration { return e.after }

// keptOf is how many tokens of l's burst a process with this Policy.Headroom leaves in the bucket.
func keptOf(l Limit, headroom float64) int64 {
	return int64(math.Ceil(float64(l.Capacity()) * headroom))
}

// checkPriorities reports what is wrong with c.Priorities.
func (c Config) checkPriorities(bad *violation.List) {
	least := c.Policy.Headroom
	for i, share := range c.Priorities {
		here := fmt.Sprintf("Priorities[%d]", i)
		if !(share >= least && share < 1) || i > 0 && share == least {
			bad.Add(here, share, "must be below 1 and above the previous one (%v)", least)
			return
		}
		for _, l := range c.Limits {
			if kept := keptOf(l, share); kept >= l.Capacity() && !l.Equal(Blocked) {
				bad.Add(here, share, "which leaves class %d nothing of %v: the burst must be above %d",
					i+1, l, kept)
			}
		}
		least = share
	}
}
