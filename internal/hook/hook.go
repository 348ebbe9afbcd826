// Package hook shows the adversaries of this module a moment that hybrid.Events does not: the one before a
// lease call reports what its process holds.
package hook

import (
	"fmt"
	"sync"
)

var (
	mu      sync.Mutex
	reports = map[string]func(key string){}
)

// BeforeReport returns a hybrid.Config.InstanceID. A Limiter with it calls f before it builds a lease call,
// on the scheduler's goroutine or, for a key at rest, on that of its request. f may use TryAllow of the
// Limiter.
func BeforeReport(f func(key string)) (instanceID string) {
	mu.Lock()
	defer mu.Unlock()
	id := fmt.Sprint("hook-", len(reports))
	reports[id] = f
	return id
}

// Of returns the hook of this instanceID, or nil.
func Of(instanceID string) func(key string) {
	mu.Lock()
	defer mu.Unlock()
	return reports[instanceID]
}
