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

// keysMaxDefault bounds the table: a million keys need 250 MB at rest, and 1.8 kB each in use.
const keysMaxDefault = 1 << 20

// nearlyUsedAt is the used part of a limit at which Events.NearlyUsed runs.
const nearlyUsedAt = 0.8

// callTimeoutMax bounds how long a method without a context may block.
const callTimeoutMax = time.Minute

// Config configures a Limiter. Limits or LimitsFor is required. Every other zero field selects a good
// default.
type Config struct {
	// Name is part of every stored key, so that user 17 of "login" and user 17 of "api" have separate
	// buckets. Log lines and Stats show it. It has at most 64 of A-Z, a-z, 0-9, '_', '.' and '-'. It may be
	// empty if no other Limiter uses the same Redis and redisbucket.Config.Prefix: two services without names
	// would share their buckets.
	//
	// Limiters of one Store with equal Name and Version share their buckets. Within a process New refuses a
	// Limiter whose Limits, Overcommit, Target or StartEmpty differ from those of an open one. It does not
	// compare LimitsFor.
	Name string
	// Limits, at most 4, apply to every key. A request needs tokens of all of them; one call leases from all.
	Limits []Limit
	// LimitsFor returns the limits of one key, such as those of a customer's plan. A nil result means Limits.
	// It runs on the goroutine of a request whose key was not used for a TTL (0.4 s by default). So a key
	// with less than about one request per TTL calls it for every request: cache plans inside LimitsFor. Of
	// several first requests at once, one result is used. See Refresh for a plan that changes. KeyWithLimits
	// replaces LimitsFor for its handle.
	//
	// ctx is the context of the request, without a further deadline: a slow LimitsFor delays the request
	// until ctx ends. For methods without a context, such as Allow, ctx ends after CallTimeout.
	//
	// After an error, such as that of an unreachable database, the limits in force stay: those of the key's
	// bucket, or Limits if the key has no bucket. If there are neither, Take and Wait return an error that
	// wraps that of LimitsFor, and Allow returns false. While the key is in use, LimitsFor runs again every
	// five seconds.
	//
	// An empty list, nil without Limits, and invalid limits are mistakes. Requests for the key then get
	// ErrInvalidConfig or false. The log names such a key once. Stats.Misconfigured counts these requests and
	// those that got the error of LimitsFor; Events.Misconfigured runs for both. Return Unlimited for a key
	// without a limit, and Blocked for a key that gets nothing.
	LimitsFor func(ctx context.Context, key string) ([]Limit, error)
	// Version is the deploy part of the configuration's version: the bucket takes the limits of the highest
	// one at once. Under equal Versions, usually 0, new limits are in force two TTLs after the last call of a
	// process with the old ones. An added limit then starts empty (see Refresh), or adding it again and again
	// would grant a burst each time. With a higher Version it starts full. So raise Version to add a quota to
	// a running fleet. A higher Version also ends everything that SetLimits has set, Blocked included.
	Version int64
	Policy  lease.Policy // Policy tunes leasing
	Scope   Scope        // Scope selects the processes that share a bucket; all by default
	// CallTimeout is the longest that Allow or Take waits for a lease call; 0 means 100 ms. A node is away
	// once a call to it takes 15/16 of that, and Policy.Fallback then decides. Wait is not bounded by
	// CallTimeout, only by its context. A lease lives for at least two CallTimeouts (Policy.TTL).
	CallTimeout time.Duration
	// Priorities are the parts of every burst that the classes of Key.Class leave to the classes before them.
	// Class p is granted tokens only while the level exceeds the part Priorities[p-1]. So important requests
	// continue when the bucket runs low. The parts rise, from 0 to below 1.
	Priorities []float64
	// KeysMax bounds the table of keys; 0 means 1,048,576. At the bound the keys that are idle longest leave.
	// A key longer than 1 KiB (lease.KeyMax) is stored as its SHA-256.
	KeysMax    int
	Clock      clock.Clock // nil, the system's clock, suits all programs; tests use testing/synctest
	InstanceID string      // label of this process in the store, before random bits
	// Logger gets lines for the operator. Its handler must not use the Limiter. nil means slog.Default();
	// slog.New(slog.DiscardHandler) discards the lines.
	Logger *slog.Logger
	Events Events // hooks
}

// Validate returns every lease.Violation in one error, or nil. Each wraps ErrInvalidConfig, and also
// lease.ErrInvalidLimit, lease.ErrInvalidPolicy or lease.ErrInvalidConfig if package lease found it.
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
		policy = Policy{} // to check the limits too
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

// reactsToDenials reports whether denials run Events.Denied or are admitted by Policy.Shadow.
func (c *Config) reactsToDenials() bool { return c.Events.Denied != nil || c.Policy.Shadow }

func (c Config) withDefaults() Config {
	c.CallTimeout = cmp.Or(c.CallTimeout, lease.DefaultCallTimeout)
	c.KeysMax = cmp.Or(c.KeysMax, keysMaxDefault)
	c.Clock = cmp.Or(c.Clock, clock.System())
	return c
}

