package redisbucket

import (
	"strings"

	"github.com/yuzhi-go/yuzhi/internal/keyhash"
	"github.com/yuzhi-go/yuzhi/lease"
)

// escaper replaces '}', which would end a hash tag early. No escaped key contains '%' and a letter, so '%'
// and a letter mark other tags: tagEmpty, and the hashes of keyhash.Of.
var escaper = strings.NewReplacer("%", "%25", "}", "%7D")

// tagEmpty is the tag of the empty key. Redis does not treat an empty tag as a tag.
const tagEmpty = "%e"

// tag returns the hash tag of a user's key, which may have any bytes. Different keys have different tags,
// except for a collision of SHA-256. A tag is never empty and has no '}', so all keys of one bucket are in
// one slot. A key full of braces is hashed, because its escaped form would take three times the memory.
func tag(key string) string {
	switch {
	case key == "":
		return tagEmpty
	case keyhash.Is(key):
		return key // package hybrid has replaced a long key by its hash
	case len(key) <= lease.KeyMax:
		if escaped := escaper.Replace(key); len(escaped) <= max(len(key)+len(key)/10, keyhash.Len) {
			return escaped
		}
	}
	return keyhash.Of(key)
}

// bucketKey returns the Redis key of key's bucket. The prefix holds no brace, so '{' opens the tag.
func (s *Store) bucketKey(key string) string { return s.prefix + "{" + tag(key) + "}" }

// recordKey returns the Redis key of a holder's record for a bucket. A bucket's key ends with its only '}',
// and a record's key continues after that brace, so no record has the key of a bucket.
func recordKey(bucketKey, holder string) string { return bucketKey + ":" + holder }

// leaseKeys returns the keys for lease.lua. Both keys are parts of one string, which needs one allocation.
func (s *Store) leaseKeys(key, holder string) (bucket, record string) {
	record = s.prefix + "{" + tag(key) + "}:" + holder
	return record[:len(record)-len(holder)-1], record
}

// userKey returns the user's key for the bucket or record at redisKey, and the holder of a record. For a long
// key, userKey returns the key's hash. ok is false if redisKey does not belong to this Store.
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
