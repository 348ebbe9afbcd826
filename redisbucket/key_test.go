package redisbucket

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/keyhash"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// oddKeys are user keys that a careless layout mixes up.
var oddKeys = []string{
	"", "{", "}", "{}", "}{", "{}{}", "}}", "a", "a}", "{a}", "a{b}c", "}a", "%", "%25", "%7D", "%e", "%h:",
	"%%", "%7d", "}%", "\x00", "a\x00b", "\r\n", "\xff\xfe", "a:b", "a}:h", ":", "user:{1}", "日本", " ",
	strings.Repeat("x", lease.KeyMax), strings.Repeat("x", lease.KeyMax+1),
	strings.Repeat("x", lease.KeyMax) + "}", strings.Repeat("}", 10_000),
	strings.Repeat("}", lease.KeyMax), strings.Repeat("}", 22), strings.Repeat("}", 23),
	strings.Repeat("x", 90) + "}}}}}", strings.Repeat("x", 90) + "%%%%%%", "%h:" + strings.Repeat("0", 64),
}

// crc16 and slot are the cluster specification's, written down once more.
func crc16(s string) (crc uint16) {
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

func slot(key string) int64 {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if end := strings.IndexByte(key[open+1:], '}'); end > 0 {
			key = key[open+1 : open+1+end]
		}
	}
	return int64(crc16(key) % 16384)
}

func randomKey(rng *rand.Rand) string {
	const alphabet = "{}%:\x00\nab27De\xff"
	b := make([]byte, rng.IntN(8))
	for i := range b {
		b[i] = alphabet[rng.IntN(len(alphabet))]
	}
	return string(b)
}

// TestSlotIsThatOfAServer: the tests below compute slots.
func TestSlotIsThatOfAServer(t *testing.T) {
	rdb := redis.NewClient(patient(redistest.Start(t, "--cluster-enabled", "yes").Addr))
	defer rdb.Close()
	s := &Store{prefix: defaultPrefix}
	for _, key := range oddKeys {
		for _, name := range []string{key, s.bucketKey(key), recordKey(s.bucketKey(key), "}{h")} {
			got, err := rdb.ClusterKeySlot(t.Context(), name).Result()
			testkit.Check(t, err == nil && got == slot(name), "%q: the server says %d, not %d, %v", name, got,
				slot(name), err)
		}
	}
}

func TestKeysOfOneBucketShareASlotAndBucketsNeverMeet(t *testing.T) {
	// given user keys of any bytes
	rng, keys := rand.New(rand.NewPCG(1, 2)), slices.Clone(oddKeys)
	for range testkit.ShortOrLong(t, 5_000, 50_000, "keys") {
		keys = append(keys, randomKey(rng))
	}
	s := &Store{prefix: defaultPrefix}
	owner := make(map[string]string)
	take := func(redisKey, who string) {
		other, taken := owner[redisKey]
		testkit.Must(t, !taken || other == who, "%q is a key of %s and of %s", redisKey, other, who)
		owner[redisKey] = who
	}
	for _, key := range keys {
		// when their Redis keys are built
		bucket := s.bucketKey(key)
		take(bucket, fmt.Sprintf("bucket %q", key))
		for _, holder := range []string{"h", "}", "{x}", "", "\x00", ":h"} {
			record := recordKey(bucket, holder)
			take(record, fmt.Sprintf("bucket %q holder %q", key, holder))
			// then both are in one slot
			testkit.Must(t, slot(record) == slot(bucket), "%q and %q are in different slots", bucket, record)
		}
		most := max(keyhash.Len, len(key)*11/10) + len("yuzhi:{}")
		testkit.Must(t, len(bucket) <= most, "%d bytes make a Redis key of %d", len(key), len(bucket))
	}
}

// hybrid calls under the short form of a long key, and people inspect by the key itself.
func TestALongKeyAndItsShortFormAreOneBucket(t *testing.T) {
	s := &Store{prefix: defaultPrefix}
	for _, key := range oddKeys {
		if keyhash.Is(key) {
			continue // a Store takes it for a short form; to hybrid, and to Inspect, it is another key's name
		}
		short, long := s.bucketKey(lease.ShortKey(key)), s.bucketKey(key)
		testkit.Check(t, short == long, "%.80q: %q and %q", key, short, long)
	}
}
