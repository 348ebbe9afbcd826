package lease

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// LimitsMax is how many limits one key may have: a call costs the bucket a few operations for each.
const LimitsMax = 4

// ErrInvalidConfig is wrapped by every error that says why a Config cannot be used.
var ErrInvalidConfig = errors.New("lease: invalid configuration")

// Version orders configurations: the one with the higher Deploy wins, then the one with the higher
// Revision. Deploy comes with the program (hybrid.Config.Version); Revision counts changes made at
// run time.
type Version struct {
	Deploy   int64
	Revision int64
}

// after reports whether v wins over o.
func (v Version) after(o Version) bool {
	return v.Deploy > o.Deploy || v.Deploy == o.Deploy && v.Revision > o.Revision
}

// Config is what a bucket stores beside its levels, so that all holders of a key use the same.
// Policy.ConfigFor makes one. It is a value, but copies share Limits, which nobody changes.
type Config struct {
	Limits     []Limit       // 1 to LimitsMax; a request must find room in all
	Overcommit int64         // tokens that level + ledger may reach above every Burst
	TTL        time.Duration // T: how long a holding is valid without renewal
	Target     time.Duration // how long one lease should last at the observed demand
	StartEmpty bool          // a new bucket is empty, not full
	Version    Version
}

// Validate reports every violation, with value and bound, as one error that wraps ErrInvalidConfig.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrInvalidConfig}, args...)...))
	}
	if len(c.Limits) < 1 || len(c.Limits) > LimitsMax {
		bad("%d limits, must be 1 to %d", len(c.Limits), LimitsMax)
	}
	for i, l := range c.Limits {
		if err := l.validateWith(c.Overcommit); err != nil {
			bad("limit %d: %w", i, err)
		}
	}
	if c.Target < time.Microsecond || c.Target > ttlMax {
		bad("Target is %v, must be 1µs to %v", c.Target, ttlMax)
	}
	if c.TTL < 2*c.Target || c.TTL > ttlMax {
		bad("TTL is %v, must be 2*Target (%v) to %v", c.TTL, 2*c.Target, ttlMax)
	}
	if c.Target%time.Microsecond != 0 || c.TTL%time.Microsecond != 0 {
		bad("Target is %v and TTL is %v, both must be whole microseconds, the resolution of the server's clock",
			c.Target, c.TTL)
	}
	if c.Version.Deploy < 0 || c.Version.Deploy >= maxUnits {
		bad("Version is %d, must be 0 to 2^52-1", c.Version.Deploy)
	}
	if c.Version.Revision < 0 || c.Version.Revision >= maxUnits {
		bad("revision is %d, must be 0 to 2^52-1", c.Version.Revision)
	}
	return errors.Join(errs...)
}

// Capacity is the largest n that can ever be granted: the smallest burst.
func (c Config) Capacity() int64 {
	n := int64(maxUnits)
	for _, l := range c.Limits {
		n = min(n, l.Capacity())
	}
	return n
}

// equal reports whether c and o agree on everything but the TTL, which grows by itself.
func (c Config) equal(o Config) bool {
	return slices.Equal(c.Limits, o.Limits) && c.Overcommit == o.Overcommit && c.Target == o.Target &&
		c.StartEmpty == o.StartEmpty && c.Version == o.Version
}
