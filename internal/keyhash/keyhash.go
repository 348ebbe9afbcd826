// Package keyhash shortens a key to its hash.
package keyhash

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const prefix = "%h:"

// Len is the length of a hash.
const Len = len(prefix) + 2*sha256.Size

// Of returns the SHA-256 of key, in the form that Is recognises.
func Of(key string) string {
	sum := sha256.Sum256([]byte(key))
	return prefix + hex.EncodeToString(sum[:])
}

// Is reports whether key has the form of a hash.
func Is(key string) bool {
	return len(key) == Len && strings.HasPrefix(key, prefix) &&
		strings.Trim(key[len(prefix):], "0123456789abcdef") == ""
}
