package redisbucket

import (
	"strings"

	"github.com/yuzhi-go/yuzhi/lease"
)

// escaper keeps '}' out of a tag, where it would end the tag early. An escape is '%' and two hex
// digits, and no other '%' survives, so '%' and a letter can mark tags that no user key spells:
// tagEmpty, and lease.KeyHashed.
var escaper = strings.NewReplacer("%", "%25", "}", "%7D")

// tagEmpty is the tag of the empty key: an empty one would not be a tag to Redis.
const tagEmpty = "%e"

// tag is the hash tag of one user key. Different keys have different tags (but for a SHA-256
// collision), a tag is never empty and holds no '}': so everything of one bucket is in one slot,
// for any bytes. Nor is it longer than 1.1 times the key, or than a hash: a key full of braces is
// hashed too, or its escape would cost three times the memory.
func tag(key string) string {
	switch {
	case key == "":
		return tagEmpty
	case len(key) > lease.KeyMax:
		return lease.HashKey(key)
	case lease.IsKeyHash(key):
		return key // what hybrid calls a long key
	case strings.ContainsAny(key, "%}"):
		if escaped := escaper.Replace(key); len(escaped) <= max(len(key)+len(key)/10, lease.KeyHashLen) {
			return escaped
		}
		return lease.HashKey(key)
	}
	return key
}

// bucketKey is the Redis key of the bucket of key. The prefix holds no brace, so the first '{' opens the tag.
func (s *Store) bucketKey(key string) string { return s.prefix + "{" + tag(key) + "}" }

// recordKey is the Redis key of one holder's record beside the bucket. No bucket's key ends in anything but '}'
// directly after the tag, and no tag holds one, so the two kinds never meet.
func recordKey(bucketKey, holder string) string { return bucketKey + ":" + holder }
