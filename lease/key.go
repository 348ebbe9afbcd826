package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// KeyMax is the longest key, in bytes, that is kept as it is; see ShortKey.
const KeyMax = 1024

const (
	keyHashed = "%h:" // begins what HashKey makes of a key
	// KeyHashLen is how long that is.
	KeyHashLen = len(keyHashed) + 2*sha256.Size
)

// ShortKey is the name under which a limiter keeps a key and calls for it: the key itself, or its
// hash where it is longer than KeyMax, so that a flood of long keys takes no more room than any
// other. A key that looks like a hash is hashed too, or it could be chosen to share the bucket of a
// long one.
func ShortKey(key string) string {
	if IsKeyHash(key) {
		return HashKey(key)
	}
	return storedKey(key)
}

// storedKey is the name under which a Store keeps the bucket of a key that it is called with, which
// may be a short form.
func storedKey(key string) string {
	if len(key) <= KeyMax {
		return key
	}
	return HashKey(key)
}

// HashKey is the SHA-256 of key, in a form that IsKeyHash knows.
func HashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return keyHashed + hex.EncodeToString(sum[:])
}

// IsKeyHash reports whether key has the form of HashKey's results.
func IsKeyHash(key string) bool {
	return len(key) == KeyHashLen && strings.HasPrefix(key, keyHashed) &&
		strings.Trim(key[len(keyHashed):], "0123456789abcdef") == ""
}
