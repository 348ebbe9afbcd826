package redisbucket

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// ErrReply reports an answer that is not a reply of the scripts. A call with ErrReply may have been executed,
// so the call's error also wraps lease.ErrUnavailable.
var ErrReply = errors.New("unexpected reply")

// answer reads the flat array of a reply front to back. After an error all values are meaningless.
type answer struct {
	items []any // the items not read yet
	err   error
}

func (a *answer) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("%w: "+format, append([]any{ErrReply}, args...)...)
	}
}

func next[T any](a *answer, name string) (item T) {
	if len(a.items) == 0 {
		a.fail("%s is missing", name)
		return item
	}
	item, ok := a.items[0].(T)
	if !ok {
		a.fail("%s is %T, must be %T", name, a.items[0], item)
	}
	a.items = a.items[1:]
	return item
}

func (a *answer) text(name string) string { return next[string](a, name) }

func (a *answer) number(name string, least, most int64) int64 {
	n := next[int64](a, name)
	if n < least || n > most {
		a.fail("%s is %d, must be %d to %d", name, n, least, most)
	}
	return n
}

func (a *answer) flag(name string) bool { return a.number(name, 0, 1) == 1 }

func (a *answer) config() lease.Config {
	ttl := time.Duration(a.number("ttl", 1, ttlMax.Microseconds())) * time.Microsecond
	text := a.text("configuration")
	if a.err != nil {
		return lease.Config{}
	}
	c, on, err := parseConfig(text, ttl)
	if err != nil {
		a.fail("%w", err)
	}
	if on != protocol.SwitchNone {
		c.Limits = on.Limits()
	}
	return c
}

// limits reads the end of the reply: the level of each limit, and the time until its next token.
func (a *answer) limits(
	c *lease.Config, levels *[lease.LimitsMax]int64, next *[lease.LimitsMax]time.Duration,
) {
	if n := len(a.items); a.err == nil && n != 2*len(c.Limits) {
		a.fail("%d items at the end for %d limits, must be 2 for each", n, len(c.Limits))
	}
	for k, l := range c.Limits {
		levels[k], next[k] = a.number("level", -wholeMax, l.Capacity()),
			time.Duration(a.number("next", 0, wholeMax))*time.Microsecond
	}
}

// open returns a reader of v, or the error that v reports, which wraps `invalid` for a refused argument.
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
	case "newer":
		key := a.text("key")
		return nil, fmt.Errorf("%w: %q", newerLayout(a.number("layout", layout+1, 255)), key)
	default:
		a.fail("status is %q", word)
		return nil, a.err
	}
}

// decodeGrant reads the reply of lease.lua or draw.lua to r. A number out of the bounds that r allows is an
// error, so that a faulty server creates no tokens.
func decodeGrant(v any, r *lease.Request) (g lease.Grant, err error) {
	text, ok := v.(string)
	switch {
	case !ok:
		if _, err = open(v, lease.ErrInvalidRequest); err == nil {
			err = fmt.Errorf("%w: array is no refusal, must be a string", ErrReply)
		}
		return g, err
	case len(text) == drawReply:
		return decodeDraw(text, r)
	case len(text) < grantSize+levelReply:
		return g, fmt.Errorf("%w: string of %d bytes, must be at least %d", ErrReply, len(text), grantSize+levelReply)
	}
	in := reader{left: text}
	duration := func(least, most int64) time.Duration {
		return time.Duration(in.number(7, least, most)) * time.Microsecond
	}
	g.Seq, g.Granted = in.number(7, r.Seq, r.Seq), in.number(7, 0, r.Want)
	flags := in.number(1, 4, 4*lease.LimitsMax+3)
	g.Void, g.Contended = flags&1 != 0, flags&2 != 0
	g.Delay, g.RetryAfter = duration(0, wholeMax), duration(0, wholeMax)
	// The next call repeats epoch, counter and times, so they must be valid in a request.
	g.Epoch, g.Counter = in.number(7, 1, lease.WaitingMax), in.number(6, 0, lease.WaitingMax)
	g.ActiveWeight, g.Expiry = in.number(7, 1, wholeMax), duration(1, wholeMax)
	g.LeaseMax = duration(1, leaseMax.Microseconds())
	g.Frozen, g.Running = duration(0, leaseMax.Microseconds()), in.number(7, 0, lease.WaitingMax)
	g.ServerTime, g.Ledger = in.number(7, 0, lease.WaitingMax), in.number(7, 0, wholeMax)
	g.Target = duration(1, wholeMax)
	ttl := time.Duration(in.number(4, 1, ttlMax.Microseconds())) * time.Microsecond
	if in.err == nil {
		g.Config, in.err = configOf(in.left, int(flags/4), r, ttl)
	}
	for k, l := range g.Config.Limits {
		// A level is negative if a charge is owed, or if the level is below the headroom.
		level := in.double()
		if !(level >= -wholeMax && level <= float64(l.Capacity())) || level != math.Trunc(level) {
			in.err = cmp.Or(in.err, fmt.Errorf("level is %v, must be whole, at most %d", level, l.Capacity()))
			level = 0
		}
		g.Levels[k], g.Next[k] = int64(level), duration(0, wholeMax)
	}
	g.Waited = min(g.Granted, r.Waiting)
	if in.err == nil && (g.Granted > 0 && g.Granted < r.Need || g.LeaseMax < g.Config.TTL) {
		in.err = fmt.Errorf("%w: granted is %d, must be 0 or at least %d; the longest lease is %v, must be at least "+
			"the ttl %v", ErrReply, g.Granted, r.Need, g.LeaseMax, g.Config.TTL)
	}
	if in.err != nil { // the script has run, so the error concerns the key only
		return lease.Grant{}, fmt.Errorf("%w: %w: %w", errFigure, ErrReply, in.err)
	}
	return g, nil
}

