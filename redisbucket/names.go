package redisbucket

import (
	"strings"

	"github.com/yuzhi-go/yuzhi/lease"
)

// escaper keeps '}' out of a tag, where it would end the tag early. So '%' and a letter can mark
// tags that no user's key spells: tagEmpty, and the hashes of lease.HashKey.
var escaper = strings.NewReplacer("%", "%25", "}", "%7D")

// tagEmpty is the tag of the empty key. To Redis an empty tag is none.
const tagEmpty = "%e"

// tag returns the hash tag of one user's key, for any bytes. Different keys have different tags,
// except for a collision of SHA-256. A tag is never empty and holds no '}', so everything of one
// bucket is in one slot. A key full of braces is hashed: its escape would take three times the memory.
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

// bucketKey returns the Redis key of key's bucket. The prefix holds no brace, so '{' opens the tag.
func (s *Store) bucketKey(key string) string { return s.prefix + "{" + tag(key) + "}" }

// recordKey returns the Redis key of one holder's record of that bucket. A bucket's key ends with the
// only '}' in it, a record's key goes on after it, so the two kinds never meet.
func recordKey(bucketKey, holder string) string { return bucketKey + ":" + holder }

// leaseKeys returns the keys of a call of lease.lua: parts of one text, which is one allocation.
func (s *Store) leaseKeys(key, holder string) (bucket, record string) {
	record = s.prefix + "{" + tag(key) + "}:" + holder
	return record[:len(record)-len(holder)-1], record
}

// userKey returns the key whose bucket is at redisKey, and the holder if a record is there. For a
// long key it returns the hash. ok is false for a Redis key that is not of this Store.
func (s *Store) userKey(redisKey string) (key, holder string, ok bool) {
	rest, ok := strings.CutPrefix(redisKey, s.prefix+"{")
	if !ok {
		return "", "", false
	}
	tag, holder, ok := strings.Cut(rest, "}")
	if !ok || tag == "" || holder != "" && (holder[0] != ':' || holder == ":") {
		return "", "", false
	}
	if tag != tagEmpty {
		key = unescaper.Replace(tag)
	}
	return key, strings.TrimPrefix(holder, ":"), true
}

var unescaper = strings.NewReplacer("%25", "%", "%7D", "}")