// isNil reports whether v is nil, or an interface with a nil pointer or the like, whose methods would panic
// later.
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
	// ScopeProcess gives each Limiter its own buckets in its process. The limits apply to each process by
	// itself, and no request waits for the store. SetLimits and ReplaceLimits still apply to all processes: a
	// Limiter reads them at most once per TTL for a key in use, and follows within two TTLs. While the store
	// is away, the last known limits stay. Reset affects this process only. The buckets end with the Limiter.
	ScopeProcess
)

// Events are hooks; each may be nil. A key longer than lease.KeyMax is passed as lease.ShortKey of it, except
// to hooks that run for a request.
//
// NodeAway, NodeBack, KeyFailed, Lost, Conflict, LimitsChanged and NearlyUsed run one at a time, in the order
// of their causes, on any goroutine of the Limiter. They may use the Limiter. They must not block, because
// calls and other events wait for them.
type Events struct {
	// Granted runs after a lease call that brought n tokens, on the goroutine of the call. It must not block.
	Granted func(key string, n int64)
	// Denied runs for every denied request, on the goroutine of the request. n is the requested number of
	// tokens. A request with a negative n is an error and no denial. With Policy.Shadow, Denied runs for
	// requests that the limits would have denied. It may block: only that request waits.
	Denied func(key string, n int64)

	// NodeAway runs when a call to a node of the store has failed, so that the node is away. The call may be
	// of another Limiter on the same Store. err has the cause on one line of about 1,000 bytes. From now on
	// Policy.Fallback decides requests for the node's keys, except for tokens that the process holds. See
	// Stats.Nodes.
	NodeAway func(node string, err error)
	// NodeBack runs when the node has answered a call again; after is the time since NodeAway. Requests
	// and due reports cause calls. Without them a node stays away. NodeBack does not run after Close.
	NodeBack func(node string, after time.Duration)
	// KeyFailed runs when a lease call for key has failed although its node is well, for example because the
	// bucket is damaged. Policy.Fallback decides for this key until a call succeeds, after which KeyFailed
	// may run again.
	KeyFailed func(key string, err error)
	// Lost runs when n leased tokens are lost unspent.
	Lost func(key string, n int64, reason LossReason)
	// Conflict runs when the bucket of key has other limits, stored, under the same Version. They come from
	// another process or from another handle of KeyWithLimits. The stored limits hold.
	Conflict func(key string, stored []Limit)
	// LimitsChanged runs when a reply names other limits for key than this process knew: after SetLimits, in
	// any process, or after another deploy. For a key outside the table, the process knows only its own
	// proposal.
	LimitsChanged func(key string, limits []Limit)
	// NearlyUsed runs when four fifths of a limit are used. share is the used or leased part of the burst, or
	// of a window's tokens. It runs in the process whose lease call crossed four fifths, at most once in the
	// time in which the bucket fills, or once per window. If the level crosses again, another process may run
	// it too. If the reply is lost, none does. key is the key of the request: httplimit.FirstOf begins it
	// with a number and a colon.
	NearlyUsed func(key string, limit Limit, share float64)
	// Misconfigured runs when Config.LimitsFor returned an error or invalid limits. It runs on the goroutine
	// of the request, which it may block.
	Misconfigured func(key string, err error)
}

// LossReason explains why leased tokens are lost.
type LossReason string

const (
	// LossVoid: the bucket does not know the lease. The bucket was evicted, flushed or lost in a failover, or
	// it has had no call of this process for a TTL.
	LossVoid LossReason = "void"
	// LossExpired: the lease ended before a reply renewed it, or a call that returned tokens had no answer in
	// time.
	LossExpired LossReason = "expired"
)

// Types of package lease, which documents them.
type (
	Limit     = lease.Limit     // a rule such as 100 tokens per second
	Kind      = lease.Kind      // token bucket, sliding window or calendar
	Policy    = lease.Policy    // tunes leasing; zero fields are good defaults
	ColdStart = lease.ColdStart // the answer before the first reply
	Fallback  = lease.Fallback  // the rule while the store is away
	Source    = lease.Source    // the basis of a decision
	Store     = lease.Store     // the place of the buckets; redisbucket.New returns one in Redis
)

// The constants of Kind, of Source and of Policy.
const (
	KindBucket   = lease.KindBucket   // admits at most Burst + Tokens/Per*w in any window of length w
	KindSliding  = lease.KindSliding  // admits at most Tokens in any window of length Per
	KindCalendar = lease.KindCalendar // admits at most Tokens in each period of length Per

	SourceLocal    = lease.SourceLocal    // tokens of this process, or the last reply of the bucket
	SourceStore    = lease.SourceStore    // a lease call for this request
	SourceFallback = lease.SourceFallback // Policy.Fallback or ColdStart, as the store did not answer

	ColdStartDeny      = lease.ColdStartDeny      // deny before the first reply
	ColdStartAllow     = lease.ColdStartAllow     // admit before the first reply
	FallbackLocalShare = lease.FallbackLocalShare // admit this process's part of the rate
	FallbackDeny       = lease.FallbackDeny       // admit nothing, as for the limit of a third party
	FallbackAllowAll   = lease.FallbackAllowAll   // admit everything
)

