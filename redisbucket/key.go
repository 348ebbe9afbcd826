package redisbucket

import (
	"strings"

	"github.com/yuzhi-go/yuzhi/lease"
)

// escaper keeps '}' out of a tag, where it would end the tag early. An escape is '%' and two hex
// digits, and no other '%' survives. So '%' and a letter can mark tags that no user's key spells:
// tagEmpty, and the hashes of lease.HashKey.
var escaper = strings.NewReplacer("%", "%25", "}", "%7D")

// tagEmpty is the tag of the empty key. To Redis an empty tag is none.
const tagEmpty = "%e"

// tag is the hash tag of one user's key, for any bytes. Different keys have different tags, except
// for a collision of SHA-256. A tag is never empty and holds no '}', so everything of one bucket is
// in one slot. It is at most 1.1 times as long as the key, or as long as a hash: a key full of
// braces is hashed, since its escape would take three times the memory.
func tag(key string) string {
	switch {
	case key == "":
		return tagEmpty
	case len(key) > lease.KeyMax:
		return lease.HashKey(key)
	case lease.IsKeyHash(key):
		return key // hybrid has hashed a long key
	case strings.ContainsAny(key, "%}"):
		if escaped := escaper.Replace(key); len(escaped) <= max(len(key)+len(key)/10, lease.KeyHashLen) {
			return escaped
		}
		return lease.HashKey(key)
	}
	return key
}

// bucketKey is the Redis key of the bucket of key. The prefix holds no brace, so the first '{'
// opens the tag.
func (s *Store) bucketKey(key string) string { return s.prefix + "{" + tag(key) + "}" }

// recordKey is the Redis key of one holder's record beside the bucket. A bucket's key ends with the
// only '}' in it, a record's key goes on after it, so the two kinds never meet.
func recordKey(bucketKey, holder string) string { return bucketKey + ":" + holder }
