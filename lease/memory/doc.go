// Package memory has a lease.Store that keeps its buckets in the process. It takes the place of Redis in
// tests, in development, and in services of one process.
package memory
