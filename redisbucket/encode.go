package redisbucket

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// appendConfig writes c as the scripts read and store it (common.lua); its TTL travels separately, because a
// longer one is taken at once. c must be valid.
func appendConfig(dst []byte, c *lease.Config) ([]byte, error) {
	dst = appendInts(dst, c.Version.Deploy, c.Version.Revision, c.Overcommit, bit(c.StartEmpty), int64(c.Target))
	for _, l := range c.Limits {
		s, err := l.Scale(c.Overcommit)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", lease.ErrInvalidConfig, err)
		}
		dst = append(dst, ';')
		dst = appendInts(dst, l.Tokens, int64(l.Per), l.Burst, s.Capacity, s.Unit, s.Step, s.Tick)
	}
	return dst, nil
}

// appendRequest writes the numbers of r in the order of lease.lua's ARGV[2].
func appendRequest(dst []byte, r *lease.Request) []byte {
	return appendInts(dst, micros(r.Config.TTL), r.Seq, r.Remaining, r.Returned, r.Refund, r.Debt, r.Want, r.Need,
		r.Waiting, r.Weight, r.Epoch, r.Counter, micros(r.HeardTTL))
}

func appendInts(dst []byte, values ...int64) []byte {
	for i, v := range values {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = strconv.AppendInt(dst, v, 10)
	}
	return dst
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func micros(d time.Duration) int64 { return int64(d / time.Microsecond) }

var errConfigText = errors.New("configuration text is damaged")

// parseConfig reads what appendConfig wrote; ttl comes beside it. The result is valid.
func parseConfig(text string, ttl time.Duration) (lease.Config, error) {
	head, limits, _ := strings.Cut(text, ";")
	h, ok := parseInts(head, 5)
	if !ok || h[3] > 1 {
		return lease.Config{}, fmt.Errorf("%w: %q", errConfigText, text)
	}
	c := lease.Config{
		Version:    lease.Version{Deploy: h[0], Revision: h[1]},
		Overcommit: h[2], StartEmpty: h[3] == 1, Target: time.Duration(h[4]), TTL: ttl,
	}
	for part := range strings.SplitSeq(limits, ";") {
		f, ok := parseInts(part, 7)
		if !ok || len(c.Limits) == lease.LimitsMax {
			return lease.Config{}, fmt.Errorf("%w: %q", errConfigText, text)
		}
		c.Limits = append(c.Limits, lease.Limit{Tokens: f[0], Per: time.Duration(f[1]), Burst: f[2]})
	}
	// The bucket counts in whole microseconds, so its ttl may be a fraction below twice a target that is not whole.
	whole := c
	whole.Target = c.Target.Truncate(time.Microsecond)
	if err := whole.Validate(); err != nil {
		return lease.Config{}, fmt.Errorf("%w: %q: %w", errConfigText, text, err)
	}
	// The scale is derived from the limit; a text that says otherwise was not written by this protocol.
	if again, err := appendConfig(nil, &c); err != nil || string(again) != text {
		return lease.Config{}, fmt.Errorf("%w: %q", errConfigText, text)
	}
	return c, nil
}

// parseInts reads exactly n numbers of digits alone, separated by one space.
func parseInts(text string, n int) ([]int64, bool) {
	out := make([]int64, 0, n)
	for part := range strings.SplitSeq(text, " ") {
		v, err := strconv.ParseInt(part, 10, 64)
		if err != nil || v < 0 || part[0] == '+' || part[0] == '-' || len(out) == n {
			return nil, false
		}
		out = append(out, v)
	}
	return out, len(out) == n
}