// Unlimited and Blocked stand alone: neither may be combined with other limits. They come from
// Config.LimitsFor, for a customer, or from SetLimits, for an abused key. They suspend the limits that they
// replace: when those come back, they continue as if only time had passed.
//
// A denial by Blocked has a RetryAfter of 100 years. Wait fails at once with ErrWouldExceedDeadline if its
// context has a deadline; without one it waits until the limits change or the context ends.
var (
	Unlimited = lease.Unlimited // admits everything, even while the store is away
	Blocked   = lease.Blocked   // admits nothing, even by Policy.Fallback
)

// PerSecond returns a limit of n tokens per second with a burst of n. An idle key admits up to 2n in its
// first second, the burst and the refill, and then n per second.
//
// If a partner allows n calls per second, use nine tenths of the rate, a burst of n/20 rounded down and
// FallbackDeny, because calls arrive less evenly than they leave. Add Policy.StartEmpty if Redis may lose its
// data. For 100, PerSecond(90).WithBurst(5) admits at most 95 in any second. Sliding admits n in any window,
// but possibly all at once, and needs a larger margin.
func PerSecond(n int64) Limit { return lease.PerSecond(n) }

// PerMinute returns a limit of n tokens per minute with a burst of n, as in redis_rate. After a rest it
// admits up to 2n in a minute; Sliding does not.
func PerMinute(n int64) Limit { return lease.PerMinute(n) }

// PerHour returns a limit of n tokens per hour with a burst of n.
func PerHour(n int64) Limit { return lease.PerHour(n) }

// Every returns a limit of one token per d with a burst of 1.
func Every(d time.Duration) Limit { return lease.Every(d) }

// Sliding returns a limit of n tokens in any window of length w; see lease.Sliding.
func Sliding(n int64, w time.Duration) Limit { return lease.Sliding(n, w) }

// Calendar returns a limit of n tokens per period of the server's clock. Periods begin at offset after 1970
// UTC and every period later; see lease.Calendar.
func Calendar(n int64, period, offset time.Duration) Limit { return lease.Calendar(n, period, offset) }

// ParseLimit reads a limit such as "100/s", "5000/m burst 200", "1/250ms", "100 in 1m" or "1000 each 24h from
// 16h"; see lease.ParseLimit.
func ParseLimit(s string) (Limit, error) { return lease.ParseLimit(s) }

// The errors of this package wrap these, for errors.Is.
var (
	ErrClosed        = errors.New("hybrid: limiter closed")
	ErrExceedsBurst  = errors.New("hybrid: n exceeds burst")             // repeating the request cannot help
	ErrOvershoot     = errors.New("hybrid: overshoot exceeds its bound") // charged up to the bound
	ErrInvalidKey    = errors.New("hybrid: invalid key")                 // the key is empty
	ErrInvalidN      = errors.New("hybrid: invalid n")                   // n is negative
	ErrInvalidConfig = errors.New("hybrid: invalid configuration")       // the text lists every violation
	ErrUnavailable   = lease.ErrUnavailable                              // an operation may have happened
	ErrTableFull     = errors.New("hybrid: key table full")              // see Config.KeysMax
	// ErrWouldExceedDeadline means that the context's deadline comes before the tokens can. It wraps
	// context.DeadlineExceeded. RetryAfter returns the time until the tokens can exist.
	ErrWouldExceedDeadline = fmt.Errorf("hybrid: a wait would end with: %w", context.DeadlineExceeded)
)

// The causes of failed calls in Events.NodeAway, Events.KeyFailed and the log.
var (
	errOverdue = fmt.Errorf("%w: no answer in time", lease.ErrUnavailable)
	errForeign = fmt.Errorf("%w: the reply belongs to another call", lease.ErrUnavailable)
)

var errEmptyKey = fmt.Errorf("%w: the key is empty", ErrInvalidKey)

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

// RetryAfter returns how long to wait before a request that failed with err is repeated. After
// ErrWouldExceedDeadline the tokens can exist then, and after ErrTableFull a key can have left the table. It
// returns 0 if waiting does not help, as after ErrExceedsBurst, and for the context's own error. It also
// serves errors of other packages with a method RetryAfter() time.Duration.
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

// headroomOf returns how many tokens of l's burst a process with this Policy.Headroom leaves in the bucket.
func headroomOf(l Limit, headroom float64) int64 {
	return int64(math.Ceil(float64(l.Capacity()) * headroom))
}

// checkPriorities adds the violations of c.Priorities to bad.
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
