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

// keysMaxDefault bounds the table of keys: a million keys at rest need 250 MB, and a key in use needs 1.8 kB.
const keysMaxDefault = 1 << 20

// nameMax bounds Config.Name, to keep stored keys short.
const nameMax = 64

// nearlyUsedAt is the used fraction of a limit at which Events.NearlyUsed runs.
const nearlyUsedAt = 0.8

// callTimeoutMax bounds Config.CallTimeout, the longest time that a method without a context may block.
const callTimeoutMax = time.Minute

// Config configures a Limiter. Limits or LimitsFor must be set. Any other zero field selects its default.
type Config struct {
	// Name is part of every stored key, so that user 17 of "login" and user 17 of "api" have separate
	// buckets. Log lines and Stats show Name. A Name has at most 64 characters of A-Z, a-z, 0-9, '_', '.' and
	// '-'. Services of one Redis with an empty Name share buckets, unless redisbucket.Config.Prefix differs.
	//
	// Limiters of one Store with equal Name and Version share their buckets. In one process, New refuses a
	// Limiter whose Limits, Overcommit, Target or StartEmpty differ from those of an open Limiter that shares
	// its buckets. New does not compare LimitsFor.
	Name string
	// Limits, at most 4, apply to every key. Every request takes tokens of all limits.
	Limits []Limit
	// LimitsFor returns the limits of one key, such as those of a customer's plan. A nil result selects
	// Config.Limits. LimitsFor runs on the goroutine of a request whose key was not used for a TTL (0.4 s by
	// default). For a key with less than one request per TTL, LimitsFor runs for nearly every request: cache
	// plans inside LimitsFor. If several first requests call LimitsFor at once, one result is used. Call
	// Refresh after a plan has changed. A handle of KeyWithLimits does not call LimitsFor.
	//
	// ctx is the context of the request: a slow LimitsFor delays the request until ctx ends. For methods
	// without a context, such as Allow, ctx ends after CallTimeout.
	//
	// After an error of LimitsFor, such as that of an unreachable database, the limits of the key's bucket
	// stay in force, or Limits if the key has no bucket. With neither a bucket nor Limits, Take and Wait
	// return an error that wraps the error of LimitsFor, and Allow returns false. After an error, LimitsFor
	// runs again every five seconds while the key is in use.
	//
	// An empty list is invalid, and so is nil if Limits is empty. Requests for a key with invalid limits get
	// ErrInvalidConfig or false, and the log names the key once. LimitsFor returns Unlimited for a key
	// without a limit, and Blocked for a key that gets nothing.
	LimitsFor func(ctx context.Context, key string) ([]Limit, error)
	// Version numbers the deploys: the bucket takes the limits of the highest Version at once. Under equal
	// Versions, usually 0, new limits are in force two TTLs after the last call of a process with the old
	// limits. Under equal Versions an added limit starts empty (see Refresh), because adding a limit
	// repeatedly would otherwise grant a burst each time. With a higher Version an added limit starts full:
	// raise Version to add a quota to a running fleet. A higher Version also removes limits of SetLimits,
	// even Blocked.
	Version int64
	Policy  lease.Policy // settings of leasing
	Scope   Scope        // processes that share a bucket; all by default
	// CallTimeout is the longest time that Allow or Take waits for a lease call; 0 means 100 ms. A call
	// without an answer fails after 15/16 of CallTimeout, or after two usual round trips if these take
	// longer; then Policy.Fallback decides. The context of Wait, not CallTimeout, bounds Wait. A lease lasts
	// for at least two CallTimeouts (Policy.TTL).
	CallTimeout time.Duration
	// Priorities has the fractions of every burst that the classes 1, 2 and so on of Key.Class leave to
	// earlier classes. The bucket grants tokens to class p only while its level exceeds Priorities[p-1] of
	// the burst, so important requests continue when the bucket runs low. The fractions rise from
	// Policy.Headroom to below 1.
	Priorities []float64
	// KeysMax bounds the table of keys; 0 means 1,048,576. A full table drops the keys that have been idle
	// for longest. A key longer than 1 KiB (lease.KeyMax) is stored as its SHA-256.
	KeysMax    int
	Clock      clock.Clock // nil means the system's clock; tests use testing/synctest
	InstanceID string      // label of this process in the store, followed by random bits
	// Logger gets log lines for the operator; nil means slog.Default(). The handler must not use the Limiter.
	Logger *slog.Logger
	Events Events // hooks
}

