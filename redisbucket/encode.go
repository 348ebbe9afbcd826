package redisbucket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// configSize is the length of the configuration of so many limits, requestSize that of a request.
func configSize(limits int) int { return 8 * (5 + 7*limits) }

const requestSize = 8 * 17

// appendConfig writes c as the scripts read and store it, see common.lua. The TTL travels in the
// request, because it is a proposal whatever the version. c must be valid.
func appendConfig(dst []byte, c *lease.Config) ([]byte, error) {
	dst = appendDoubles(dst,
		c.Version.Deploy, c.Version.Revision, c.Overcommit, bit(c.StartEmpty), int64(c.Target))
	for _, l := range c.Limits {
		s, err := l.Scale(c.Overcommit)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", lease.ErrInvalidConfig, err)
		}
		for _, v := range [...]int64{l.Tokens, int64(l.Per), l.Burst} { // these may be too large for a double
			dst = binary.LittleEndian.AppendUint64(dst, uint64(v))
		}
		dst = appendDoubles(dst, s.Capacity, s.Unit, s.Step, s.Tick)
	}
	return dst, nil
}

// appendRequest writes the numbers of r in the order of lease.lua's ARGV[3].
func appendRequest(dst []byte, r *lease.Request) []byte {
	return appendDoubles(dst,
		micros(r.Config.TTL), r.Seq, r.Remaining, r.Returned, r.Refund, r.Unused, r.Debt, r.Want, r.Need,
		r.Waiting, r.Weight, r.Epoch, r.Counter, r.Drawn, micros(r.LeaseMax), r.HeardAt, micros(r.HeardAge))
}

// appendDoubles writes values, which are below 2^53, in the form of Lua's numbers.
func appendDoubles(dst []byte, values ...int64) []byte {
	for _, v := range values {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(v)))
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

// parseConfig reads what appendConfig wrote. The result has the given ttl, and is valid except that
// a T that has not grown yet may be too short for the Target.
func parseConfig(text string, ttl time.Duration) (lease.Config, error) {
	limits := (len(text) - configSize(0)) / (configSize(1) - configSize(0))
	if limits < 1 || limits > lease.LimitsMax || len(text) != configSize(limits) {
		return lease.Config{}, fmt.Errorf("%w: %q", errConfigText, text)
	}
	at := 0
	word := func() uint64 {
		at += 8
		return binary.LittleEndian.Uint64([]byte(text[at-8 : at]))
	}
	// A double that is not whole becomes another number, which the comparison at the end finds.
	double := func() int64 { return int64(math.Float64frombits(word())) }
	c := lease.Config{
		Version:    lease.Version{Deploy: double(), Revision: double()},
		Overcommit: double(), StartEmpty: double() == 1, Target: time.Duration(double()), TTL: ttlMax,
	}
	for range limits {
		l := lease.Limit{Tokens: int64(word()), Per: time.Duration(word()), Burst: int64(word())}
		c.Limits = append(c.Limits, l)
		at += 4 * 8 // the scale follows from the limit
	}
	if err := c.Validate(); err != nil {
		return lease.Config{}, fmt.Errorf("%w: %q: %w", errConfigText, text, err)
	}
	// Whatever differs from what this library writes, for instance a wrong scale, is damage.
	if again, err := appendConfig(nil, &c); err != nil || string(again) != text {
		return lease.Config{}, fmt.Errorf("%w: %q", errConfigText, text)
	}
	c.TTL = ttl
	return c, nil
}
