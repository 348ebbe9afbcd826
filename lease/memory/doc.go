// Package memory provides a lease.Store that keeps its buckets in the process. This Store replaces Redis in
// tests, in development, and in services of one process.
package memory