// Validate returns every lease.Violation of c in one error, or nil. Each Violation wraps ErrInvalidConfig; a
// Violation of a limit or the Policy also wraps a sentinel of package lease, such as lease.ErrInvalidLimit.
func (c Config) Validate() error {
	bad := violation.List{Kind: ErrInvalidConfig}
	if !isName(c.Name) {
		bad.Add("Name", c.Name, "must be at most %d characters of A-Z, a-z, 0-9, '_', '.' and '-'", nameMax)
	}
	if len(c.Limits) == 0 && c.LimitsFor == nil {
		bad.Add("Limits", nil, "is empty and LimitsFor is nil: set one of them")
	}
	policy := c.Policy
	if err := policy.Validate(); err != nil {
		bad.Adopt(err, violation.Under("Policy"))
		policy = Policy{} // the zero Policy allows a check of the limits
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

// isName reports whether name is a valid Config.Name. No log, metric or Redis key has to escape a valid name.
func isName(name string) bool {
	foreign := func(r rune) bool {
		return !('A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' ||
			strings.ContainsRune("_.-", r))
	}
	return len(name) <= nameMax && !strings.ContainsFunc(name, foreign)
}

func (c *Config) reactsToDenials() bool { return c.Events.Denied != nil || c.Policy.Shadow }

func (c Config) withDefaults() Config {
	c.CallTimeout = cmp.Or(c.CallTimeout, lease.DefaultCallTimeout)
	c.KeysMax = cmp.Or(c.KeysMax, keysMaxDefault)
	c.Clock = cmp.Or(c.Clock, clock.System())
	return c
}

// isNil reports whether v is nil or holds a nil value, such as a nil pointer.
func isNil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Chan, reflect.Func, reflect.Map, reflect.Pointer, reflect.Slice:
		return r.IsNil()
	}
	return false
}

// Scope selects the processes that share the bucket of a key.
type Scope int

const (
	// ScopeFleet, the default, makes all processes share the buckets in the store.
	ScopeFleet Scope = iota
	// ScopeProcess gives each Limiter its own buckets in its process. The limits apply to each process alone,
	// and no request waits for the store. SetLimits and ReplaceLimits still apply to all processes: for a key
	// in use, a Limiter reads set limits at most once per TTL and adopts them within two TTLs. Reset affects
	// one process only. The buckets end with the Limiter.
	ScopeProcess
)

// Events are hooks; each may be nil. A hook gets lease.ShortKey of a key longer than lease.KeyMax, but hooks
// that run for a request get the whole key.
//
// NodeAway, NodeBack, KeyFailed, Lost, Conflict, LimitsChanged and NearlyUsed run one at a time, in the order
// of their causes, on any goroutine of the Limiter. The other hooks may run at the same time on several
// goroutines, Denied on that of the request. Hooks may use the Limiter. Only Denied and Misconfigured may
// block: any other hook delays lease calls and later events.
type Events struct {
	// Granted runs after a lease call that brought n tokens.
	Granted func(key string, n int64)
	// Denied runs for every denied request for n tokens. A request with a negative n is an error and no
	// denial. With Policy.Shadow, Denied runs for requests that the limits would have denied.
	Denied func(key string, n int64)

	// NodeAway runs when a call to a node of the store has failed, so that the node is away. The failed call
	// may be of another Limiter on the same Store. err has the cause on one line of at most about 1,000
	// bytes. While the node is away, the process spends tokens that it holds for the node's keys, and
	// Policy.Fallback decides all other requests for these keys.
	NodeAway func(node string, err error)
	// NodeBack runs when a node that was away has answered a call; after is the time since NodeAway. A node
	// without requests or due reports gets no call and stays away. NodeBack does not run after Close.
	NodeBack func(node string, after time.Duration)
	// KeyFailed runs when a lease call for key has failed although the node answers, for example because the
	// bucket is damaged. Policy.Fallback decides requests for key until a call succeeds.
	KeyFailed func(key string, err error)
	// Lost runs when n leased tokens are lost unspent.
	Lost func(key string, n int64, reason LossReason)
	// Conflict runs when another process or handle of KeyWithLimits has proposed other limits for key under
	// the same Version. The stored limits stay in force.
	Conflict func(key string, stored []Limit)
	// LimitsChanged runs when a reply names limits for key that this process did not know, for example after
	// SetLimits or a deploy. For a key outside the table, the process knows only its own proposal.
	LimitsChanged func(key string, limits []Limit)
	// NearlyUsed runs when four fifths of a limit are used. share is the used or leased fraction of the
	// burst, or of a window's tokens. NearlyUsed runs in the process whose lease call crossed four fifths, at
	// most once in the time that an empty limit takes to fill. Another process may run NearlyUsed at a later
	// crossing. If the reply to the crossing call is lost, no process runs NearlyUsed.
	NearlyUsed func(key string, limit Limit, share float64)
	// Misconfigured runs for an error of LimitsFor and for invalid limits of LimitsFor or KeyWithLimits.
	Misconfigured func(key string, err error)
}

