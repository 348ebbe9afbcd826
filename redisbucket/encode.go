package redisbucket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

func configSize(limits int) int { return 30 + limitSize*limits }

const limitSize, requestSize, drawSize = 30, 143, 78

// appendConfig appends c as ARGV[1] of the scripts (see common.lua), or returns an error if c is invalid.
func appendConfig(dst []byte, c *lease.Config) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	dst = appendWhole(dst, 7, c.Version.Deploy)
	dst = appendWhole(dst, 7, c.Overcommit)
	dst = appendWhole(dst, 4, c.CallsPerSecond)
	dst = appendWhole(dst, 7, c.Version.Revision)
	dst = appendWhole(dst, 1, bit(c.StartEmpty)+switchUnit*int64(protocol.SwitchOf(c.Limits)))
	dst = appendWhole(dst, 4, exact.Micros(c.Target))
	for _, l := range c.Limits {
		scale := protocol.ScaleOf(l, c.Overcommit)
		dst = appendLimit(dst, l, scale)
	}
	return dst, nil
}

func appendLimit(dst []byte, l lease.Limit, s exact.Scale) []byte {
	numbers, code := [...]int64{s.Capacity, s.Unit, s.Step}, int64(slices.Index(ticks[:], s.Tick))
	if l.Windowed() {
		numbers, code = [...]int64{s.Capacity, s.Offset, s.Tick}, kindCode*int64(l.Kind)
	}
	for _, v := range numbers {
		dst = appendWhole(dst, 7, v)
	}
	return appendWhole(appendWhole(dst, 1, code+burstUnsaid*bit(l.Burst == 0)), 8, int64(l.Per))
}

// ticks lists the values of Scale.Tick, in microseconds, by their code in a configuration. The code of a
// window is kindCode times its Kind. burstUnsaid is added to the code of a limit whose Burst is 0.
var ticks = [...]int64{1, 1_000, 1_000_000}

const burstUnsaid, kindCode = 4, 8

// appendWhole appends v, which must not be negative, in size bytes, least significant first.
func appendWhole(dst []byte, size int, v int64) []byte {
	for range size {
		dst = append(dst, byte(v))
		v >>= 8
	}
	return dst
}

// appendRequest appends r as ARGV[3] of lease.lua. A draw omits the fields that are 0 in most draws.
func appendRequest(dst []byte, r *lease.Request) []byte {
	dst = appendWhole(dst, 4, exact.Micros(r.Config.TTL))
	for _, v := range [...]int64{r.Want, r.Epoch, r.Counter, r.Denied, r.Seq, r.Need} {
		dst = appendWhole(dst, 7, v)
	}
	dst = appendWhole(dst, 4, r.Weight)
	for _, v := range [...]int64{
		exact.Micros(r.LeaseMax), r.HeardAt, exact.Micros(r.HeardAge), exact.Micros(r.HeardExpiry),
	} {
		dst = appendWhole(dst, 7, v)
	}
	if r.Draw && len(r.Late) == 0 && r.Headroom == 0 {
		return dst
	}
	for _, v := range [...]int64{r.Remaining, r.Returned, r.Waiting} {
		dst = appendWhole(dst, 7, v)
	}
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(r.Headroom))
	dst = appendWhole(dst, 1, bit(r.Draw))
	for _, l := range r.Late {
		dst = appendWhole(appendWhole(dst, 1, int64(l.Kind)), 7, l.Tokens)
		dst = appendWhole(dst, 7, l.Drawn+exact.Micros(l.Age)) // Drawn or Age is 0
	}
	return dst
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

var errConfigText = errors.New("configuration text is damaged")

// The byte of a configuration at emptyByte is 1 if the bucket starts empty, plus switchUnit times its switch.
const switchUnit, emptyByte = 2, 25

// parseConfig reads a proposed or stored configuration. A stored switch becomes `on`, and the limits beneath
// the switch become c.Limits. c gets the given ttl, which may be too short for the Target.
func parseConfig(text string, ttl time.Duration) (c lease.Config, on protocol.Switch, err error) {
	limits := (len(text) - configSize(0)) / limitSize
	if limits < 1 || limits > lease.LimitsMax || len(text) != configSize(limits) {
		return lease.Config{}, 0, fmt.Errorf("%w: %q", errConfigText, text)
	}
	r := reader{left: text}
	c = lease.Config{TTL: ttlMax}
	c.Version.Deploy, c.Overcommit, c.CallsPerSecond, c.Version.Revision =
		r.whole(7), r.whole(7), r.whole(4), r.whole(7)
	empty := r.whole(1)
	c.StartEmpty, on = empty%switchUnit == 1, protocol.Switch(empty/switchUnit)
	c.Target = time.Duration(r.whole(4)) * time.Microsecond
	for ; r.left != ""; r.left = r.left[limitSize:] {
		c.Limits = append(c.Limits, parseLimit(r.left))
	}
	again, err := appendConfig(nil, &c)
	if err != nil {
		return lease.Config{}, 0, fmt.Errorf("%w: %q: %w", errConfigText, text, err)
	}
	if on == protocol.SwitchUnlimited || on == protocol.SwitchBlocked {
		again[emptyByte] = text[emptyByte]
	}
	// A text is damaged if this library would write its values differently, for instance with another scale.
	if string(again) != text {
		return lease.Config{}, 0, fmt.Errorf("%w: %q", errConfigText, text)
	}
	c.TTL = ttl
	return c, on, nil
}

// parseLimit reads the limit at the start of text. The limit may be invalid.
func parseLimit(text string) lease.Limit {
	r := reader{left: text}
	burst, unit, step, code, per := r.whole(7), r.whole(7), r.whole(7), r.whole(1), r.whole(8)
	l := lease.Limit{Per: time.Duration(per), Burst: burst}
	if code >= kindCode {
		l.Kind, l.Tokens, l.Offset = lease.Kind(code/kindCode), burst, time.Duration(unit)*time.Microsecond
	} else {
		l.Tokens = tokensOf(unit, step, code, per)
	}
	if code&burstUnsaid != 0 {
		l.Burst = 0
	}
	return l
}

// tokensOf computes Limit.Tokens from step/unit, which is Tokens*tick/per in lowest terms.
func tokensOf(unit, step, code, per int64) int64 {
	if unit <= 0 || int(code%burstUnsaid) >= len(ticks) {
		return 0
	}
	parts := uint64(per) / uint64(unit)
	hi, lo := bits.Mul64(parts, uint64(step))
	divisor := uint64(ticks[code%burstUnsaid]) * 1000
	if hi >= divisor {
		return 0
	}
	tokens, _ := bits.Div64(hi, lo, divisor)
	return int64(tokens)
}

const (
	// wholeMax bounds the numbers of a reply: doubles are exact up to 2^53.
	wholeMax = 1 << 53
	// ttlMax is the longest T. leaseMax is above the longest lease, which is T and one slice of the ring.
	ttlMax, leaseMax = exact.MaxTTL, 2 * exact.MaxTTL
)
