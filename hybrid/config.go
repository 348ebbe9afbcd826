package hybrid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// keysMaxDefault keys take 250 MB at rest, and 1.8 kB each while in use.
const keysMaxDefault = 1 << 20

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
	// whose Limits, Overcommit, Target or StartEmpty differ from those of another that is open. What
	// their LimitsFor say is not compared.
	Name string
	// Limits apply to every key; all of them must have room, and one call leases from all. At most
	// 4.
	Limits []Limit
	// LimitsFor, if set, gives the limits of one key; nil means Limits. It is called when a key is
	// used that was not used for a TTL or longer, on the goroutine of the request, which it may
	// block. Where several such requests come at once, one answer is used. Refresh and RefreshAll
	// call it again; KeyWith takes its place.
	//
	// An empty list, nil without Limits and limits that are not valid are a mistake: requests for
	// the key get ErrInvalidConfig or false, which the log says once for a key, Stats.Misconfigured
	// counts and Events.Misconfigured tells. A key that is not to be limited has Unlimited, one that
	// is to have nothing Blocked.
	LimitsFor func(key string) []Limit
	// Version is the deploy half of the configuration's version: across processes the highest one
	// wins at once. Under equal ones, 0 as a rule, the limits of a deploy or of a rollback are in
	// force two TTLs after the last process that was started with the others has called.
	Version     int64
	Policy      lease.Policy  // tunes leasing
	Scope       Scope         // who shares a key's bucket: all processes, unless it is ScopeProcess
	CallTimeout time.Duration // the longest that a method without a context waits; 0 means 100 ms
	// Priorities are what Key.Class leaves in the bucket for the classes before it: class p is granted
	// tokens only while the level is above the share Priorities[p-1] of every burst, so that what
	// matters goes on when the bucket runs low. Rising, 0 to below 1.
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

// Validate reports every violation at once, each with its value and its bound, wrapping
// ErrInvalidConfig.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrInvalidConfig}, args...)...))
	}
	if !isName(c.Name) {
		bad("Name is %q, must be at most %d of A-Z, a-z, 0-9, '_', '.' and '-'", c.Name, nameMax)
	}
	if len(c.Limits) == 0 && c.LimitsFor == nil {
		bad("Limits is empty and LimitsFor is nil, one must be set")
	}
	policy := c.Policy
	if err := policy.Validate(); err != nil {
		bad("Policy: %w", err)
		policy = Policy{} // the limits are judged all the same
	}
	c.checkPriorities(bad)
	if len(c.Limits) > 0 {
		timeout := min(max(c.CallTimeout, 0), callTimeoutMax)
		if err := policy.ConfigFor(c.Limits, 0, timeout).Validate(); err != nil {
			bad("%w", err)
		}
	}
	if c.Version < 0 || c.Version >= 1<<52 {
		bad("Version is %d, must be 0 to 2^52-1", c.Version)
	}
	if c.Scope < ScopeFleet || c.Scope > ScopeProcess {
		bad("Scope is %d, must be ScopeFleet (%d) or ScopeProcess (%d)", c.Scope, ScopeFleet, ScopeProcess)
	}
	if c.CallTimeout < 0 || c.CallTimeout > callTimeoutMax {
		bad("CallTimeout is %v, must be 0 to %v", c.CallTimeout, callTimeoutMax)
	}
	if c.KeysMax < 0 {
		bad("KeysMax is %d, must be at least 0", c.KeysMax)
	}
	if c.Clock != nil && isNil(c.Clock) {
		bad("Clock is a nil %T", c.Clock)
	}
	return errors.Join(errs...)
}

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

// The names of package lease that most programs need, so that they import this package alone.
type (
	Limit     = lease.Limit     // Tokens per Per, with Burst; or another Kind
	Kind      = lease.Kind      // what a Limit promises: a bucket, a sliding window or a calendar
	Policy    = lease.Policy    // how to lease; the zero value is a good default
	ColdStart = lease.ColdStart // what is answered before the first reply
	Fallback  = lease.Fallback  // what decides while the store is away
	Source    = lease.Source    // what a decision rests on
)

// The constants of Kind, of Source and of Policy.
const (
	KindBucket   = lease.KindBucket   // at most Burst + Tokens/Per*w in any window of length w
	KindSliding  = lease.KindSliding  // at most Tokens in any window of length Per
	KindCalendar = lease.KindCalendar // at most Tokens in each period of length Per

	SourceLocal    = lease.SourceLocal    // tokens that this process held, or what it last heard
	SourceStore    = lease.SourceStore    // the answer of a lease call made for this request
	SourceFallback = lease.SourceFallback // Policy.Fallback or ColdStart: the store did not answer

	ColdStartDeny      = lease.ColdStartDeny
	ColdStartAllow     = lease.ColdStartAllow
	FallbackLocalShare = lease.FallbackLocalShare
	FallbackDeny       = lease.FallbackDeny
	FallbackAllowAll   = lease.FallbackAllowAll
)

// Limits for keys that are not to be limited, and for keys that are to have nothing: for customers
// of Config.LimitsFor, and with SetLimits for a key that somebody abuses.
var (
	Unlimited = lease.Unlimited // admits everything, also while the store is away
	Blocked   = lease.Blocked   // admits nothing, whatever Policy.Fallback says
)

// PerSecond is n tokens per second with a burst of n.
func PerSecond(n int64) Limit { return lease.PerSecond(n) }

// PerMinute is n tokens per minute with a burst of n.
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

// What the errors of this package wrap.
var (
	ErrClosed        = errors.New("hybrid: limiter closed")
	ErrExceedsBurst  = errors.New("hybrid: n exceeds burst")             // no wait would ever help
	ErrOvershoot     = errors.New("hybrid: overshoot exceeds its bound") // and is charged up to that
	ErrInvalidKey    = errors.New("hybrid: invalid key")                 // it is empty
	ErrInvalidN      = errors.New("hybrid: invalid n")                   // it is negative
	ErrInvalidConfig = errors.New("hybrid: invalid configuration")       // each violation is in the text
	// ErrUnavailable: the store did not answer, or the table of keys is full of keys in use.
	ErrUnavailable = errors.New("hybrid: store unavailable")
	// ErrWouldExceedDeadline: the tokens cannot be there before the context's deadline. It wraps
	// context.DeadlineExceeded, which is what waiting would have come to.
	ErrWouldExceedDeadline = fmt.Errorf("hybrid: a wait would end with: %w", context.DeadlineExceeded)
)