// LossReason explains why leased tokens are lost.
type LossReason string

const (
	// LossVoid means that the bucket does not know the lease: the bucket was evicted, flushed or lost in a
	// failover, or has had no call of this process for a TTL.
	LossVoid LossReason = "void"
	// LossExpired means that no reply renewed the lease in time, or confirmed that tokens were returned.
	LossExpired LossReason = "expired"
)

// Limit and the types below are aliases for types of package lease, which documents them.
type (
	Limit     = lease.Limit     // rule such as 100 tokens per second
	Kind      = lease.Kind      // kind of limit: token bucket, sliding window or calendar
	Policy    = lease.Policy    // settings of leasing; zero fields select defaults
	ColdStart = lease.ColdStart // rule for requests before the store's first reply
	Fallback  = lease.Fallback  // rule for requests while the store is away
	Source    = lease.Source    // basis of a decision, such as a token held by the process
	Store     = lease.Store     // interface to the buckets; redisbucket.New returns a Store in Redis
)

// KindBucket and the constants below are values of Kind, Source, ColdStart and Fallback.
const (
	KindBucket   = lease.KindBucket   // token bucket: admits up to Burst + Tokens/Per*w in any window of length w
	KindSliding  = lease.KindSliding  // sliding window: admits at most Tokens in any window of length Per
	KindCalendar = lease.KindCalendar // calendar: admits at most Tokens in each period of length Per

	SourceLocal    = lease.SourceLocal    // decided by tokens of this process or the bucket's last reply
	SourceStore    = lease.SourceStore    // decided by a lease call for this request
	SourceFallback = lease.SourceFallback // decided by Policy.Fallback or ColdStart without the store

	ColdStartDeny      = lease.ColdStartDeny      // deny requests before the first reply
	ColdStartAllow     = lease.ColdStartAllow     // admit requests before the first reply
	FallbackLocalShare = lease.FallbackLocalShare // admit this process's part of the rate
	FallbackDeny       = lease.FallbackDeny       // admit nothing
	FallbackAllowAll   = lease.FallbackAllowAll   // admit everything
)

// Unlimited and Blocked may not be combined with other limits. Unlimited and Blocked suspend the limits that
// they replace: a suspended limit later continues as if only time had passed.
//
// A denial by Blocked has a RetryAfter of 100 years. Wait on a blocked key fails at once with
// ErrWouldExceedDeadline if its context has a deadline, and otherwise waits for new limits.
var (
	Unlimited = lease.Unlimited // limit that admits everything, even while the store is away
	Blocked   = lease.Blocked   // limit that admits nothing, even by Policy.Fallback
)

// PerSecond returns a limit of n tokens per second with a burst of n. After idle time a key admits up to 2n
// tokens in the first second, by the burst and the refill, and then n per second.
//
// If a partner allows n calls per second, use nine tenths of the rate, a burst of n/20 rounded down and
// FallbackDeny, because calls arrive less evenly than they leave. Add Policy.StartEmpty if Redis may lose its
// data. For 100 calls per second, PerSecond(90).WithBurst(5) admits at most 95 in any second. Sliding admits
// at most n in any window, but may admit all n at once, and needs a larger margin.
func PerSecond(n int64) Limit { return lease.PerSecond(n) }

// PerMinute returns a limit of n tokens per minute with a burst of n. After idle time a key with PerMinute
// admits up to 2n tokens in a minute; a key with Sliding does not.
func PerMinute(n int64) Limit { return lease.PerMinute(n) }

// PerHour returns a limit of n tokens per hour with a burst of n.
func PerHour(n int64) Limit { return lease.PerHour(n) }

// Every returns a limit of one token per d with a burst of 1.
func Every(d time.Duration) Limit { return lease.Every(d) }

