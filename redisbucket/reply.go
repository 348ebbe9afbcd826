package redisbucket

import (
	"errors"
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// ErrReply is wrapped by every error that says that the server answered with something that is not a reply of
// these scripts: a proxy, another program on that port, or a truncated answer. Whether the call was executed is
// unknown, so it also wraps lease.ErrUnavailable.
var ErrReply = errors.New("unexpected reply")

const (
	// wholeMax is the largest number of a reply: doubles are exact up to there, and so many
	// microseconds are a Duration.
	wholeMax = 1 << 53
	// ttlMax is the longest T, and leaseMax more than the longest lease that can come of it: one
	// slice of the ring more.
	ttlMax, leaseMax = time.Hour, 2 * time.Hour
)

// answer reads a flat array front to back. The first thing that is not as expected ends it.
type answer struct {
	items []any
	at    int
	err   error
}

func (a *answer) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("%w: "+format, append([]any{ErrReply}, args...)...)
	}
}

// text is the next item, which must be a string.
func (a *answer) text(name string) string {
	if a.at >= len(a.items) {
		a.fail("%d items, no %s", len(a.items), name)
		return ""
	}
	s, ok := a.items[a.at].(string)
	if !ok {
		a.fail("%s is %T, must be text", name, a.items[a.at])
	}
	a.at++
	return s
}

// number is the next item, which must be a whole number from 0 to most.
func (a *answer) number(name string, most int64) int64 {
	if a.at >= len(a.items) {
		a.fail("%d items, no %s", len(a.items), name)
		return 0
	}
	n, ok := a.items[a.at].(int64)
	if !ok {
		a.fail("%s is %T, must be a number", name, a.items[a.at])
	} else if n < 0 || n > most {
		a.fail("%s is %d, must be 0 to %d", name, n, most)
	}
	a.at++
	return n
}

func (a *answer) duration(name string) time.Duration {
	return time.Duration(a.number(name, wholeMax)) * time.Microsecond
}

func (a *answer) flag(name string) bool { return a.number(name, 1) == 1 }

// config is the configuration in force; an empty text stands for proposed, where the script may answer so.
func (a *answer) config(proposed *lease.Config) lease.Config {
	ttl := a.duration("ttl")
	text := a.text("configuration")
	if ttl < time.Microsecond || ttl > ttlMax {
		a.fail("ttl is %v, must be 1µs to %v", ttl, ttlMax)
	}
	if a.err != nil {
		return lease.Config{}
	}
	if text == "" && proposed != nil {
		c := *proposed
		c.TTL = ttl
		return c
	}
	c, err := parseConfig(text, ttl)
	if err != nil {
		a.fail("%w", err)
	}
	return c
}

// levels end the reply: of each limit the level, none above its capacity, and when it has a token
// more.
func (a *answer) levels(c *lease.Config) (levels [lease.LimitsMax]int64, next [lease.LimitsMax]time.Duration) {
	if a.err != nil {
		return levels, next
	}
	if n := len(a.items) - a.at; n != 2*len(c.Limits) || len(c.Limits) > lease.LimitsMax {
		a.fail("%d items at the end for %d limits, must be 2 for each", n, len(c.Limits))
		return levels, next
	}
	for k, l := range c.Limits {
		levels[k], next[k] = a.number("level", l.Capacity()), a.duration("next")
	}
	return levels, next
}

// open checks the first item: it is an error unless the script says "ok", and invalid where it
// refused what it was given.
func open(v any, invalid error) (*answer, error) {
	items, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%w: %T, must be an array", ErrReply, v)
	}
	a := &answer{items: items}
	switch word := a.text("status"); word {
	case "ok":
		return a, nil
	case "stale":
		return nil, lease.ErrStale
	case "invalid":
		return nil, fmt.Errorf("%w: %s", invalid, a.text("reason"))
	case "damaged":
		return nil, fmt.Errorf("%w: %q: %s", errDamaged, a.text("key"), a.text("reason"))
	default:
		a.fail("status is %q", word)
		return nil, a.err
	}
}

// decodeGrant reads the reply of lease.lua to r. Everything is checked against what r allows, so that nothing a
// broken peer sends can mint tokens.
func decodeGrant(v any, r *lease.Request) (lease.Grant, error) {
	a, err := open(v, lease.ErrInvalidRequest)
	if err != nil {
		return lease.Grant{}, err
	}
	g := lease.Grant{
		Seq:        a.number("seq", wholeMax),
		Granted:    a.number("granted", r.Want),
		Void:       a.flag("void"),
		Delay:      a.duration("delay"),
		RetryAfter: a.duration("retry after"),
		Epoch:      a.number("epoch", lease.WaitingMax), // the next call carries it, and so the counter and the times
		Counter:    a.number("counter", lease.WaitingMax),
	}
	g.ActiveWeight = a.number("active weight", wholeMax)
	g.Contended = a.flag("contended")
	g.Expiry = a.duration("expiry")
	g.LeaseMax = a.duration("longest lease")
	g.Running = a.number("running time", lease.WaitingMax)
	g.ServerTime = a.number("server time", lease.WaitingMax)
	g.Ledger = a.number("ledger", wholeMax)
	g.Config = a.config(&r.Config)
	g.Levels, g.Next = a.levels(&g.Config)
	g.Waited = min(g.Granted, r.Waiting)
	g.Short = g.Granted < r.Want
	switch {
	case a.err != nil:
	case g.Seq != r.Seq:
		a.fail("seq is %d, must be %d", g.Seq, r.Seq)
	case g.Granted > 0 && g.Granted < r.Need:
		a.fail("granted is %d, must be 0 or at least %d", g.Granted, r.Need)
	case g.Epoch == 0 || g.Expiry == 0:
		a.fail("epoch %d, expiry %v: must be above 0", g.Epoch, g.Expiry)
	case g.LeaseMax < g.Config.TTL || g.LeaseMax > leaseMax:
		a.fail("longest lease is %v, must be the ttl (%v) to %v", g.LeaseMax, g.Config.TTL, leaseMax)
	case g.ActiveWeight == 0:
		a.fail("active weight is 0")
	}
	if a.err != nil {
		return lease.Grant{}, a.err
	}
	return g, nil
}

// decodeState reads the reply of configure.lua.
func decodeState(v any) (lease.State, error) {
	a, err := open(v, lease.ErrInvalidConfig)
	if err != nil {
		return lease.State{}, err
	}
	st := lease.State{Exists: a.flag("exists"), Changed: a.flag("changed")}
	if a.err == nil && !st.Exists && !st.Changed && len(a.items) == a.at {
		return st, nil
	}
	st.Ledger = a.number("ledger", wholeMax)
	st.ActiveWeight = a.number("active weight", wholeMax)
	st.Epoch = a.number("epoch", wholeMax)
	st.Counter = a.number("counter", wholeMax)
	st.ServerTime = a.number("server time", wholeMax)
	st.Config = a.config(nil)
	st.Levels, st.Next = a.levels(&st.Config)
	if a.err != nil {
		return lease.State{}, a.err
	}
	return st, nil
}
