package redisbucket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// escaper keeps '}' out of a tag, where it would end the tag early. So '%' and a letter can mark
// tags that no user's key spells: tagEmpty, and the hashes of lease.HashKey.
var escaper = strings.NewReplacer("%", "%25", "}", "%7D")

// tagEmpty is the tag of the empty key. To Redis an empty tag is none.
const tagEmpty = "%e"

// tag is the hash tag of one user's key, for any bytes. Different keys have different tags, except
// for a collision of SHA-256. A tag is never empty and holds no '}', so everything of one bucket is
// in one slot. A key full of braces is hashed, since its escape would take three times the memory.
func tag(key string) string {
	switch {
	case key == "":
		return tagEmpty
	case lease.IsKeyHash(key):
		return key // hybrid has hashed a long key
	case len(key) <= lease.KeyMax:
		if escaped := escaper.Replace(key); len(escaped) <= max(len(key)+len(key)/10, lease.KeyHashLen) {
			return escaped
		}
	}
	return lease.HashKey(key)
}

// bucketKey is the Redis key of the bucket of key. The prefix holds no brace, so the first '{'
// opens the tag.
func (s *Store) bucketKey(key string) string { return s.prefix + "{" + tag(key) + "}" }

// recordKey is the Redis key of one holder's record beside the bucket. A bucket's key ends with the
// only '}' in it, a record's key goes on after it, so the two kinds never meet.
func recordKey(bucketKey, holder string) string { return bucketKey + ":" + holder }

// leaseKeys are the keys of a call of lease.lua: parts of one text, which is one allocation.
func (s *Store) leaseKeys(key, holder string) (bucket, record string) {
	record = s.prefix + "{" + tag(key) + "}:" + holder
	return record[:len(record)-len(holder)-1], record
}

// configSize is the length of the configuration of so many limits, requestSize that of a request.
func configSize(limits int) int { return 8 * (5 + 7*limits) }

const requestSize = 8 * 20

// appendConfig writes c as the scripts read and store it, see common.lua. The TTL travels in the
// request, because it is a proposal whatever the version. A c that is not valid is refused.
func appendConfig(dst []byte, c *lease.Config) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	dst = appendDoubles(dst,
		c.Version.Deploy, c.Version.Revision, c.Overcommit, bit(c.StartEmpty), int64(c.Target))
	for _, l := range c.Limits {
		s, _ := l.Scale(c.Overcommit)                                   // a valid limit has one
		for _, v := range [...]int64{l.Tokens, int64(l.Per), l.Burst} { // these may be too large for a double
			dst = binary.LittleEndian.AppendUint64(dst, uint64(v))
		}
		dst = appendDoubles(dst, s.Capacity, s.Unit, s.Step, s.Tick)
	}
	return dst, nil
}

// appendRequest writes the numbers of r in the order of lease.lua's ARGV[3].
func appendRequest(dst []byte, r *lease.Request) []byte {
	dst = appendDoubles(dst,
		micros(r.Config.TTL), r.Seq, r.Remaining, r.Returned, r.Refund, r.Unused, r.Debt, r.Want, r.Need,
		r.Waiting, r.Weight, r.Epoch, r.Counter, r.Charge)
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(r.Headroom))
	return appendDoubles(dst, r.Denied, r.Drawn, micros(r.LeaseMax), r.HeardAt, micros(r.HeardAge))
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
	again, err := appendConfig(nil, &c)
	if err != nil {
		return lease.Config{}, fmt.Errorf("%w: %q: %w", errConfigText, text, err)
	}
	// Whatever differs from what this library writes, for instance a wrong scale, is damage.
	if string(again) != text {
		return lease.Config{}, fmt.Errorf("%w: %q", errConfigText, text)
	}
	c.TTL = ttl
	return c, nil
}
