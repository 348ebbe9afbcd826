// Package hook lets tests act at a moment that hybrid.Events does not show: before a lease call reports the
// tokens that its process holds.
package hook

import (
	"fmt"
	"sync"
)

var (
	mu      sync.Mutex
	reports = map[string]func(key string){}
)

// BeforeReport returns a hybrid.Config.InstanceID. A Limiter with this InstanceID calls f before it builds a
// lease call, on the scheduler's or the request's goroutine. f may use TryAllow of the Limiter.
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