// grantSize is the size of a reply of lease.lua before the levels, and levelReply the size of one level.
const grantSize, levelReply = 102, 15

// configOf returns the configuration in force. left is the end of the reply to r: the levels and, unless r's
// proposal is in force, the text of the configuration.
func configOf(left string, levels int, r *lease.Request, ttl time.Duration) (c lease.Config, err error) {
	if len(left) < levelReply*levels {
		return c, fmt.Errorf("%w: only %d bytes left for the levels", ErrReply, len(left))
	}
	on := protocol.SwitchOf(r.Config.Limits)
	if left = left[levelReply*levels:]; left == "" {
		c = r.Config
		c.TTL = ttl
	} else {
		c, on, err = parseConfig(left, ttl)
	}
	if err == nil && on != protocol.SwitchNone {
		c.Limits = on.Limits()
	}
	if err == nil && len(c.Limits) != levels {
		err = fmt.Errorf("%w: %d levels for %d limits", ErrReply, levels, len(c.Limits))
	}
	return c, err
}

const drawReply = 41

// decodeDraw reads the reply of draw.lua to r, with the checks of decodeGrant.
func decodeDraw(text string, r *lease.Request) (lease.Grant, error) {
	if len(text) != drawReply || !r.Draw || len(r.Config.Limits) != 1 {
		return lease.Grant{}, fmt.Errorf("%w: string of %d bytes", ErrReply, len(text))
	}
	in := reader{left: text}
	g := lease.Grant{
		Seq: r.Seq, Granted: r.Want, Waited: r.Want, LeaseMax: r.Config.TTL, Target: r.Config.Target,
		Status: lease.Status{Config: r.Config, ActiveWeight: r.Weight,
			Epoch: in.whole(7), Counter: in.whole(6), ServerTime: in.whole(7)},
	}
	g.Running = g.ServerTime
	expiry, level, next := in.whole(7), in.whole(7), in.whole(7)
	if g.Epoch < 1 || g.Epoch > lease.WaitingMax || g.ServerTime > lease.WaitingMax ||
		expiry < 1 || expiry > wholeMax || level > r.Config.Limits[0].Capacity() || next > wholeMax {
		return lease.Grant{}, fmt.Errorf("%w: %w: %x", errFigure, ErrReply, text)
	}
	g.Expiry = time.Duration(expiry) * time.Microsecond
	g.Levels[0], g.Next[0] = level, time.Duration(next)*time.Microsecond
	return g, nil
}

func decodeState(v any) (lease.State, error) {
	a, err := open(v, lease.ErrInvalidConfig)
	if err != nil {
		return lease.State{}, err
	}
	st := lease.State{Exists: a.flag("exists"), Changed: a.flag("changed")}
	if a.err == nil && !st.Exists && !st.Changed && len(a.items) == 0 {
		return st, nil
	}
	st.Ledger, st.ActiveWeight = a.number("ledger", 0, wholeMax), a.number("active weight", 0, wholeMax)
	st.Epoch, st.Counter = a.number("epoch", 0, wholeMax), a.number("counter", 0, wholeMax)
	st.Spent, st.Denied = a.number("spent", 0, wholeMax), a.number("denied", 0, wholeMax)
	st.ServerTime = a.number("server time", 0, wholeMax)
	st.Config = a.config()
	a.limits(&st.Config, &st.Levels, &st.Next)
	if a.err != nil {
		return lease.State{}, a.err
	}
	return st, nil
}