// Sliding returns a limit of n tokens in any window of length w; see lease.Sliding.
func Sliding(n int64, w time.Duration) Limit { return lease.Sliding(n, w) }

// Calendar returns a limit of n tokens per period of the server's clock. The first period begins at offset
// after the start of 1970 in UTC; see lease.Calendar.
func Calendar(n int64, period, offset time.Duration) Limit { return lease.Calendar(n, period, offset) }

// ParseLimit reads a limit such as "100/s", "5000/m burst 200" or "100 in 1m"; see lease.ParseLimit.
func ParseLimit(s string) (Limit, error) { return lease.ParseLimit(s) }

// Errors of this package wrap ErrClosed or one of the sentinels below, for errors.Is.
var (
	ErrClosed        = errors.New("hybrid: limiter closed")
	ErrExceedsBurst  = errors.New("hybrid: n exceeds burst")             // repeating the request does not help
	ErrOvershoot     = errors.New("hybrid: overshoot exceeds its bound") // see Reservation.Settle
	ErrInvalidKey    = errors.New("hybrid: invalid key")                 // the key is empty
	ErrInvalidN      = errors.New("hybrid: invalid n")                   // n is negative
	ErrInvalidConfig = errors.New("hybrid: invalid configuration")       // the error's text lists every violation
	ErrUnavailable   = lease.ErrUnavailable                              // the store may have executed the call
	ErrTableFull     = errors.New("hybrid: key table full")              // see Config.KeysMax
	// ErrWouldExceedDeadline means that the context's deadline comes before the tokens can exist. The error
	// wraps context.DeadlineExceeded; RetryAfter returns the time until the tokens can exist.
	ErrWouldExceedDeadline = fmt.Errorf("hybrid: the wait would exceed the deadline: %w", context.DeadlineExceeded)
)

// errOverdue and errForeign are causes of failed calls in Events.NodeAway, Events.KeyFailed and the log.
var (
	errOverdue = fmt.Errorf("%w: no answer in time", lease.ErrUnavailable)
	errForeign = fmt.Errorf("%w: the reply belongs to another call", lease.ErrUnavailable)
)

var errEmptyKey = fmt.Errorf("%w: the key is empty", ErrInvalidKey)

var errNoLimits = errors.New("hybrid: LimitsFor failed")

// unavailable returns the error of an operation that failed at the store with err.
func unavailable(operation string, err error) error {
	if errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("hybrid: %s: %w", operation, err)
	}
	return fmt.Errorf("hybrid: %s: %w: %w", operation, ErrUnavailable, err)
}

// invalidN returns an error if n, a number of tokens, is negative.
func invalidN(n int64) error {
	if n < 0 {
		return fmt.Errorf("%w: n is %d, must be at least 0", ErrInvalidN, n)
	}
	return nil
}

// RetryAfter returns how long to wait before repeating a request that failed with err. After this time the
// tokens can exist (ErrWouldExceedDeadline), or a key can have left the table (ErrTableFull). RetryAfter
// returns 0 for other errors, such as ErrExceedsBurst, unless they have a method RetryAfter() time.Duration.
func RetryAfter(err error) time.Duration {
	var timed interface{ RetryAfter() time.Duration }
	if errors.As(err, &timed) {
		return timed.RetryAfter()
	}
	return 0
}

type timedError struct {
	error
	after time.Duration
}

func (e *timedError) Unwrap() error             { return e.error }
func (e *timedError) RetryAfter() time.Duration { return e.after }

// headroomOf returns the tokens of l's burst that a process with this Policy.Headroom leaves in the bucket.
func headroomOf(l Limit, headroom float64) int64 {
	return int64(math.Ceil(float64(l.Capacity()) * headroom))
}

func (c Config) checkPriorities(bad *violation.List) {
	least := c.Policy.Headroom
	for i, share := range c.Priorities {
		here := fmt.Sprintf("Priorities[%d]", i)
		if !(share >= least && share < 1) || i > 0 && share == least {
			bad.Add(here, share, "must be below 1 and above the previous one (%v)", least)
			return
		}
		for _, l := range c.Limits {
			if kept := headroomOf(l, share); kept >= l.Capacity() && !l.Equal(Blocked) {
				bad.Add(here, share, "which leaves class %d nothing of %v: the burst must be above %d",
					i+1, l, kept)
			}
		}
		least = share
	}
}
